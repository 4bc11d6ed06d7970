"""From a text to a recording: load a model, tokenize, run it while it is watched."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from regard import records
from regard.cli._changes import Changes
from regard.cli._options import layers_of, probes_of
from regard.cli._progress import Progress
from regard.errors import ConfigError, message
from regard.hf.loading import CHINESE, DEFAULT, LoadedModel, chinese_is_installed, load, quiet
from regard.lens import Change
from regard.lens.usual import SHORT, usual_probes
from regard.text import Tokenized, continuation, tokenize

_TOO_MANY_UNKNOWN = 0.1
_CHARACTERS_NAMED = 20


@dataclass(frozen=True)
class Request:
    """What a person asked for.

    Args:
        text: The text.
        pair: A second text; for an encoder–decoder the text it should write.
        model: A model's name or folder; None for the default, which may give way to the multilingual one.
        generate: How many tokens the model writes.
        layers: ``0,3-5``; None for all.
        probes: ``entropy,topk=16``; None for the usual ones.
        changes: What attention is made to do instead.
    """

    text: str
    pair: str | None = None
    model: str | None = None
    generate: int = 0
    layers: str | None = None
    probes: str | None = None
    changes: Changes = Changes()  # noqa: RUF009 - frozen


def observe(request: Request, say: Callable[[str], None]) -> records.Recording:
    """Run the model on the text and keep what its attention did.

    Args:
        request: What was asked for.
        say: Called with every remark a person should read; the recording holds them too.

    Raises:
        regard.errors.Error: Something the person must change.
    """
    loaded, tokenized, notes = _prepare(request)
    for note in notes:
        say(note)
    loaded.check_length(len(tokenized.ids), planned=request.generate if loaded.kind == "decoder" else 0)
    number = getattr(_text_config(loaded.model), "num_hidden_layers", None)
    layers = layers_of(request.layers, number) if request.layers is not None else None
    if layers is not None:
        _check_layers(loaded, layers)
        notes.append(f"Only layers {request.layers} were watched.")
    run = _run(loaded, tokenized, request)
    probes = _probes(request, run)
    changes = request.changes.made("look", tokenized.sequence, two_stacks=loaded.kind == "encoder-decoder")
    notes.extend(request.changes.notes())
    recording = _watch(loaded, run, probes, modules=_modules_of(layers), changes=changes, notes=notes)
    return recording if layers is None else _left_out(recording, request.layers)


def _left_out(recording: records.Recording, layers: str | None) -> records.Recording:
    """Say of what was not asked for that it was not, in the words the person used."""
    coverage = tuple(
        dataclasses.replace(entry, reason=f"left out by --layers {layers}")
        if entry.reason.startswith("left out by modules=")
        else entry
        for entry in recording.coverage
    )
    return dataclasses.replace(recording, coverage=coverage)


def _probes(request: Request, run: _Run) -> Sequence[Any]:
    if request.probes is None:
        return usual_probes(run.longest, total=run.total)
    return probes_of(request.probes, total=run.total, longest=run.longest)


def _prepare(request: Request) -> tuple[LoadedModel, Tokenized, list[str]]:
    """The model and the tokens, and what a person should know; the multilingual model where the default is blind."""
    loaded = _load(DEFAULT if request.model is None else request.model, request)
    tokenized = tokenize(loaded.tokenizer, request.text, pair=_pair_to_read(loaded, request))
    notes = list(loaded.notes)
    if tokenized.replaced:
        notes.append(f"{tokenized.replaced} characters that are not valid Unicode are shown as U+FFFD.")
    if tokenized.unknown_share <= _TOO_MANY_UNKNOWN:
        return loaded, tokenized, notes
    notes.append(_unknown(loaded, tokenized))
    if request.model is not None or request.generate:
        return loaded, tokenized, notes
    if not chinese_is_installed():
        notes.append("A model that knows these characters: pip install 'regard[zh]', then --model e5-small.")
        return loaded, tokenized, notes
    other = _load(CHINESE, request)
    read = tokenize(other.tokenizer, request.text, pair=request.pair)
    if other.max_positions is not None and len(read.ids) > other.max_positions:
        notes.append(f"{other.name} knows more, but the text is {len(read.ids)} of its tokens: more than it can read.")
        return loaded, tokenized, notes
    notes.append(f"Therefore {other.name} read it instead; --model {DEFAULT} keeps {loaded.name}.")
    return other, read, [*notes, *other.notes]


def _load(name: str, request: Request) -> LoadedModel:
    with Progress(f"loading {name}"), quiet():
        return load(name, generate=bool(request.generate))


def _pair_to_read(loaded: LoadedModel, request: Request) -> str | None:
    """The second text where the model reads both; an encoder–decoder is given it as what it writes."""
    return request.pair if loaded.kind != "encoder-decoder" else None


def _unknown(loaded: LoadedModel, tokenized: Tokenized) -> str:
    characters = dict.fromkeys(character for piece in tokenized.unknown_pieces for character in piece)
    named = " ".join(islice(characters, _CHARACTERS_NAMED)) + (" …" if len(characters) > _CHARACTERS_NAMED else "")
    share = f"{tokenized.unknown_share:.0%}".replace("%", " %")
    return f"{share} of the tokens are unknown to {loaded.name}, which cannot tell them apart: {named}"


@dataclass(frozen=True)
class _Run:
    """One run of a model, before it happens.

    Args:
        longest: The longest sequence there will be.
        total: For generation, the length that maps must be ready for.
        steps: How many layer calls or tokens there will be, for the progress; None when that is not known.
        go: Runs the model; returns the sequences, first the one that is read.
    """

    longest: int
    total: int | None
    go: Callable[[Progress], tuple[records.Sequence, ...]]
    what: str
    steps: int | None


def _run(loaded: LoadedModel, tokenized: Tokenized, request: Request) -> _Run:
    if request.generate:
        if request.pair is not None and loaded.kind == "encoder-decoder":
            raise ConfigError(
                message("look", "--pair and --generate both say what the model writes; give one of them.")
            )
        return _generation(loaded, tokenized, request.generate)
    if loaded.kind == "encoder-decoder":
        return _encoder_decoder(loaded, tokenized, request.pair)
    inputs = tokenized.inputs()

    def go(progress: Progress) -> tuple[records.Sequence, ...]:
        with _layers_counted(loaded.model, progress):
            loaded.model(**inputs)
        return (tokenized.sequence,)

    return _Run(len(tokenized.ids), None, go, "layers", _number_of_layers(loaded.model))


def _generation(loaded: LoadedModel, tokenized: Tokenized, count: int) -> _Run:
    inputs = {name: value for name, value in tokenized.inputs().items() if name != "token_type_ids"}
    decoder = loaded.kind == "decoder"
    limit = loaded.max_positions
    if not decoder and limit is not None and count >= limit:
        problem = (
            f"{loaded.name} is to write {count} tokens after its first, but has only {limit} positions; write fewer."
        )
        raise ConfigError(message("look", problem))
    ending = _end_ids(loaded)

    def go(progress: Progress) -> tuple[records.Sequence, ...]:
        def step(ids: Tensor, scores: Tensor | None, **_: Any) -> Tensor:
            progress.step()
            return torch.zeros(ids.shape[0], dtype=torch.bool)

        options = {"max_new_tokens": count, "do_sample": False, "num_beams": 1, "stopping_criteria": [step]}
        with quiet():
            written = loaded.model.generate(**inputs, **options, pad_token_id=ending)[0].tolist()
        if not decoder:
            return tokenized.sequence, continuation(loaded.tokenizer, written)
        new = written[len(tokenized.ids) :]
        return (continuation(loaded.tokenizer, new, before=tokenized.sequence, before_ids=tokenized.ids),)

    total = len(tokenized.ids) + count if decoder else max(len(tokenized.ids), count + 1)
    return _Run(total, total, go, "tokens", count)


def _end_ids(loaded: LoadedModel) -> int | None:
    """What to pad with: models without a padding token are given their end token, as transformers does."""
    padding: int | None = loaded.tokenizer.pad_token_id
    end: int | None = loaded.tokenizer.eos_token_id
    return padding if padding is not None else end


def _encoder_decoder(loaded: LoadedModel, tokenized: Tokenized, target: str | None) -> _Run:
    """The encoder alone, or both with the second text as what was written."""
    inputs = {name: value for name, value in tokenized.inputs().items() if name != "token_type_ids"}
    steps = _number_of_layers(loaded.model)
    if target is None:

        def read(progress: Progress) -> tuple[records.Sequence, ...]:
            with _layers_counted(loaded.model, progress):
                loaded.model.get_encoder()(**inputs)
            return (tokenized.sequence,)

        return _Run(len(tokenized.ids), None, read, "layers", steps)

    written = tokenize(loaded.tokenizer, target, name="output")
    loaded.check_length(len(written.ids) + 1)
    start = loaded.model.config.decoder_start_token_id
    if start is None:
        raise ConfigError(message("look", f"{loaded.name} does not say which token its decoder begins with."))
    piece = loaded.tokenizer.convert_ids_to_tokens(start)
    begin = records.Token(piece, -1, -1, special=True)
    sequence = dataclasses.replace(written.sequence, tokens=(begin, *written.sequence.tokens))

    def both(progress: Progress) -> tuple[records.Sequence, ...]:
        with _layers_counted(loaded.model, progress):
            loaded.model(**inputs, decoder_input_ids=torch.tensor([[start, *written.ids]]))
        return tokenized.sequence, sequence

    return _Run(max(len(tokenized.ids), len(written.ids) + 1), None, both, "layers", steps)


def _watch(
    loaded: LoadedModel,
    run: _Run,
    probes: Sequence[Any],
    *,
    modules: str | None,
    changes: Sequence[Change],
    notes: list[str],
) -> records.Recording:
    from regard.lens import watch

    with (
        Progress(run.what, run.steps) as progress,
        torch.no_grad(),
        _written_out(loaded.model, run.longest),
        watch(loaded.model, probes, modules=modules, changes=changes) as seen,
    ):
        sequences = run.go(progress)
    recording: records.Recording = seen.recording(sequences=[sequences], model_name=loaded.name, notes=notes)
    architecture = type(loaded.model).__name__
    model = records.Model(loaded.name, weights_sha256=loaded.weights_sha256, architecture=architecture)
    return dataclasses.replace(recording, model=model)


@contextmanager
def _written_out(model: Any, longest: int) -> Iterator[None]:
    """Short texts are read with eager attention: what the next layer reads is then eager's too, bit for bit."""
    before = model.config._attn_implementation
    if longest > SHORT or before == "eager":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _check_layers(loaded: LoadedModel, layers: Sequence[int]) -> None:
    """Refuse layers no module is numbered by: a model need not say how many it has."""
    names = [name for name, _ in loaded.model.named_modules()]
    for layer in layers:
        pattern = _modules_of((layer,)) or ""
        if not any(re.search(pattern, name) for name in names):
            raise ConfigError(
                message("look", f"--layers names layer {layer}, but {loaded.name} has none of that number.")
            )


def _modules_of(layers: Sequence[int] | None) -> str | None:
    """A pattern for modules whose first number is one of these layers."""
    if layers is None:
        return None
    numbers = "|".join(map(str, layers))
    return rf"^(?:[^.\d][^.]*\.)*(?:{numbers})(?:\.|$)"


def _text_config(model: Any) -> Any:
    return model.config.get_text_config()


def _stacks(model: Any) -> list[nn.ModuleList]:
    """The lists of layers: as long as the configuration says."""
    config = model.config
    names = ("num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "n_layer")
    lengths = {getattr(config, name, None) for name in names}
    return [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) in lengths]


def _number_of_layers(model: Any) -> int | None:
    return sum(len(stack) for stack in _stacks(model)) or None


@contextmanager
def _layers_counted(model: Any, progress: Progress) -> Iterator[None]:
    """Tell the progress whenever a layer is done."""
    handles = [layer.register_forward_hook(lambda *_: progress.step()) for stack in _stacks(model) for layer in stack]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
