"""How fast a trained translator translates with five beams: ours, an uncached nn.Transformer, CTranslate2.

    python benchmarks/decoding_speed.py --data DIR --model DIR [--rounds 5] [--sentences 512]

The model of ``translation.py``'s zh-en (its folder is --model), in float32, sources in batches of 64 of like length.
The plain side recomputes the whole target at every step, as nn.Transformer has no cache; CTranslate2 gets the same
weights, converted. What each side says is scored, so that nobody is fast by saying something else.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from plain_transformers import PlainSeq2Seq
from runs import arguments
from setting import setting, write
from torch import Tensor, nn
from translation import SEED, chinese_english

from regard.bench.timing import Spread
from regard.hf.loading import quiet
from regard.models.beam_search import beam_search
from regard.nn import SinusoidalPositions
from regard.tasks import Trained, load
from regard.tasks.encoding import collate, encode
from regard.text import read_pairs
from regard.train.metrics import bleu

BATCH, BEAMS, LONGEST = 64, 5, 60
Translate = Callable[[list[list[int]]], list[list[int]]]


def ours(trained: Trained) -> Translate:
    """``generate``, with a cache."""
    model, tokenizer = trained.model, trained.tokenizer

    @torch.no_grad()
    def call(sources: list[list[int]]) -> list[list[int]]:
        inputs = collate([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in sources], tokenizer)
        with quiet():
            found = model.generate(**inputs, num_beams=BEAMS, do_sample=False, max_new_tokens=LONGEST)
        return [ids[1:] for ids in found.tolist()]

    return call


def plain(trained: Trained) -> Translate:
    """nn.Transformer, which reads the target anew for every token."""
    config = trained.model.config
    model = copy_of(trained.model.model).eval()

    @torch.no_grad()
    def call(sources: list[list[int]]) -> list[list[int]]:
        rows = collate([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in sources], trained.tokenizer)
        ids = rows["input_ids"]
        pad = ids == config.pad_id
        memory = model.encoder(model.text(ids), src_key_padding_mask=pad).repeat_interleave(BEAMS, 0)
        pad = pad.repeat_interleave(BEAMS, 0)

        def advance(tokens: Tensor, parents: Tensor, state: Any) -> tuple[Tensor, None, Tensor]:
            written = torch.cat([state[parents], tokens[:, None]], dim=1)
            causal = nn.Transformer.generate_square_subsequent_mask(written.shape[1], dtype=torch.bool)
            x = model.decoder(
                model.text(written), memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=pad
            )
            return nn.functional.linear(x[:, -1], model.text.table.weight), None, written

        found = beam_search(
            *(advance, ids.new_empty(len(pad), 0)),
            batch=len(sources),
            num_beams=BEAMS,
            max_new_tokens=LONGEST,
            bos_id=config.bos_id,
            eos_id=config.eos_id,
            pad_id=config.pad_id,
        )
        return [list(best[0].tokens) for best in found]

    return call


def copy_of(model: Any) -> Any:
    """The plain model with the weights of ours."""
    state = {name: weight.clone() for name, weight in model.state_dict().items()}
    copied = PlainSeq2Seq(model)  # which gives ours new weights: the plain model's
    model.load_state_dict(state)
    for stack, name in ((copied.encoder, "encoder"), (copied.decoder, "decoder")):
        for number, layer in enumerate(stack.layers):
            _fill_layer(layer, getattr(model, name).layers[number])
        stack.norm.load_state_dict(getattr(model, name).norm.state_dict())
    return copied


@torch.no_grad()
def _fill_layer(layer: Any, ours: Any) -> None:
    attentions = [(layer.self_attn, ours.self, layer.norm1, ours.self_norm)]
    if hasattr(layer, "multihead_attn"):
        attentions.append((layer.multihead_attn, ours.cross, layer.norm2, ours.cross_norm))
    for theirs, attention, norm, our_norm in attentions:
        parts = (attention.query, attention.key, attention.value)
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.out_proj.load_state_dict(attention.output.state_dict())
        norm.load_state_dict(our_norm.state_dict())
    layer.linear1.load_state_dict(ours.feed_forward.wide.state_dict())
    layer.linear2.load_state_dict(ours.feed_forward.narrow.state_dict())
    last = layer.norm3 if hasattr(layer, "multihead_attn") else layer.norm2
    last.load_state_dict(ours.feed_forward_norm.state_dict())


def ctranslate2(trained: Trained, folder: Path, threads: int) -> Translate:
    """The same weights in CTranslate2."""
    import ctranslate2 as engine

    config, tokens = trained.model.config, trained.tokenizer.convert_ids_to_tokens(range(len(trained.tokenizer)))
    spec = engine.specs.TransformerSpec.from_config(
        config.num_layers, config.num_heads, pre_norm=True, activation=engine.specs.Activation.GELU
    )
    _fill_spec(spec, trained.model.model)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    names = {"bos_token": config.bos_id, "eos_token": config.eos_id, "unk_token": trained.tokenizer.unk_token_id}
    for name, number in {**names, "decoder_start_token": config.bos_id}.items():
        setattr(spec.config, name, tokens[number])
    spec.config.add_source_eos = False
    (folder / "model").mkdir()
    spec.validate()
    spec.save(str(folder / "model"))
    translator = engine.Translator(
        str(folder / "model"), compute_type="float32", inter_threads=1, intra_threads=threads
    )
    ids = {token: number for number, token in enumerate(tokens)}

    def call(sources: list[list[int]]) -> list[list[int]]:
        found = translator.translate_batch(
            [[tokens[one] for one in source] for source in sources],
            beam_size=BEAMS,
            max_decoding_length=LONGEST,
            max_batch_size=BATCH,
        )
        return [[ids[token] for token in one.hypotheses[0]] for one in found]

    return call


def _fill_spec(spec: Any, model: Any) -> None:
    table, dim = _array(model.embedding.table.weight), model.config.embed_dim
    positions = SinusoidalPositions(dim)(torch.zeros(1, model.config.max_len, dim))[0]
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = table
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.scale_embeddings = True
        side.position_encodings.encodings = _array(positions)
        _fill_norm(side.layer_norm, stack.norm)
        for layer, our_layer in zip(side.layer, stack.layers, strict=True):
            own = our_layer.self
            _fill_linears(layer.self_attention, our_layer.self_norm, [[own.query, own.key, own.value], [own.output]])
            if side is spec.decoder:
                cross = our_layer.cross
                linears = [[cross.query], [cross.key, cross.value], [cross.output]]
                _fill_linears(layer.attention, our_layer.cross_norm, linears)
            _fill_norm(layer.ffn.layer_norm, our_layer.feed_forward_norm)
            _fill_linear(layer.ffn.linear_0, [our_layer.feed_forward.wide])
            _fill_linear(layer.ffn.linear_1, [our_layer.feed_forward.narrow])


def _fill_linears(spec: Any, norm: Any, linears: list[list[Any]]) -> None:
    _fill_norm(spec.layer_norm, norm)
    for place, parts in zip(spec.linear, linears, strict=True):
        _fill_linear(place, parts)


def _fill_linear(spec: Any, parts: list[Any]) -> None:
    spec.weight = _array(torch.cat([part.weight for part in parts]))
    spec.bias = _array(torch.cat([part.bias for part in parts]))


def _fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(values: Tensor) -> Any:
    return values.detach().float().contiguous().numpy()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--model", required=True, help="the folder of the trained translator")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=512)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    trained = load(given.model, task="translate")
    test = read_pairs(chinese_english(given.data, given.runs / "zh-en-data")["test"]).select(range(given.sentences))
    read = encode(trained.tokenizer, [pair.source for pair in test])
    order = sorted(range(len(test)), key=lambda index: len(read[index]["input_ids"]))
    batches = [[read[index]["input_ids"] for index in order[at : at + BATCH]] for at in range(0, len(order), BATCH)]
    wanted = [test[index].target for index in order]
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            "regard": ours(trained),
            "plain": plain(trained),
            "ctranslate2": ctranslate2(trained, Path(folder), given.threads),
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        found: dict[str, Any] = {}
        for number in range(given.rounds + 1):  # the first warms up, and is scored
            for name, call in sides.items():
                began = time.perf_counter()
                ids = [one for batch in batches for one in call(batch)]
                seconds[name] += [time.perf_counter() - began] * bool(number)
                if not number:
                    said = trained.tokenizer.batch_decode(ids, skip_special_tokens=True)
                    found[name] = {"said": said, "bleu": bleu(said, wanted).score}
    kept = found["regard"]["said"]
    for name, spent in seconds.items():
        said = found[name].pop("said")
        ratios = [other / one for other, one in zip(spent, seconds["regard"], strict=True)]
        found[name] |= {
            "same_words": sum(a == b for a, b in zip(said, kept, strict=True)) / len(kept),
            "sentences_per_second": asdict(Spread.of([len(test) / one for one in spent])),
            "regard_times_as_fast": asdict(Spread.of(ratios)),
        }
    where = setting(seed=SEED, threads=given.threads, rounds=given.rounds, sentences=len(test), beams=BEAMS)
    write("decoding_speed", {"setting": where, **found})


if __name__ == "__main__":
    main()
