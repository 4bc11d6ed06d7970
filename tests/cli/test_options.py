import pytest

from regard.cli._options import layers_of, probes_of
from regard.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "layers"),
    [("0", (0,)), ("0,3-5", (0, 3, 4, 5)), (" 2 , 1 - 2 ", (1, 2)), ("5-5", (5,))],
)
def test_layers(text, layers):
    assert layers_of(text, 6) == layers


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "1.5"])
def test_layers_that_are_none(text):
    with pytest.raises(ConfigError, match="--layers must look like 0,3-5"):
        layers_of(text, 6)


def test_layers_the_model_lacks():
    with pytest.raises(ConfigError, match="names layer 6, but the model has only layers 0 to 5"):
        layers_of("2,4-6", 6)
    assert layers_of("7", None) == (7,)


def test_probes_by_name():
    probes = probes_of(
        "entropy, TopK=8,heat-map=32x64,first_keys=2,keymass,rows,distance,logsumexp,sinkshare", total=99
    )
    names = [probe.attribute for probe in probes]
    assert names == [
        "entropy", "top_k", "heat_map", "first_keys", "key_mass", "rows", "distance", "log_sum_exp", "sink_share",
    ]  # fmt: skip
    assert (probes[1].k, probes[2].rows, probes[2].cols, probes[2].length, probes[3].n) == (8, 32, 64, 99, 2)


def test_probes_that_do_not_exist():
    with pytest.raises(ConfigError, match="--probes has no 'entrophy'; there are: entropy, topk=16"):
        probes_of("entrophy")


@pytest.mark.parametrize("text", ["topk=a", "topk=0", "topk=1x2", "heatmap=3", "entropy=1", "rows=3"])
def test_probes_with_wrong_numbers(text):
    with pytest.raises(ConfigError, match=rf"--probes '{text}'"):
        probes_of(text)


@pytest.mark.parametrize("text", ["entropy,entropy", "topk=3,entropy,top_k=4", "KeyMass,keymass"])
def test_probes_named_twice(text):
    with pytest.raises(ConfigError, match=r"--probes must name each probe once, but has '[a-z_]+' twice"):
        probes_of(text)


def test_more_strongest_keys_than_tokens_are_not_gathered():
    assert [probes_of(f"topk={k}", longest=7)[0].k for k in (999999, 2)] == [7, 2]
