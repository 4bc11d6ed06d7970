"""Attention as teaching code writes it, and modules made from its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, DTypeError, FormatError, ShapeError, message, must_be
from regard.nn.attention import Heads, MultiHeadAttention, as_mask, split
from regard.nn.initial import reset_linear
from regard.nn.inputs import check_sequence
from regard.nn.options import check_options, is_number
from regard.ops import Mask, attend, weights


class SelfAttention(nn.Module):
    """Multi-head attention with the names and choices of teaching code.

        head_h = softmax(scale · query_h · key_hᵀ) value_h,   output = concat(head_1, …) W^O + b

    Unlike ``MultiHeadAttention`` it can share one projection among all heads and scale by the whole width, as some
    teaching code does.

    Args:
        embed_size: Width of the inputs and of the output.
        heads: Number of heads; must divide ``embed_size``.
        shared_heads: Whether every head uses the same head_dim × head_dim projections, instead of its own.
        scale: "head" or None for head_dim^−½ (the paper's), "embed" for embed_size^−½, or a number.
        bias: Whether the projections of queries, keys and values add a bias; that of the output always does.

    Raises:
        ShapeError: if ``heads`` does not divide ``embed_size``.
        ConfigError: if a size is below 1, or ``scale`` is none of these.

    Example:
        >>> import torch
        >>> from regard.nn import SelfAttention
        >>> output, weights = SelfAttention(8, 2)(torch.randn(1, 5, 8), need_weights=True)
        >>> output.shape, weights.shape
        (torch.Size([1, 5, 8]), torch.Size([1, 2, 5, 5]))
    """

    def __init__(
        self,
        embed_size: int,
        heads: int,
        *,
        shared_heads: bool = False,
        scale: Literal["head", "embed"] | float | None = "head",
        bias: bool = False,
    ) -> None:
        super().__init__()
        check_options("SelfAttention", {"embed_size": embed_size, "heads": heads})
        if embed_size % heads:
            problem = must_be("embed_size", f"a multiple of heads ({heads})", embed_size)
            raise ShapeError(message("SelfAttention", problem))
        self.embed_size, self.num_heads, self.shared_heads = embed_size, heads, shared_heads
        self.head_dim = embed_size // heads
        self.scale = self._scale(scale)
        self.sinks = None
        width = self.head_dim if shared_heads else embed_size
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.output = nn.Linear(embed_size, embed_size)
        self.reset_parameters()

    def _scale(self, scale: object) -> float:
        if scale is None or scale == "head":
            return float(self.head_dim**-0.5)
        if scale == "embed":
            return float(self.embed_size**-0.5)
        if not is_number(scale):
            expected = '"head", "embed", a number or None'
            raise ConfigError(message("SelfAttention", must_be("scale", expected, repr(scale))))
        return float(scale)  # type: ignore[arg-type]

    def reset_parameters(self) -> None:
        """Draw every projection anew: Glorot-uniform weights, zero biases."""
        reset_linear(self.query, self.key, self.value, self.output)

    def forward(
        self,
        query: Float[Tensor, "batch q_len embed_size"],
        key: Float[Tensor, "batch kv_len embed_size"] | None = None,
        value: Float[Tensor, "batch kv_len embed_size"] | None = None,
        mask: Mask | Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend.

        Args:
            query: Batch first.
            key: ``query`` by default.
            value: ``key`` by default.
            mask: A mask, or a tensor in which only exact 0 (False) blocks.
            need_weights: Whether to return the weights too; the output stays the same.

        Returns:
            The output; with ``need_weights`` also the weights per head [batch, heads, q_len, kv_len] in float32.

        Raises:
            ShapeError, DTypeError: as ``MultiHeadAttention``.
        """
        heads = self.heads(query, key, value)
        allowed = as_mask("SelfAttention", mask)
        output = self.join(attend(heads.query, heads.key, heads.value, mask=allowed, scale=self.scale))
        return (output, weights(heads.query, heads.key, mask=allowed, scale=self.scale)) if need_weights else output

    def heads(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None) -> Heads:
        """Project and split into heads; with shared heads split first, then project each alike."""
        key = query if key is None else key
        value = key if value is None else value
        return Heads(
            self._projected("query", query, self.query),
            self._projected("key", key, self.key),
            self._projected("value", value, self.value),
            bias=None,
            q_start="end",
            kv_start=0,
        )

    def _projected(self, name: str, tensor: Tensor, linear: nn.Linear) -> Tensor:
        check_sequence("SelfAttention", name, tensor, self.embed_size, linear.weight)
        if self.shared_heads:
            shared: Tensor = linear(split(tensor, self.num_heads))
            return shared
        return split(linear(tensor), self.num_heads)

    def join(self, context: Float[Tensor, "batch heads q_len head_dim"]) -> Float[Tensor, "batch q_len embed_size"]:
        """Lay the heads side by side and project them."""
        output: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return output

    def extra_repr(self) -> str:
        """Show the choices in ``print(module)``."""
        return f"heads={self.num_heads}, shared_heads={self.shared_heads}, scale={self.scale:.4g}"


class ValuesKeysQueryAttention(SelfAttention):
    """``SelfAttention`` called in the order of the teaching code that it was loaded from: values, keys, query."""

    def forward(  # type: ignore[override]
        self,
        values: Float[Tensor, "batch kv_len embed_size"],
        keys: Float[Tensor, "batch kv_len embed_size"],
        query: Float[Tensor, "batch q_len embed_size"],
        mask: Mask | Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend; arguments as for ``SelfAttention``, in another order."""
        return super().forward(query, keys, values, mask, need_weights=need_weights)


_LAYOUTS = {
    "values, keys, queries, fc_out": {"value": "values", "key": "keys", "query": "queries", "output": "fc_out"},
    "W_V, W_K, W_Q, W_O": {"value": "w_v", "key": "w_k", "query": "w_q", "output": "w_o"},
}


def from_textbook(
    state_dict: Mapping[str, Tensor], *, num_heads: int | None = None, prefix: str = ""
) -> ValuesKeysQueryAttention | MultiHeadAttention:
    """Make a module of ours from the checkpoint of an attention written by hand, in one of two layouts.

    ``values, keys, queries, fc_out``: scores are scaled by embed_size^−½; where the projections are
    head_dim × head_dim all heads share them; called (values, keys, query, mask).
    ``W_Q, W_K, W_V, W_O`` (or ``w_q``, …): scores are scaled by head_dim^−½; called (query, key, value, mask).

    Args:
        state_dict: What ``module.state_dict()`` gives, of the attention alone or of a model around it.
        num_heads: Number of heads, where the shapes do not tell: only shared projections do.
        prefix: What the names of this attention begin with in the model, such as "encoder.layers.0.attention.".

    Returns:
        A module with copies of the parameters, in their dtype and on their device. Its outputs and weights are those
        of the original, with one difference: a query that may see no key gets zeros, where filling scores with a large
        negative number gives the mean of all values.

    Raises:
        FormatError: if the names fit neither layout.
        ShapeError, DTypeError: if the parts do not fit each other, or are no tensors.
        ConfigError: if ``num_heads`` is needed and missing, or contradicts the shapes.
    """
    if not isinstance(state_dict, Mapping) or not isinstance(prefix, str):
        problem = must_be("state_dict", "a mapping of names to tensors", f"a {type(state_dict).__name__}")
        if isinstance(state_dict, Mapping):
            problem = must_be("prefix", "a string", f"a {type(prefix).__name__}")
        hint = "module.state_dict() is one" if isinstance(state_dict, nn.Module) else None
        raise DTypeError(message("from_textbook", problem, hint=hint))
    found = {
        str(name).removeprefix(prefix): given for name, given in state_dict.items() if str(name).startswith(prefix)
    }
    named = {name.lower(): name for name in found}
    for title, names in _LAYOUTS.items():
        if all(f"{name}.weight" in named for name in names.values()):
            parts = {ours: _linear(found, named[f"{theirs}.weight"]) for ours, theirs in names.items()}
            _need_one_dtype(list(parts.values()))
            return _shared_layout(parts, num_heads) if "fc_out" in title else _separate_layout(parts, num_heads)
    layouts = " or ".join(_LAYOUTS)
    present = ", ".join(sorted(found)[:8]) or "nothing"
    problem = must_be("state_dict", f"of an attention with the parts {layouts}", f"of {present}")
    raise FormatError(message("from_textbook", problem, hint="prefix= says where in a model the attention is"))


class _Linear(NamedTuple):
    """The parameters of a map, and its name in the checkpoint."""

    name: str
    weight: Tensor
    bias: Tensor | None


_Module = TypeVar("_Module", bound=nn.Module)


def _linear(state: Mapping[str, object], weight_name: str) -> _Linear:
    """A map, whose weight has this name in the checkpoint."""
    name = weight_name[: -len(".weight")]
    names = {other.lower(): other for other in state}
    bias_name = names.get(f"{name}.bias".lower())
    bias = None if bias_name is None else _floats(bias_name, state[bias_name], dims=1)
    return _Linear(name, _floats(weight_name, state[weight_name], dims=2), bias)


def _floats(name: str, given: object, *, dims: int) -> Tensor:
    if not isinstance(given, Tensor) or not given.is_floating_point():
        found = given.dtype if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise DTypeError(message("from_textbook", must_be(name, "a tensor of floating dtype", found)))
    if given.dim() != dims:
        problem = must_be(name, f"of {dims} dimension(s)", f"of shape {tuple(given.shape)}")
        raise ShapeError(message("from_textbook", problem))
    return given


def _need_one_dtype(parts: Sequence[_Linear]) -> None:
    first = parts[0]
    for part in parts:
        for name, given in (("weight", part.weight), ("bias", part.bias)):
            if given is not None and given.dtype != first.weight.dtype:
                expected = f"of the dtype of {first.name}.weight ({first.weight.dtype})"
                problem = must_be(f"{part.name}.{name}", expected, f"of {given.dtype}")
                raise DTypeError(message("from_textbook", problem))


def _shared_layout(parts: dict[str, _Linear], num_heads: int | None) -> ValuesKeysQueryAttention:
    query, output = parts["query"], parts["output"]
    embed_size, width = output.weight.shape[0], query.weight.shape[0]
    if width == 0 or embed_size % width:
        expected = f"of a width that divides embed_size ({embed_size}, the rows of {output.name}.weight)"
        problem = must_be(f"{query.name}.weight", expected, f"of shape {tuple(query.weight.shape)}")
        raise ShapeError(message("from_textbook", problem))
    shared = width != embed_size
    heads = _need_heads(embed_size // width if shared else num_heads, num_heads)
    options = {"shared_heads": shared, "scale": "embed", "bias": query.bias is not None}
    module = ValuesKeysQueryAttention(embed_size, heads, **options)  # type: ignore[arg-type]
    return _filled(module, parts)


def _separate_layout(parts: dict[str, _Linear], num_heads: int | None) -> MultiHeadAttention:
    query = parts["query"]
    heads = _need_heads(num_heads, num_heads)
    return _filled(MultiHeadAttention(query.weight.shape[1], heads, bias=query.bias is not None), parts)


def _need_heads(implied: int | None, given: int | None) -> int:
    if implied is None:
        problem = must_be("num_heads", "given, as the shapes of this layout do not tell", None)
        raise ConfigError(message("from_textbook", problem))
    if given is not None and given != implied:
        raise ConfigError(message("from_textbook", must_be("num_heads", f"{implied} for these shapes, or None", given)))
    return implied


def _filled(module: _Module, parts: dict[str, _Linear]) -> _Module:
    for name, part in parts.items():
        linear = getattr(module, name)
        for kind, given, shape in (
            ("weight", part.weight, tuple(linear.weight.shape)),
            ("bias", part.bias, (linear.out_features,)),
        ):
            if given is not None and tuple(given.shape) != shape:
                problem = must_be(f"{part.name}.{kind}", f"of shape {shape}", f"of shape {tuple(given.shape)}")
                raise ShapeError(message("from_textbook", problem))
        linear.weight = nn.Parameter(part.weight.detach().clone())
        linear.bias = None if part.bias is None else nn.Parameter(part.bias.detach().clone())
    return module
