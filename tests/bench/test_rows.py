import pytest

from regard.bench import ROWS, Row, Target, select
from regard.bench.rows import shape
from regard.bench.sides import _PEERS

BY_NAME = {row.name: row for row in ROWS}


def limits(name):
    return {(target.peer, target.measure): target.limit for target in BY_NAME[name].targets}


def test_names_are_unique():
    assert len(BY_NAME) == len(ROWS)


def test_every_peer_is_known_and_every_peer_is_used():
    assert {peer for row in ROWS for peer in row.peers} == set(_PEERS)


@pytest.mark.parametrize("size", ["1x12x512x64", "1x12x2048x64", "1x12x8192x64", "8x12x512x64", "1x8x4096x128"])
@pytest.mark.parametrize(("dtype", "plain", "causal"), [("fp32", 1.2, 1.3), ("bf16", 2.2, 2.5)])
def test_what_the_forward_pass_must_reach(size, dtype, plain, causal):
    assert limits(f"forward/{dtype}/plain/{size}") == {("sdpa", "speedup"): plain}
    assert limits(f"forward/{dtype}/causal/{size}") == {("sdpa_causal", "speedup"): causal}


@pytest.mark.parametrize(
    ("name", "peer", "measure", "limit"),
    [
        ("forward/fp32/window/1x12x8192x64", "sdpa_mask", "speedup", 15),
        ("forward/fp32/documents/1x12x8192x64", "sdpa_mask", "speedup", 15),
        ("forward/fp32/alibi/1x12x2048x64", "sdpa_bias", "speedup", 1.25),
        ("forward/fp32/alibi_causal/1x12x2048x64", "sdpa_bias", "speedup", 2),
        ("forward/fp32/bias/1x12x2048x64", "sdpa_bias", "speedup", 1.15),
        ("decode/fp32/plain/1x32-8x1-8192x128", "sdpa_gqa", "speedup", 5),
        ("decode/bf16/plain/1x32-8x1-8192x128", "sdpa_gqa", "speedup", 15),
        ("train/fp32/plain/1x12x2048x64", "sdpa", "speedup", 1.2),
        ("train/fp32/causal/1x12x512x64", "sdpa_causal", "speedup", 1.5),
        ("train/bf16/padding/128x8x8x32", "sdpa_mask", "speedup", 1.5),
        ("observed/fp32/plain/1x12x512x64", "sdpa", "time", 1.1),
        ("observed/fp32/plain/1x12x2048x64", "sdpa", "time", 1.05),
        ("observed/fp32/plain/1x12x8192x64", "sdpa", "time", 0.95),
        ("observed/fp32/plain/1x8x4096x128", "sdpa", "time", 0.95),
        ("observed/bf16/plain/1x12x2048x64", "sdpa", "time", 0.7),
        ("observed/bf16/plain/1x12x2048x64", "eager_probes", "speedup", 3),
        ("small/fp32/plain/1x12x64x64", "sdpa", "overhead_us", 40),
        ("small/fp32/plain/32x12x128x64", "sdpa", "speedup", 1),
        ("memory/fp32/plain/1x12x8192x64", "", "bytes", 1024),
    ],
)
def test_what_must_hold(name, peer, measure, limit):
    assert limits(name)[(peer, measure)] == limit


def test_maps_and_threads_are_those_of_the_promise():
    maps = {row.shape.q_len: row.heat_map for row in ROWS if row.work == "observed"}
    assert maps == {512: 64, 2048: 256, 4096: 256, 8192: 256}
    assert {row.shape.q_len for row in ROWS if row.threads == 1} == {16, 64}


@pytest.mark.parametrize(
    ("target", "dtype", "isa", "limit"),
    [
        (Target("sdpa", "speedup", 1.2, avx2=1.0), "fp32", "avx512_bf16", 1.2),
        (Target("sdpa", "speedup", 1.2, avx2=1.0), "fp32", "avx512", 1.2),
        (Target("sdpa", "speedup", 1.2, avx2=1.0), "fp32", "avx2", 1.0),
        (Target("sdpa", "speedup", 1.2), "fp32", "avx2", None),
        (Target("sdpa", "speedup", 2.2), "bf16", "avx512_bf16", 2.2),
        (Target("sdpa", "speedup", 2.2), "bf16", "avx512", None),
        (Target("sdpa", "speedup", 1.2), "fp32", None, None),
    ],
)
def test_targets_are_for_kernels(target, dtype, isa, limit):
    assert target.limit_for(isa, dtype) == limit


def test_a_limit_is_met_from_the_right_side():
    speedup, time = Target("sdpa", "speedup", 1.2), Target("sdpa", "time", 1.05)
    assert [speedup.met(value, 1.2) for value in (1.1, 1.2, 1.3)] == [False, True, True]
    assert [time.met(value, 1.05) for value in (1.0, 1.05, 1.1)] == [True, True, False]


@pytest.mark.parametrize("row", ROWS[::7], ids=lambda row: row.name)
def test_a_row_goes_to_another_process_and_back(row):
    assert Row.from_json(row.to_json()) == row


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("window", ["forward/fp32/window/1x12x8192x64"]),
        ("bf16/*/1x12x512", ["forward/bf16/plain/1x12x512x64", "forward/bf16/causal/1x12x512x64"]),
        ("nothing like it", []),
    ],
)
def test_rows_are_selected_by_a_part_of_their_name(only, names):
    assert [row.name for row in select(ROWS, only=only)] == names


def test_quick_rows_are_short_and_the_shortest_come_first():
    quick = select(ROWS, quick=True)
    assert {row.work for row in quick} == {"forward", "decode", "train", "observed", "small", "module"}
    cells = [row.shape.cells for row in quick]
    assert cells == sorted(cells)
    assert cells[-1] <= 12 * 2048**2


def test_a_target_names_a_peer_of_its_row():
    with pytest.raises(AssertionError):
        Row("forward", "plain", shape(1, 1, 8, 8), "fp32", ("eager",), (Target("sdpa", "speedup", 1.0),))
