"""The life of a watch: options, names, runs, nesting, threads, exceptions, and that nothing is left behind."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from regard.errors import ConfigError
from regard.lens import watch
from regard.lens.watch import _check
from regard.ops.probes import Entropy, HeatMap, KeyMass, Rows, TopK


class Block(nn.Module):
    """Self-attention with a cache that a caller passes in."""

    def __init__(self, causal=True):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.causal = causal

    def forward(self, x, cache=None):
        q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k = cache["k"] = torch.cat([cache["k"], k], 2) if "k" in cache else k
            v = cache["v"] = torch.cat([cache["v"], v], 2) if "v" in cache else v
        causal = self.causal and q.shape[2] == k.shape[2]
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
def test_scripted_modules_are_said_not_to_be_seen():
    class Scripted(nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x, x, x)

    model = nn.Sequential(nn.Linear(4, 4), torch.jit.trace(Scripted(), torch.randn(1, 2, 3, 4)))
    with watch(model, [Entropy()]) as seen:
        model(torch.randn(1, 2, 3, 4))
    (entry,) = seen.coverage
    assert (entry.name, entry.status) == ("1", "not seen")
    assert "TorchScript" in entry.reason


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"probes": Entropy()}, "`probes` must be a sequence of regard.ops probes, but is a Entropy"),
        ({"probes": [], "modules": ["a"]}, "`modules` must be a regular expression, but is"),
    ],
)
def test_arguments_of_another_type_are_named(arguments, line):
    # The shape checks of the test suite would refuse these before watch() can; a person has no such checks.
    with pytest.raises(ConfigError, match=line):
        _check(nn.Linear(1, 1), **{"modules": None, **arguments}, serve="model", eager_limit=1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x, caches=(None, None)):
        return self.second(self.first(x, caches[0]), caches[1])


def hooks(model):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def modes():
    return torch.overrides._len_torch_function_stack()


def test_layers_have_names_places_and_values():
    model, x = Model(), torch.randn(2, 5, 8)
    with watch(model, [Entropy(), TopK(2)]) as seen:
        model(x)
    assert [layer.name for layer in seen.layers] == ["first", "second"]
    layer = seen["second"]
    assert layer.entropy.shape == (2, 2, 5)
    assert layer.top_k.indices.shape == (2, 2, 5, 2)
    assert layer.q_positions.tolist() == [[0, 1, 2, 3, 4]]
    assert (layer.kind, layer.kv_start, layer.kv_len, layer.num_heads, layer.index) == ("self", 0, 5, 2, 0)
    with pytest.raises(KeyError, match="seen were: first, second"):
        seen["third"]
    with pytest.raises(AttributeError, match="no probe called 'rows'"):
        _ = layer.rows


def test_steps_with_a_cache_join_and_a_second_run_is_a_layer_of_its_own():
    model, x = Model(), torch.randn(2, 6, 8)
    with watch(model, [Rows(), KeyMass()]) as seen:
        caches = ({}, {})
        model(x[:, :4], caches)
        model(x[:, 4:5], caches)
        model(x[:, 5:], caches)
        model(x)
    assert [(layer.name, layer.index) for layer in seen.layers] == [
        ("first", 0),
        ("second", 0),
        ("first", 1),
        ("second", 1),
    ]
    stepped, whole = seen["first", 0], seen["first", 1]
    torch.testing.assert_close(stepped.rows, whole.rows, atol=1e-6, rtol=0)
    torch.testing.assert_close(stepped.key_mass, whole.key_mass, atol=1e-6, rtol=0)
    assert stepped.q_positions.tolist() == [[0, 1, 2, 3, 4, 5]]
    with pytest.raises(ConfigError, match=r"pair: \('first', 0 … 1\)"):
        seen["first"]


def test_a_shared_module_has_one_layer_per_turn():
    block = Block(causal=False)
    model = nn.Sequential(block, block, block)
    with watch(model, [Entropy()]) as seen:
        model(torch.randn(1, 4, 8))
    assert [(layer.name, layer.index) for layer in seen.layers] == [("0", 0), ("0", 1), ("0", 2)]


def test_nothing_is_left_behind_after_an_exception():
    class Breaks(Model):
        def forward(self, x):
            self.first(x)
            raise ValueError("broken on purpose")

    model = Breaks()
    before = hooks(model), modes(), torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(ValueError, match="on purpose"), watch(model, [Entropy()]) as seen:
        model(torch.randn(1, 3, 8))
    assert (hooks(model), modes(), torch.backends.mha.get_fastpath_enabled()) == before
    assert [layer.name for layer in seen.layers] == ["first"]
    with watch(model, [Entropy()]) as seen:  # an exception inside the watch does not end it
        for _ in range(2):
            with pytest.raises(ValueError, match="on purpose"):
                model(torch.randn(1, 3, 8))
    assert [layer.name for layer in seen.layers] == ["first", "first"]


@pytest.mark.parametrize("serves", [("model", "model"), ("model", "regard"), ("regard", "model")])
def test_nested_watches_see_the_same(serves):
    model, x = Model(), torch.randn(2, 5, 8)
    expected = model(x)
    with watch(model, [Rows()], serve=serves[0]) as outer:
        with watch(model.second, [Entropy()], serve=serves[1]) as inner:
            torch.testing.assert_close(model(x), expected, atol=1e-6, rtol=1e-5)
        model(x)
    assert [layer.name for layer in outer.layers] == ["first", "second", "first", "second"]
    assert [layer.name for layer in inner.layers] == [""]
    assert modes() == 0
    assert hooks(model) == 0


def test_two_models_do_not_mix():
    one, two, x = Model(), Model(), torch.randn(2, 5, 8)
    with watch(one, [Entropy()]) as left, watch(two, [Entropy()]) as right:
        one(x)
        two(x)
        two(x)
    assert len(left.layers) == 2
    assert len(right.layers) == 4


def test_a_model_inside_another():
    inner = Model()
    outer = nn.Sequential(inner, Block())
    with watch(inner, [Entropy()]) as seen:
        outer(torch.randn(1, 4, 8))
    assert [layer.name for layer in seen.layers] == ["first", "second"]


def test_modules_leaves_out_what_does_not_match():
    model = nn.ModuleDict({"a": nn.MultiheadAttention(8, 2), "b": nn.MultiheadAttention(8, 2)})
    x = torch.randn(3, 1, 8)
    with watch(model, [Entropy()], modules="^b$") as seen:
        model["a"](x, x, x)
        model["b"](x, x, x)
    assert [layer.name for layer in seen.layers] == ["b"]
    assert [(entry.name, entry.status) for entry in seen.coverage] == [("a", "not seen"), ("b", "seen")]
    assert "modules='^b$'" in seen.coverage[0].reason


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("zzz", "the first are 'tower.layers.0.attention', 'tower.layers.1.attention', 'tower.layers.2.attention'"),
        ("Attention", "did you mean 'attention'?"),
        (r"layers\.1\.Attention", "did you mean 'tower.layers.1.attention'"),
        (r"^h\.", "the first are 'tower.layers.0.attention'"),
    ],
)
def test_modules_that_match_nothing_are_refused_with_the_names_there_are(pattern, hint):
    layers = [nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2)}) for _ in range(4)]
    model = nn.ModuleDict({"tower": nn.ModuleDict({"layers": nn.ModuleList(layers)})})
    with pytest.raises(ConfigError) as caught:
        watch(model, [Entropy()], modules=pattern)
    problem = f"watch(): `modules` must match the name of a module, but {pattern!r} matches none."
    assert str(caught.value).startswith(f"{problem}\n  hint: ")
    assert hint in str(caught.value)


def test_modules_of_a_model_without_parts_say_so():
    with pytest.raises(ConfigError, match="the model has no modules in it"):
        watch(nn.Identity(), [Entropy()], modules="a")


def test_a_watch_is_entered_once():
    model, x = Model(), torch.randn(1, 4, 8)
    watching = watch(model, [Entropy()])
    before = hooks(model)
    line = r"watch\(\): a watch may be entered once; call regard\.watch again for another\."
    with watching as seen:
        with pytest.raises(ConfigError, match=line), watching:
            pass
        model(x)
    with pytest.raises(ConfigError, match=line), watching:
        pass
    assert [layer.name for layer in seen.layers] == ["first", "second"]
    assert hooks(model) == before


def test_a_module_that_is_never_called_is_reported():
    model = nn.ModuleDict({"a": nn.MultiheadAttention(8, 2), "b": nn.MultiheadAttention(8, 2)})
    x = torch.randn(3, 1, 8)
    with watch(model, [Entropy()]) as seen:
        model["a"](x, x, x)
    assert [(entry.name, entry.status, entry.reason) for entry in seen.coverage][1] == ("b", "not seen", "never called")


def test_calls_from_other_threads_are_seen_and_leave_nothing():
    model = nn.ModuleDict({"a": nn.MultiheadAttention(8, 2), "b": Model()})
    left = []

    def work(index):
        for _ in range(5):
            model["a"](*[torch.randn(3, 1, 8)] * 3) if index else model["b"](torch.randn(1, 4, 8))
        left.append(modes())

    with watch(model, [Entropy()]) as seen:
        workers = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert sorted(layer.name for layer in seen.layers) == ["a"] * 5 + ["b.first"] * 5 + ["b.second"] * 5
    assert all(entry.status == "seen" for entry in seen.coverage)
    assert left == [0, 0]


def test_an_interrupt_leaves_nothing_behind():
    class Interrupted(Model):
        def forward(self, x):
            self.first(x)
            raise KeyboardInterrupt

    model = Interrupted()
    with pytest.raises(KeyboardInterrupt), watch(model, [Entropy()]):
        model(torch.randn(1, 3, 8))
    assert (hooks(model), modes()) == (0, 0)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("serve", ["model", "regard"])
def test_checkpointing_is_counted_once(serve, reentrant):
    model, x = Model(), torch.randn(2, 5, 8, requires_grad=True)
    model(x).sum().backward()
    expected, x.grad = x.grad, None
    with watch(model, [Entropy()], serve=serve) as seen:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    assert [layer.name for layer in seen.layers] == ["first", "second"]
    torch.testing.assert_close(x.grad, expected, atol=1e-6, rtol=1e-5)


def test_a_heat_map_without_a_length_refuses_a_second_step():
    model, x, caches = Model(), torch.randn(1, 5, 8), ({}, {})
    with watch(model, [HeatMap(2, 2)]):
        model(x[:, :4], caches)
        with pytest.raises(ConfigError, match="length"):
            model(x[:, 4:], caches)


def test_inference_mode_and_half_precision():
    model = Model().to(torch.bfloat16)
    with torch.inference_mode(), watch(model, [Entropy()]) as seen:
        model(torch.randn(1, 4, 8, dtype=torch.bfloat16))
    assert seen["first"].entropy.dtype == torch.float32


@pytest.mark.usefixtures("unchecked")
def test_every_wrong_option_is_named_at_once():
    with (
        pytest.raises(ConfigError) as caught,
        watch("model", [Entropy(), Entropy(), 3], serve="torch", modules="(", eager_limit=-1),
    ):
        pass
    text = str(caught.value)
    assert "watch(): 6 problems" in text
    for part in ("`model` must be", "`probes` must be a sequence", "several named entropy", "`serve`", "`modules`"):
        assert part in text
    assert "`eager_limit` must be a number of keys, 0 or more, but is -1." in text


def test_a_copy_of_a_watched_model_is_not_watched_and_can_be_pickled():
    model, x = Model(), torch.randn(1, 5, 8)
    with watch(model, [Entropy()]) as seen:
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        for other in copies:
            assert torch.equal(other(x), Model.forward(other, x))
        assert seen.layers == []
        model(x)
    assert len(seen.layers) == 2
    for other in copies:
        with watch(other, [Entropy()]) as again:
            pickle.loads(pickle.dumps(other))(x)
            other(x)
        assert len(again.layers) == 2


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own, of its attention under vmap
@pytest.mark.parametrize("probe", [Entropy(), KeyMass()])
def test_under_vmap_nothing_is_kept_and_the_coverage_says_so(probe):
    model, x = Model(), torch.randn(3, 5, 8)
    plain = torch.stack([model(one[None]) for one in x])
    with watch(model, [probe]) as seen:
        mapped = torch.func.vmap(lambda one: model(one[None]))(x)
        torch.func.grad(lambda one: torch.func.vmap(lambda row: model(row[None]))(one).sum())(x)
    torch.testing.assert_close(mapped, plain)
    assert seen.layers == []
    assert {(entry.status, entry.reason) for entry in seen.coverage} == {
        ("not seen", "called under vmap, which lets no value out")
    }


def test_under_grad_values_are_plain_tensors():
    model, x = Model(), torch.randn(1, 5, 8)
    with watch(model, [Entropy()]) as seen:
        torch.func.grad(lambda one: model(one).sum())(x)
    with watch(model, [Entropy()]) as plain:
        model(x)
    for layer, same in zip(seen.layers, plain.layers, strict=True):
        assert torch.equal(torch.from_numpy(layer.entropy.numpy()), same.entropy)
