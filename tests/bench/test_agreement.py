"""Right results agree; a wrong one is named, wherever it is wrong."""

import pytest
import torch

from regard.bench import agreement, probe_budgets
from regard.bench.inputs import make_inputs
from regard.bench.sides import UnavailablePeerError, peer_side, regard_side
from tests.bench.rows import tiny

ROWS = [
    tiny(peers=("sdpa", "eager")),
    tiny(dtype="bf16", peers=("sdpa", "eager")),
    tiny(case="causal", peers=("sdpa_causal", "sdpa_mask", "eager")),
    tiny(case="window", peers=("sdpa_mask", "eager")),
    tiny(case="documents", peers=("sdpa_mask",)),
    tiny(case="alibi", peers=("sdpa_bias", "eager")),
    tiny(case="alibi_causal", peers=("sdpa_bias", "eager")),
    tiny(case="bias", peers=("sdpa_bias", "eager")),
    tiny("decode", peers=("sdpa_gqa", "eager")),
    tiny("decode", dtype="bf16", peers=("sdpa_gqa", "eager")),
    tiny("train", peers=("sdpa", "eager")),
    tiny("train", "causal", peers=("sdpa_causal", "eager")),
    tiny("train", "padding", peers=("sdpa_mask",)),
    tiny("train", "padding", "bf16", peers=("sdpa_mask",)),
    tiny("observed", peers=("sdpa", "eager_probes")),
    tiny("observed", dtype="bf16", peers=("sdpa", "eager_probes")),
    tiny("module", peers=("mha", "mha_weights")),
]


def found_by(row, **options):
    inputs = make_inputs(row)
    with torch.set_grad_enabled(row.work == "train"):
        sides = {"regard": regard_side(inputs), **{name: peer_side(name, inputs) for name in row.peers}}
        return inputs, {name: side() for name, side in sides.items()}


@pytest.fixture(params=["whole", "in parts"])
def size(request, monkeypatch):
    """Judge small calls as such, and as if they were large."""
    if request.param == "in parts":
        monkeypatch.setattr(agreement, "CELLS", 40)
        monkeypatch.setattr(agreement, "SAMPLED_ROWS", 3)
        monkeypatch.setattr(probe_budgets, "_CHUNK_CELLS", 200)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_sides_agree(row, size):
    assert agreement.judge(*found_by(row)) == {}


def test_a_large_call_is_judged_on_its_first_and_last_head(monkeypatch):
    monkeypatch.setattr(agreement, "CELLS", 40)
    monkeypatch.setattr(agreement, "SAMPLED_ROWS", 3)
    first, last = agreement.parts(make_inputs(tiny()))
    assert (first.batch, first.heads, last.batch, last.heads) == (slice(0, 1), slice(0, 1), slice(1, 2), slice(1, 2))
    assert first.queries.tolist() == [0, 15, 31]
    grouped, _ = agreement.parts(make_inputs(tiny("decode")))
    assert (grouped.heads, grouped.kv_heads) == (slice(0, 2), slice(0, 1))
    assert all(part.queries is None for part in agreement.parts(make_inputs(tiny("train"))))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("side", ["regard", "peer"])
def test_a_wrong_result_is_named(row, side, size):
    inputs, found = found_by(row)
    wrong = "regard" if side == "regard" else row.peers[0]
    for name in found[wrong]:
        if name == "top_k.indices":
            continue
        changed = {**found, wrong: {**found[wrong], name: found[wrong][name] * 1.5}}
        problems = agreement.judge(inputs, changed)
        assert wrong in problems, name
        assert name in problems[wrong]


@pytest.mark.parametrize("damage", [3.0, float("nan"), float("inf")])
def test_one_element_outside_the_parts_that_were_judged_is_enough(damage, monkeypatch):
    monkeypatch.setattr(agreement, "CELLS", 40)
    monkeypatch.setattr(agreement, "SAMPLED_ROWS", 3)
    inputs, found = found_by(tiny())
    found["sdpa"]["output"][0, 1, 7, 3] += damage
    (problem,) = agreement.judge(inputs, found).values()
    assert problem.startswith("output is ")


def test_a_value_of_regard_that_is_not_finite_is_regards_fault(monkeypatch):
    monkeypatch.setattr(agreement, "CELLS", 40)
    monkeypatch.setattr(agreement, "SAMPLED_ROWS", 3)
    inputs, found = found_by(tiny())
    found["regard"]["output"][0, 1, 7, 3] = float("nan")
    assert agreement.judge(inputs, found)["regard"] == "output is not finite"


def test_the_wrong_keys_are_found_and_another_order_of_equals_is_not(size):
    inputs, found = found_by(tiny("observed", peers=("eager_probes",)))
    indices = found["eager_probes"]["top_k.indices"]
    assert agreement.judge(inputs, found) == {}
    indices[..., 0] = indices[..., 1]
    assert "top_k.indices" in agreement.judge(inputs, found)["eager_probes"]


def test_equal_weights_may_be_named_in_any_order():
    row = tiny("observed", peers=("eager_probes",))
    inputs = make_inputs(row)
    inputs.query.zero_()
    found = {"regard": regard_side(inputs)(), "eager_probes": peer_side("eager_probes", inputs)()}
    indices = found["eager_probes"]["top_k.indices"]
    indices[:] = torch.arange(7, 23).flip(-1)
    assert agreement.judge(inputs, found) == {}
    for wrong in (8, 32, -1):  # named twice, no such key, none although there are enough
        indices[1, 0, 5, 0] = wrong
        assert "top_k.indices" in agreement.judge(inputs, found)["eager_probes"]


def test_inputs_are_the_same_every_time():
    first, again, other = (make_inputs(tiny("train", "padding"), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.query, again.query)
    assert torch.equal(first.keep, again.keep)
    assert not torch.equal(first.query, other.query)
    assert not first.keep.all()


def test_a_peer_without_room_or_compiler_says_so(monkeypatch):
    monkeypatch.setattr("regard.bench.sides._free_bytes", lambda device: 10)
    with pytest.raises(UnavailablePeerError, match=r"its weights need about 0 GB, 0 GB are free"):
        peer_side("eager", make_inputs(tiny()))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UnavailablePeerError, match=r"needs a C\+\+ compiler, and there is none"):
        peer_side("flex", make_inputs(tiny()))


def test_what_torch_cannot_compile_is_a_reason(monkeypatch):
    def fail(*tensors, **options):
        raise RuntimeError("no headers\nand a long log")

    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(torch, "compile", lambda function, **options: fail)
    with pytest.raises(UnavailablePeerError, match=r"torch.compile failed: no headers$"):
        peer_side("flex", make_inputs(tiny()))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("case", ["plain", "causal", "window", "documents"])
def test_flex_is_told_the_same_mask(case, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    row = tiny(case=case, peers=("flex",))
    inputs, found = found_by(row)
    assert agreement.judge(inputs, found) == {}
