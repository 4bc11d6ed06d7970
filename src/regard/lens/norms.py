"""Value-weighted attention: how much is moved from a key to a query, not only how large its weight is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.errors import ConfigError, message
from regard.lens.kept import KeptCall, KeptLayer, one_layer, places_of
from regard.lens.seen import Seen

_KEYS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class ValueNorms:
    """Lengths of the vectors that attention moves.

    Args:
        by_head: ‖A_h[i, j] · v_h[j] W_h‖ of each head by itself.
        together: ‖Σ_h A_h[i, j] · v_h[j] W_h‖, what all heads move from key j to query i.
    """

    by_head: Float64[Tensor, "batch heads rows keys"]
    together: Float64[Tensor, "batch rows keys"]


def value_norms(seen: Seen, name: str, rows: Sequence[int] = (-1,)) -> ValueNorms:
    """How long the vectors are that a layer moves from each key to some queries.

    A large weight on a key with a short value moves little: attention to a separator or to the first token often does.

    Args:
        seen: Of ``regard.watch(model, keep=True)``.
        name: The layer's module, or the end of its name.
        rows: Positions of queries; −1 is the last.

    Returns:
        Norms in the space of the layer's output, after the output projection and without its bias.

    Raises:
        ConfigError: Nothing was kept; no such layer; a position that was not seen; no output projection was met that
            reads the heads as they are (a gate between, or a module that computes its own softmax).

    Numerics:
        float64, from the weights and values as the model computed them.

    Cost:
        Memory for heads · embed_dim numbers for some hundred keys at a time.

    Source:
        Kobayashi et al. 2020, arXiv:2004.10102, equations 4 to 7.
    """
    layer = one_layer(seen, name, caller="value_norms")
    places = places_of(rows, layer.q_start, layer.q_end, caller="value_norms")
    heads, device = layer.num_heads, layer.device
    by_head = torch.zeros(layer.batch, heads, len(places), layer.kv_end, dtype=torch.float64, device=device)
    together = torch.zeros(layer.batch, len(places), layer.kv_end, dtype=torch.float64, device=device)
    for call in layer.calls:
        here = [number for number, place in enumerate(places) if call.q_start <= place < call.q_end]
        if not here:
            continue
        weights = call.rows([places[number] for number in here]).double()
        weights[:, list(call.silenced)] = 0
        for keys, moved in _moved(layer, call):
            part = weights[..., keys]
            gram = moved @ moved.mT  # [batch, keys, heads, heads]
            columns = slice(keys.start + call.call.kv_start, keys.stop + call.call.kv_start)
            by_head[:, :, here, columns] = part * gram.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt().mT[:, :, None]
            squared = torch.einsum("bhrk,bkhg,bgrk->brk", part, gram, part)
            together[:, here, columns] = squared.clamp(min=0).sqrt()
    return ValueNorms(by_head, together)


def _moved(layer: KeptLayer, call: KeptCall) -> Iterator[tuple[slice, Float64[Tensor, "batch keys heads embed"]]]:
    """What each head would move from each key at a weight of 1, some keys at a time."""
    if call.value is None or call.projection is None:
        problem = f"no output projection was met that reads the heads of {layer.name} as they are."
        raise ConfigError(message("value_norms", problem))
    width = call.value.shape[-1]
    by_head = call.projection.double().view(-1, layer.num_heads, width)
    group = layer.num_heads // call.value.shape[1]
    for start in range(0, call.value.shape[2], _KEYS_AT_ONCE):
        keys = slice(start, min(start + _KEYS_AT_ONCE, call.value.shape[2]))
        values = call.value[:, :, keys].double().repeat_interleave(group, 1)
        yield keys, torch.einsum("bhkd,mhd->bkhm", values, by_head)
