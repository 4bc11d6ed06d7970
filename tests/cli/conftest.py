"""Tiny models on disk, and a place to run commands in."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from regard.cli import _observe
from regard.cli.app import main
from regard.hf import loading
from regard.hf.loading import LoadedModel, quiet


class Place:
    """An empty working folder, and what a command printed there."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def run(self, *arguments: str) -> int:
        code = main(arguments)
        self.out, self.err = self._capsys.readouterr()
        return code

    def page(self, name: str = "attention.html") -> dict:
        """The data inside a page."""
        text = (self.folder / name).read_text(encoding="utf-8")
        (data,) = re.findall(r'<script type="application/json" id="regard-data">(.*?)</script>', text, flags=re.DOTALL)
        return json.loads(data)

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory) -> Iterator[None]:
    """What is converted during the tests does not touch the person's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _loaded_once() -> Iterator[None]:
    """The packaged models are read from disk once; a watch leaves a model as it was."""
    kept: dict[str, LoadedModel] = {}

    def load(name: str, *, generate: bool = False) -> LoadedModel:
        if name not in loading.ALIASES or generate or loading.find_spec is not importlib.util.find_spec:
            return loading.load(name, generate=generate)
        if name not in kept:
            kept[name] = loading.load(name)
        return kept[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_observe, "load", load)
        yield


@pytest.fixture
def place(tmp_path, monkeypatch, capsys) -> Place:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Place(folder, capsys)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte is a token; 256 ends a text and pads."""
    alphabet = {piece: number for number, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", pad_token="<end>")


def saved(folder: Path, model: PreTrainedModel) -> str:
    with quiet():
        model.save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def writer(tmp_path_factory) -> str:
    """A decoder with 64 positions."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=257, n_embd=16, n_layer=3, n_head=2, n_positions=64, bos_token_id=256, eos_token_id=None
    )
    return saved(tmp_path_factory.mktemp("models") / "writer", GPT2LMHeadModel(config))


@pytest.fixture(scope="session")
def translator(tmp_path_factory) -> str:
    """An encoder-decoder without a limit."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=257, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_decoder_layers=2, num_heads=2,
        decoder_start_token_id=256, pad_token_id=256, eos_token_id=None,
    )  # fmt: skip
    return saved(tmp_path_factory.mktemp("models") / "translator", T5ForConditionalGeneration(config))


@pytest.fixture(scope="session")
def bart(tmp_path_factory) -> str:
    """An encoder-decoder with 16 positions."""
    config = BartConfig(
        vocab_size=257, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=16,
        decoder_start_token_id=256, pad_token_id=256, bos_token_id=256, eos_token_id=256, forced_eos_token_id=None,
    )  # fmt: skip
    return saved(tmp_path_factory.mktemp("models") / "bart", BartForConditionalGeneration(config))
