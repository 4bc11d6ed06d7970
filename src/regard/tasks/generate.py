"""A language model: it goes on with a text as the texts it learned from would."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from regard import records
from regard.hf import RegardDecoderConfig, RegardForCausalLM
from regard.hf.loading import max_positions_of
from regard.tasks.architectures import ARCHITECTURE, LANGUAGE_MODELS, TRANSFORMER, Architecture
from regard.tasks.encoding import collate, unknown_share
from regard.tasks.report import Example, Report
from regard.tasks.task import Preset, Task, check_no_options, check_texts, files_of
from regard.tasks.trained import Trained
from regard.tasks.watching import unknown_notes, watched
from regard.tasks.writing import generated
from regard.text import Examples, ReadOptions, continuation, read_texts, without_lone_surrogates
from regard.train.data import TrainData, WindowData
from regard.train.metrics import perplexity
from regard.train.objective import NextToken

_SHAPE = {"positions": "rotary"}
_WRITTEN = 200
_DRAWN = {"temperature": 0.8, "top_k": 40}
_TRAINING = {"weight_decay": 0.1, "schedule": "cosine", "average": 0}


@dataclass(frozen=True)
class Continuation:
    """What the model wrote.

    Args:
        prompt: What it was given.
        text: What it wrote after that.
    """

    prompt: str
    text: str

    def __str__(self) -> str:
        return self.prompt + self.text


class Generate(Task[str, Continuation]):
    """Text that goes on."""

    name: ClassVar[str] = "generate"
    summary: ClassVar[str] = "text that goes on as yours does"
    auto: ClassVar[str] = "AutoModelForCausalLM"
    choices: ClassVar[Mapping[str, Any]] = {ARCHITECTURE: TRANSFORMER}
    architectures: ClassVar[Mapping[str, Architecture]] = LANGUAGE_MODELS
    fewest: ClassVar[int] = 1
    presets: ClassVar[Mapping[str, Preset]] = {
        "tiny": Preset(
            {**_SHAPE, "embed_dim": 128, "num_heads": 4, "num_layers": 2, "ff_dim": 512, "dropout_p": 0.0},
            vocab_size=2000,
            training={**_TRAINING, "batch_tokens": 2048, "learning_rate": 2e-3, "warmup": 100, "epochs": 3},
            max_tokens=128,
            others={
                "lstm": {"embed_dim": 128, "hidden_dim": 244, "num_layers": 1},
                "cnn": {"embed_dim": 128, "kernel_size": 3, "num_layers": 6, "gated": False},
            },
        ),
        "small": Preset(
            {**_SHAPE, "embed_dim": 192, "num_heads": 6, "num_layers": 4, "ff_dim": 768, "dropout_p": 0.1},
            vocab_size=4000,
            training={**_TRAINING, "batch_tokens": 4096, "learning_rate": 2e-3, "warmup": 100, "epochs": 5},
            max_tokens=256,
            others={
                "lstm": {"embed_dim": 192, "hidden_dim": 348, "num_layers": 2},
                "cnn": {"embed_dim": 192, "kernel_size": 3, "num_layers": 7, "gated": True},
            },
        ),
        "base": Preset(
            {**_SHAPE, "embed_dim": 384, "num_heads": 6, "num_layers": 6, "ff_dim": 1536, "dropout_p": 0.2},
            vocab_size=8000,
            training={**_TRAINING, "batch_tokens": 8192, "learning_rate": 1e-3, "warmup": 200, "epochs": 10},
            max_tokens=512,
            others={
                "lstm": {"embed_dim": 384, "hidden_dim": 864, "num_layers": 2},
                "cnn": {"embed_dim": 384, "kernel_size": 4, "num_layers": 8, "gated": True},
            },
        ),
    }
    fine_tuning: ClassVar[Mapping[str, Any]] = {**Task.fine_tuning, "batch_tokens": 2048, "epochs": 3}

    def read(self, data: Any, options: ReadOptions) -> Examples[str]:
        """A text as it is, a column of a table, a field of JSON lines, or chats.

        Raises:
            ConfigError: several files.
        """
        return read_texts(files_of(data), options=options)

    def divide(self, examples: Examples[str], *, count: int, seed: int) -> tuple[Examples[str], Examples[str]]:
        """Of one text the end is held out, a tenth of it; of many, some."""
        if len(examples) > 1:
            return super().divide(examples, count=count, seed=seed)
        text = examples[0]
        cut = math.ceil(len(text) * 0.9)
        at = text.find("\n", cut) + 1
        if at in (0, len(text)):  # no line ends there, or only the last one
            at = cut
        return replace(examples, items=(text[:at],)), replace(examples, items=(text[at:],))

    def texts(self, examples: Sequence[str]) -> Iterable[str]:
        """All of them."""
        return iter(examples)

    def new_model(self, preset: Preset, tokenizer: Any, details: Mapping[str, Any]) -> Any:
        """A decoder with rotary positions, which have no longest text; or an LSTM, or causal convolutions."""
        chosen = details[ARCHITECTURE]
        if chosen != TRANSFORMER:
            return self.architectures[chosen].new(preset.settings_for(tokenizer, chosen))
        return RegardForCausalLM(RegardDecoderConfig(**preset.settings_for(tokenizer)))

    def data(self, trained: Trained, examples: Examples[str], *, seed: int = 0) -> tuple[TrainData, int]:
        """Windows of all texts one after another, each followed by an end where there is more than one."""
        end = trained.tokenizer.eos_token_id
        ends = [end] if len(examples) > 1 and end is not None else []
        ids = [token for text in examples for token in (*_ids(trained.tokenizer, text), *ends)]
        data = WindowData(
            np.array(ids, dtype=np.int32),
            context=trained.info.max_tokens,
            collate=lambda batch: collate(batch, trained.tokenizer),
            seed=seed,
        )
        return data, 0

    def objective(self, trained: Trained, *, label_smoothing: float) -> NextToken:
        """Cross-entropy of every next token."""
        return NextToken(label_smoothing)

    def predict(self, trained: Trained, inputs: Sequence[Any], **options: Any) -> list[Continuation]:
        """Go on with each prompt; an empty one begins a text.

        Args:
            trained: The model.
            inputs: The prompts; of long ones the model sees the end, one token less than it learned from at once.
            **options: ``max_new_tokens`` (200, or as many as it learned from at once), ``temperature`` (0.8; 0 takes
                the likeliest token), ``top_k`` (40), ``seed`` (0) and what else ``generate`` takes.

        Raises:
            ConfigError: a prompt is no text, or ``generate`` cannot use the options.
        """
        return [self._continue(trained, prompt, options)[0] for prompt in inputs]

    def evaluate(self, trained: Trained, examples: Examples[str], **options: Any) -> Report:
        """Perplexity, and bits per character, which do not depend on the tokenizer."""
        check_no_options(options, of=f"the evaluation of {self.name}")
        data, _ = self.data(trained, examples)
        nll, tokens, listed = 0.0, 0, []
        for index in range(len(data)):
            row = data.row(index, 0)
            loss = self._nll(trained, data.collate([row]))
            nll, tokens = nll + loss, tokens + len(row["labels"])
            text = trained.tokenizer.decode(row["input_ids"].tolist())
            listed.append(Example(text, "", "", -loss / len(row["labels"]), f"token {index * trained.info.max_tokens}"))
        first = trained.tokenizer.decode(data.row(0, 0)["input_ids"][:1].tolist()) if len(data) else ""  # not foretold
        found = perplexity(nll, tokens, characters=sum(map(len, examples)) - len(first))
        return Report(self.name, len(examples), found.as_dict(), tuple(str(found).split("\n")), tuple(listed))

    def observe(self, trained: Trained, given: Any, **options: Any) -> tuple[Continuation, records.Recording]:
        """Go on with one prompt, and see where every token looked.

        Raises:
            ConfigError: as for ``predict``, or the model has no attention.
        """
        found, prompt, ids, left_out = self._continue(trained, given, options)
        before = continuation(trained.tokenizer, prompt, name="text")
        sequence = continuation(trained.tokenizer, ids[len(prompt) :], before=before, before_ids=prompt)
        notes = unknown_notes(unknown_share(trained.tokenizer, [given]))
        if left_out:
            notes.append(f"The model went on from the last {len(prompt):,} tokens; {left_out:,} before are left out.")

        def run() -> None:
            trained.model(input_ids=torch.tensor([ids]), use_cache=False)

        return found, watched(trained, run, [(sequence,)], length=len(ids), notes=notes)

    def _continue(
        self, trained: Trained, prompt: str, options: Mapping[str, Any]
    ) -> tuple[Continuation, list[int], list[int], int]:
        """What is written; the ids the model went on from, and those with what it wrote; how many it did not see."""
        check_texts([prompt])
        end, pad = trained.tokenizer.eos_token_id, trained.tokenizer.pad_token_id
        ids = _ids(trained.tokenizer, prompt) or [end if end is not None else 0]
        room, limit = trained.info.max_tokens - 1, max_positions_of(trained.model.config)
        asked = options.get("max_new_tokens") or min(_WRITTEN, room)
        if limit is not None and isinstance(asked, int):
            room = max(1, min(room, limit - asked))  # what is written has positions, too
        kept = ids[-room:]
        usual = _DRAWN if options.get("do_sample", True) else {}
        chosen = {"pad_token_id": end if pad is None else pad, **usual, **options, "max_new_tokens": asked}
        inputs = {"input_ids": torch.tensor([kept]), "attention_mask": torch.ones(1, len(kept), dtype=torch.long)}
        written = generated(trained.model, inputs, chosen)[0].tolist()
        text = trained.tokenizer.decode(written[len(kept) :], skip_special_tokens=True)
        return Continuation(prompt, text), kept, written, len(ids) - len(kept)

    @torch.no_grad()
    def _nll(self, trained: Trained, batch: dict[str, torch.Tensor]) -> float:
        labels = batch.pop("labels")
        loss = self.objective(trained, label_smoothing=0.0).loss(trained.model(**batch), {"labels": labels})
        return float(loss)


def _ids(tokenizer: Any, text: str) -> list[int]:
    """A text's tokens, without any that would end it."""
    ids: list[int] = tokenizer(without_lone_surrogates(text)[0], add_special_tokens=False, verbose=False).input_ids
    return ids
