"""The native kernels: what the suites for all backends do not reach, because it needs many blocks, tiles or threads."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from regard.errors import BackendUnavailableError, ConfigError
from regard.ops import (
    ALiBi,
    Allowed,
    Causal,
    Documents,
    Padding,
    Prefix,
    SlidingWindow,
    attend,
    explain_backend,
    measure,
    observe,
)
from regard.ops._backends import native, native_library
from regard.ops._key_ranges import KeyRanges, key_ranges
from regard.ops._validate import make_call
from regard.ops.probes import (
    Distance,
    Entropy,
    FirstKeys,
    HeatMap,
    KeyMass,
    LogSumExp,
    OffsetMass,
    Rows,
    SinkShare,
    SpanMass,
    TopK,
)
from tests.ops.backends import skip_unavailable

EPS = torch.finfo(torch.float32).eps


@pytest.fixture(autouse=True)
def _available():
    skip_unavailable("native")


def tensors(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def inputs(batch=1, heads=2, kv_heads=2, q_len=60, kv_len=60, head_dim=16, value_dim=16, dtype=torch.float32):
    return (
        tensors(batch, heads, q_len, head_dim, dtype=dtype, seed=1),
        tensors(batch, kv_heads, kv_len, head_dim, dtype=dtype, seed=2),
        tensors(batch, kv_heads, kv_len, value_dim, dtype=dtype, seed=3),
    )


def every_probe(q_len: int, kv_len: int) -> list[Any]:
    return [
        LogSumExp(),
        Entropy(),
        Distance(),
        SinkShare(),
        TopK(3),
        TopK(20, name="top_20"),
        FirstKeys(2),
        OffsetMass((-1, 0, 2)),
        KeyMass(),
        HeatMap(7, 5),
        HeatMap(4, 6, max(q_len, kv_len) + 60, name="by_position"),
        SpanMass(((0, 3), (2, 90))),
        SpanMass(((0, 3), (5, 9)), ((0, 2), (1, 55)), name="span_means"),
        Rows(),
        Rows((0, kv_len + 70, kv_len), name="some_rows"),
    ]


def parts(value: Any) -> list[Tensor]:
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return [value]


def agree(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> None:
    """Output and every probe beside the definitions in float64, no farther off than the strips in float32 are."""
    probes = every_probe(query.shape[2], key.shape[2])
    exact_options = {
        name: given.double() if isinstance(given, Tensor) and given.is_floating_point() else given
        for name, given in options.items()
    }
    output, found = observe(query, key, value, probes, **options, backend="native")
    _, exact = observe(query.double(), key.double(), value.double(), probes, **exact_options, backend="reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "answers", lambda question: False)
        plain = measure(query, key, probes, **options)
    for name, wanted in exact.values().items():
        for have, right, usual in zip(
            parts(getattr(found, name)), parts(wanted), parts(getattr(plain, name)), strict=True
        ):
            assert have.shape == right.shape, name
            assert torch.equal(have.isnan(), right.isnan()), name
            right = right.double().nan_to_num(nan=0.0)
            band = 32 * EPS * right.abs().where(right.isfinite(), 0.0).amax().clamp(min=1)
            allowed = 2 * ((usual.double().nan_to_num(nan=0.0) - right).abs().nan_to_num(nan=0.0).amax() + band)
            off = (have.double().nan_to_num(nan=0.0) - right).abs().nan_to_num(nan=0.0).amax()
            assert off <= allowed, f"{name}: {off:.3g} > {allowed:.3g}"
    again = attend(query, key, value, **options, backend="native")
    assert torch.equal(output.nan_to_num(nan=7.0), again.nan_to_num(nan=7.0)), "asking changes no bit of the output"


KEEP = torch.arange(300)[None] < torch.tensor([[300], [170], [0]])
HOLES = torch.rand(3, 300, generator=torch.Generator().manual_seed(5)) < 0.7
IDS = torch.tensor([[0] * 100 + [1] * 120 + [-1] * 80])
MASKS: dict[str, Any] = {
    "none": None,
    "causal": Causal(),
    "window": Causal() & SlidingWindow(70),
    "two-sided window": SlidingWindow(9),
    "padding": Padding(KEEP),
    "causal padding": Causal() & Padding(KEEP),
    "padding with holes": Padding(HOLES),
    "causal padding with holes": Padding(HOLES) & Causal(),
    "documents": Documents(IDS),
    "documents out of order": Documents(IDS.roll(50, 1)),
    "all but documents": ~Documents(IDS),
    "prefix": Causal() | Prefix(40),
    "sparse": Allowed(torch.rand(300, 300, generator=torch.Generator().manual_seed(6)) < 0.02),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_every_mask_over_many_blocks_and_tiles(mask: str, kv_heads: int) -> None:
    agree(*inputs(batch=3, kv_heads=kv_heads, q_len=300, kv_len=300), mask=MASKS[mask])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "shape",
    [
        {"q_len": 1, "kv_len": 1, "head_dim": 1, "value_dim": 1},
        {"q_len": 33, "kv_len": 77, "head_dim": 24, "value_dim": 40, "heads": 6},
        {"q_len": 49, "kv_len": 257, "head_dim": 17, "value_dim": 9, "heads": 4, "kv_heads": 1},
        {"q_len": 1, "kv_len": 700, "head_dim": 128, "value_dim": 64, "heads": 8},
        {"q_len": 3, "kv_len": 530, "head_dim": 20, "value_dim": 33, "heads": 4, "kv_heads": 1, "batch": 2},
        {"q_len": 130, "kv_len": 150, "head_dim": 256, "value_dim": 256},
    ],
    ids=str,
)
def test_every_shape(shape: dict[str, int], dtype: torch.dtype) -> None:
    query, key, value = inputs(**shape, dtype=dtype)
    agree(query, key, value, q_start=0)
    agree(query, key, value, mask=Causal(), sinks=tensors(query.shape[1]), logit_softcap=3.0)


@pytest.mark.parametrize("q_len", [2, 300])
def test_bias_positions_sinks_and_soft_cap_together(q_len: int) -> None:
    query, key, value = inputs(batch=2, heads=4, q_len=q_len, kv_len=300)
    bias = tensors(1, 4, q_len, 300)
    bias[:, :, :, 7] = -torch.inf
    bias[:, 1, q_len // 2] = -torch.inf
    for given_bias in (bias, bias.bfloat16(), bias[..., :1], bias[:, :1, :1], bias.mT.contiguous().mT):
        agree(query, key, value, bias=given_bias, logit_softcap=5.0, sinks=tensors(4))
    agree(query, key, value, q_start=torch.tensor([3, 20]), kv_start=4, mask=Causal() & SlidingWindow(80))


def test_a_row_with_infinite_bias_is_nan_and_no_other() -> None:
    query, key, value = inputs(q_len=100, kv_len=100)
    bias = tensors(1, 1, 100, 100)
    bias[..., 50, 3] = torch.inf
    agree(query, key, value, bias=bias, mask=Causal())


@pytest.mark.parametrize("q_len", [2, 100])
def test_nothing_behind_the_mask_matters(q_len: int) -> None:
    query, key, value = inputs(q_len=q_len, kv_len=400)
    mask = Padding(torch.arange(400)[None] < 290) & Causal()
    clean, seen = observe(query, key, value, every_probe(q_len, 400), mask=mask, q_start=250, backend="native")
    key[:, :, 300:], value[:, :, 270:300:7] = torch.nan, torch.inf  # the second only some queries may see
    dirty, dirty_seen = observe(query, key, value, every_probe(q_len, 400), mask=mask, q_start=250, backend="native")
    blind = min(q_len, 20)  # queries before position 270
    torch.testing.assert_close(clean[:, :, :blind], dirty[:, :, :blind])
    assert torch.equal(seen.key_mass, dirty_seen.key_mass)
    assert q_len == 2 or not dirty[:, :, 20:].isfinite().all(), "what may be seen stays visible"


SCORES = {
    "rising": lambda n: torch.linspace(-9, 9, n),
    "falling": lambda n: torch.linspace(9, -9, n),
    "equal": lambda n: torch.zeros(n),
    "equal in pairs": lambda n: (torch.arange(n) // 2 % 40) / 4.0,
    "one spike": lambda n: torch.where(torch.arange(n) == 777 % n, 60.0, 0.0),
    "negative zero": lambda n: torch.where(torch.arange(n) % 3 == 0, -0.0, 0.0),
    "tiny differences": lambda n: 1 + EPS * torch.arange(n),
}


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("q_len", [1, 60])
@pytest.mark.parametrize("k", [1, 8, 16, 33, 64])
def test_top_keys_are_in_exact_order(scores: str, q_len: int, k: int) -> None:
    logits = SCORES[scores](1000).expand(1, 1, q_len, 1000)
    query = key = torch.zeros(1, 1, q_len, 4)
    key = torch.zeros(1, 1, 1000, 4)
    _, seen = observe(query, key, key, [TopK(k)], bias=logits, backend="native")
    order = torch.sort(logits, dim=-1, descending=True, stable=True).indices[..., :k]
    assert torch.equal(seen.top_k.indices, order)
    left_out = torch.softmax(logits.double(), -1).scatter(-1, order, 0.0).sum(-1)
    torch.testing.assert_close(seen.top_k.rest.double(), left_out, rtol=2e-5, atol=1e-30)


@given(data=st.data())
@settings(max_examples=60)
def test_masks_become_the_ranges_and_bits_they_mean(data: st.DataObject) -> None:
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    q_len, kv_len = data.draw(st.sampled_from([1, 5, 33])), data.draw(st.sampled_from([1, 7, 64, 130]))
    keep = torch.rand(2, kv_len, generator=random) < data.draw(st.sampled_from([0.0, 0.5, 0.95]))
    ids = torch.randint(-1, 3, (2, kv_len), generator=random)
    leaf = st.sampled_from(
        [
            Causal(),
            SlidingWindow(3),
            Padding(keep),
            Documents(ids, ids[:, :1].expand(2, q_len)),
            Documents(ids.sort(dim=1, descending=True).values, ids[:, -1:].expand(2, q_len)),
            Prefix(torch.tensor([0, 4])),
            Allowed(torch.rand(2, 3, q_len, kv_len, generator=random) < 0.6),
        ]
    )
    mask = data.draw(leaf)
    for _ in range(data.draw(st.integers(0, 2))):
        other = data.draw(leaf)
        mask = data.draw(st.sampled_from([mask & other, mask | other, ~mask & other]))
    query, key, _ = inputs(batch=2, heads=3, kv_heads=3, q_len=q_len, kv_len=kv_len)
    options = {"bias": None, "scale": None, "logit_softcap": None, "sinks": None, "q_start": 1}
    call = make_call("weights", query, key, None, mask=mask, **options)
    found = key_ranges(call.mask, call.geometry, scan=native._scan, cut=native._cut)
    meant = call.mask.allowed(call.geometry, slice(None), slice(None)).expand(2, 3, q_len, kv_len)
    assert torch.equal(cells(found, kv_len).expand_as(meant), meant)


def cells(ranges: KeyRanges, kv_len: int) -> Tensor:
    """The mask that ranges and bits stand for."""
    index = torch.arange(kv_len)
    inside = (ranges.low[..., None] <= index) & (index < ranges.high[..., None])
    if ranges.tiles is None or ranges.bits is None:
        return inside
    for place in torch.cartesian_prod(*(torch.arange(size) for size in inside.shape)).tolist():
        b, h, i, j = place
        tile = int(ranges.tiles[b, h, i // 16, j // 64])
        bit = tile == -2 or (tile >= 0 and int(ranges.bits[tile, i % 16]) >> (j % 64) & 1)
        inside[b, h, i, j] &= bool(bit)
    return inside


def test_the_same_bits_every_time_and_with_any_grouping_of_rows() -> None:
    query, key, value = inputs(batch=1, heads=3, kv_heads=3, q_len=500, kv_len=500, head_dim=32, value_dim=32)
    probes = [KeyMass(), HeatMap(30, 30), TopK(16), Entropy()]
    mask = Causal() & SlidingWindow(301)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first, seen = observe(query, key, value, probes, mask=mask, backend="native")
        for _ in range(3):
            again, seen_again = observe(query, key, value, probes, mask=mask, backend="native")
            assert torch.equal(first, again)
            for name, value_ in seen.values().items():
                for left, right in zip(parts(value_), parts(getattr(seen_again, name)), strict=True):
                    assert torch.equal(left, right), name
        some = attend(query[:, :, 100:131], key, value, mask=mask, q_start=100, backend="native")
        assert torch.equal(some, first[:, :, 100:131])
    finally:
        torch.set_num_threads(threads)


def test_many_python_threads_at_once() -> None:
    query, key, value = inputs(heads=4, q_len=200, kv_len=200)

    def run(_number: int) -> Tensor:
        output, seen = observe(query, key, value, [KeyMass(), TopK(5)], mask=Causal(), backend="native")
        return torch.cat([output.flatten(), seen.key_mass.flatten(), seen.top_k.weights.flatten()])

    alone = run(0)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(run, range(40)):
            assert torch.equal(result, alone)


def script(text: str, **environment: str) -> str:
    """Run Python code in a process of its own and return what it prints."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], env=env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_a_fork_of_a_process_that_used_threads_computes_the_same() -> None:
    text = """
        import os, torch, regard
        torch.set_num_threads(2)
        query = torch.randn(1, 4, 300, 32)
        before = regard.attend(query, query, query, backend="native")
        child = os.fork()
        if child == 0:
            after = regard.attend(query, query, query, backend="native")
            same = before.numpy().tobytes() == after.numpy().tobytes()  # torch.equal would wait for torch's threads
            os._exit(0 if same else 3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert script(text) == "0"


def test_a_thousand_calls_take_no_more_memory_than_a_hundred() -> None:
    text = """
        import resource, torch, regard
        query = torch.randn(1, 2, 130, 32)
        probes = [regard.KeyMass(), regard.HeatMap(8, 8), regard.TopK(8)]
        def run(times):
            for number in range(times):
                length = 60 + number % 70
                some = query[:, :, :length]
                regard.observe(some, some, some, probes, mask=regard.Causal(), backend="native")
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(100)
        first = run(100)
        print(run(1000) - first)
    """
    assert int(script(text)) <= 1024, "KiB"


@pytest.mark.parametrize("isa", native_library.ISAS)
def test_the_contract_holds_with_every_build(isa: str) -> None:
    if not native_library.ISAS[isa] <= (native_library.features() or frozenset()):
        assert_refused = script(
            """
            from regard.errors import ConfigError
            from regard.ops._backends import native_library
            import torch
            try:
                native_library.kernels()
            except ConfigError as error:
                print(error)
            """,
            REGARD_ISA=isa,
        )
        assert f"but is '{isa}'" in assert_refused
        return
    text = """
        import torch
        from regard.ops._backends import native_library
        from regard.ops.testing import check_backend
        report = check_backend("native", dtypes=[torch.float32, torch.bfloat16, torch.float16])
        print(native_library.isa(), len(report.passed) > 30)
    """
    assert script(text, REGARD_ISA=isa) == f"{isa} True"


@pytest.mark.parametrize("isa", native_library.ISAS)
def test_asking_for_a_probe_changes_no_bit_of_the_output_with_any_build(isa: str) -> None:
    if not native_library.ISAS[isa] <= (native_library.features() or frozenset()):
        pytest.skip(f"this CPU cannot run {isa}")
    text = """
        import torch
        from regard import ops
        from tests.ops.test_native import every_probe
        wrong = []
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for heads, kv_heads, q_len, kv_len, dims in ((6, 3, 224, 469, (80, 41)), (2, 1, 5, 300, (64, 64))):
                torch.manual_seed(1)
                query = torch.randn(1, heads, q_len, dims[0]).to(dtype)
                key, value = (torch.randn(1, kv_heads, kv_len, dim).to(dtype) for dim in dims)
                for mask in (None, ops.Causal(), ops.Where(lambda b, h, i, j: (i + j) % 3 != 0)):
                    for options in ({}, {"logit_softcap": 2.0}, {"sinks": torch.randn(heads)}):
                        plain = ops.attend(query, key, value, mask=mask, backend="native", **options)
                        probes = every_probe(q_len, kv_len)
                        for asked in (probes, *([probe] for probe in probes)):
                            seen, _ = ops.observe(query, key, value, asked, mask=mask, backend="native", **options)
                            if not torch.equal(seen, plain):
                                wrong.append((dtype, q_len, mask, options, asked))
        print(wrong)
    """
    assert script(text, REGARD_ISA=isa) == "[]"


def test_torchs_own_bfloat16_products_and_ours_take_turns() -> None:
    """A matrix unit has shapes that both set: neither finds the other's."""
    torch.manual_seed(0)
    query = torch.randn(1, 4, 96, 64, dtype=torch.bfloat16)
    left, right = torch.randn(192, 200, dtype=torch.bfloat16), torch.randn(200, 72, dtype=torch.bfloat16)
    product, attended = left @ right, attend(query, query, query, backend="native")
    for _ in range(5):
        assert torch.equal(attend(query, query, query, backend="native"), attended)
        functional.scaled_dot_product_attention(query, query, query)
        assert torch.equal(left @ right, product)
    torch.testing.assert_close(product, (left.double() @ right.double()).bfloat16(), rtol=0.02, atol=0.02)


