"""A trained model as one ONNX file, which runs without torch; what it computes is compared before it is kept."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import ConfigError, UnsupportedError, message, missing_extra, must_be
from regard.hf.loading import quiet
from regard.tasks.trained import Trained, load

_TOLERANCE = 1e-4
_LARGEST = 1 << 31  # bytes of an ONNX file; what is larger keeps its weights in a file beside it
_EXPORTED, _COMPARED = (3, 6), ((1, 9), (4, 5))  # batch and length
_TEXT, _WRITES = "text", "decoder_input_ids"
_GRAPHS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "AutoModelForSequenceClassification": ((_TEXT,), ("logits",)),
    "AutoModelForTokenClassification": ((_TEXT,), ("logits",)),
    "AutoModelForQuestionAnswering": ((_TEXT,), ("start_logits", "end_logits")),
    "AutoModelForCausalLM": (("input_ids", "attention_mask"), ("logits",)),
    "AutoModelForSeq2SeqLM": (("input_ids", "attention_mask", _WRITES), ("logits",)),
    "AutoModelForImageClassification": (("pixel_values",), ("logits",)),
    "AutoModelForImageTextToText": (("pixel_values", _WRITES), ("logits",)),
}


@dataclass(frozen=True)
class Exported:
    """An ONNX file.

    Args:
        path: Where it is.
        inputs: Names of its inputs: ids int64 [batch, length], ``pixel_values`` float32 [batch, channels, height,
            width]; any batch, any length up to the model's.
        outputs: Names of its outputs, float32.
        largest_difference: Between an output and that of the model, over inputs of other sizes than it was made with.
    """

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    largest_difference: float

    def __str__(self) -> str:
        names = f"inputs {', '.join(self.inputs)}; outputs {', '.join(self.outputs)}"
        return f"{self.path} ({names}; at most {self.largest_difference:.1e} from the model)"


def export(model: Trained | str | Path, out: str | Path) -> Exported:
    """Write a trained model as ONNX.

    A model that writes becomes the graph of one step over all tokens so far, without a cache.

    Args:
        model: A trained model, or its folder.
        out: The file, ending in ``.onnx``.

    Raises:
        ConfigError: ``out`` has another ending, or there is no such model.
        BackendUnavailableError: onnx, onnxscript or onnxruntime is not installed.
        UnsupportedError: the exporter cannot write the model, or what it wrote computes something else.

    Numerics:
        The file is run by onnxruntime on two batches of other sizes; a difference above 1e-4 of the largest output is
        refused, and nothing is left behind.
    """
    out = Path(out)
    if out.suffix != ".onnx":
        raise ConfigError(message("export", must_be("out", "a file ending in .onnx", str(out))))
    for module in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(module) is None:
            raise missing_extra(module, "export", "an export to ONNX")
    trained = model if isinstance(model, Trained) else load(model)
    graph = _Graph(trained)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        kept = Path(folder) / out.name
        _write(graph, kept)
        difference = _largest_difference(graph, kept)
        for file in Path(folder).iterdir():
            file.replace(out.parent / file.name)
    return Exported(out, graph.names, graph.outputs, difference)


class _Graph(nn.Module):
    """A model as a function from tensors to tensors."""

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        if trained.info.auto not in _GRAPHS:
            problem = must_be("model", f"one of {', '.join(_GRAPHS)}", trained.info.auto)
            raise UnsupportedError(message("export", problem))
        self.model = trained.model.eval()
        self._trained = trained
        self._takes, self.outputs = _GRAPHS[trained.info.auto]
        self.names = tuple(self.inputs(*_EXPORTED))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The outputs that count."""
        found = self.model(**dict(zip(self.names, tensors, strict=True)), **self._options())
        return tuple(found[name] for name in self.outputs)

    def _options(self) -> dict[str, Any]:
        writes = _WRITES in self._takes or self._trained.info.auto == "AutoModelForCausalLM"
        return {"use_cache": False} if writes else {}

    def inputs(self, batch: int, length: int) -> dict[str, Tensor]:
        """Inputs of some size, the last text one token shorter than the others."""
        trained, draw = self._trained, torch.Generator().manual_seed(0)
        config, found = trained.model.config, dict[str, Tensor]()
        names = self._takes
        if _TEXT in names:
            names = tuple(trained.tokenizer.model_input_names)
        for name in names:
            if name == "pixel_values":
                details = trained.info.details
                size, channels = details["image_size"], details["channels"]
                found[name] = torch.rand(batch, channels, size, size, generator=draw)
            elif name in ("input_ids", _WRITES):
                length = length + 1 if name == _WRITES else length  # of its own
                found[name] = torch.randint(config.get_text_config().vocab_size, (batch, length), generator=draw)
            else:
                found[name] = torch.full((batch, length), int(name == "attention_mask"))
                if batch > 1 and name == "attention_mask":
                    found[name][-1, -1] = 0
        return found


def _write(graph: _Graph, path: Path) -> None:
    given = graph.inputs(*_EXPORTED)
    batch, limit = torch.export.Dim("batch", min=1), graph._trained.info.max_tokens
    lengths = {name: torch.export.Dim(name, min=2, max=max(2, limit)) for name in ("length", "decoder_length") if limit}
    shapes = tuple(
        {0: batch} | ({1: lengths["decoder_length" if name == _WRITES else "length"]} if tensor.dim() == 2 else {})
        for name, tensor in given.items()
    )
    size = sum(weight.numel() * weight.element_size() for weight in graph.parameters())
    with quiet(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # torch's exporter uses parts of torch that are deprecated
        try:
            torch.onnx.export(
                graph,
                tuple(given.values()),
                path,
                input_names=list(given),
                output_names=list(graph.outputs),
                dynamo=True,
                dynamic_shapes=(shapes,),
                external_data=size >= _LARGEST,
                verbose=False,
            )
        except (RuntimeError, NotImplementedError, torch.onnx.errors.OnnxExporterError) as error:
            kind = type(graph.model).__name__
            first = str(error).strip().split("\n")[0]
            problem = f"a {kind} must be of operations that torch can write as ONNX, but is not ({first})."
            raise UnsupportedError(message("export", problem)) from error


@torch.no_grad()
def _largest_difference(graph: _Graph, path: Path) -> float:
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    largest = 0.0
    for size in _COMPARED:
        given = graph.inputs(*size)
        found = session.run(list(graph.outputs), {name: tensor.numpy() for name, tensor in given.items()})
        wanted = [output.numpy() for output in graph(*given.values())]
        largest = max(largest, *_differences(found, wanted))
    return largest


def _differences(found: Sequence[Any], wanted: Sequence[np.ndarray]) -> list[float]:
    differences = []
    for one, other in zip(found, wanted, strict=True):
        real = np.isfinite(other)  # padding has no score
        differences.append(float(np.abs(one[real] - other[real]).max(initial=0.0)))
        if differences[-1] > _TOLERANCE * max(1.0, float(np.abs(other[real]).max(initial=0.0))):
            problem = f"the exported graph must compute what the model does, but is {differences[-1]:.2e} away."
            raise UnsupportedError(message("export", problem))
    return differences