def test_scores_of_long_heads_are_added_up_in_runs() -> None:
    """All terms of a score are equal, so a chain of additions rounds the same way again and again."""
    query, key = torch.ones(1, 1, 50, 255), (torch.arange(108)[:, None] / 255).expand(1, 1, 108, 255)
    value = tensors(1, 1, 108, 16)
    exact = attend(query.double(), key.double(), value.double())
    off = (attend(query, key, value, backend="native").double() - exact).abs().amax()
    assert off < 2e-6  # 5e-6 in one chain


@pytest.mark.parametrize("scale", [-0.5, 0.0, 0.125])
def test_a_scale_of_any_sign_serves_bfloat16(scale: float) -> None:
    """Scores of pairs are scaled late, when the largest is known; that asks for a scale above 0."""
    torch.manual_seed(0)
    query = torch.randn(1, 2, 70, 24, dtype=torch.bfloat16)
    output, seen = observe(query, query, query, [Entropy(), TopK(5)], scale=scale, backend="native")
    exact, expected = observe(*[query.double()] * 3, [Entropy(), TopK(5)], scale=scale, backend="reference")
    torch.testing.assert_close(output.double(), exact, rtol=0.02, atol=0.02)
    torch.testing.assert_close(seen.entropy.double(), expected.entropy, rtol=1e-4, atol=1e-4, check_dtype=False)
    torch.testing.assert_close(
        seen.top_k.weights.double(), expected.top_k.weights, rtol=1e-4, atol=1e-5, check_dtype=False
    )


def test_a_build_that_does_not_exist_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_ISA", "mmx")
    with pytest.raises(ConfigError, match=r"`REGARD_ISA` must be one of .*none on this machine, but is 'mmx'"):
        native_library.isa.__wrapped__()


def test_without_kernels_everything_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = inputs()
    usual = attend(query, key, value, mask=Causal())
    monkeypatch.setattr(native_library, "kernels", lambda: None)
    explained = explain_backend(query, key, value, mask=Causal())
    assert explained.backend == "torch"
    assert "no kernels for this CPU" in str(explained)
    torch.testing.assert_close(attend(query, key, value, mask=Causal()), usual)
    assert measure(query, key, [Entropy()], mask=Causal()).entropy.shape == (1, 2, 60)
    with pytest.raises(BackendUnavailableError, match="no kernels for this CPU"):
        attend(query, key, value, backend="native")


def test_auto_takes_the_kernels_where_they_are() -> None:
    query, key, value = inputs()
    for options in ({}, {"mask": Causal()}, {"logit_softcap": 2.0}, {"sinks": torch.zeros(2)}):
        assert explain_backend(query, key, value, **options).backend == "native"
    assert explain_backend(query.double(), key.double(), value.double()).backend == "torch"
    assert explain_backend(query, key, value, dropout_p=0.5).backend == "tiled"


@pytest.mark.parametrize("q_len", [2, 300])
def test_alibi_is_the_dense_bias_it_stands_for(q_len: int) -> None:
    query, key, value = inputs(batch=2, heads=4, q_len=q_len, kv_len=300)
    slopes = torch.tensor([0.5, 0.25, 0.1, -0.01])
    places = {"q_start": torch.tensor([3, 9]), "kv_start": 2}
    for options in ({}, {"mask": Causal()}, {"mask": SlidingWindow(40), **places}):
        agree(query, key, value, bias=ALiBi(slopes), **options)
