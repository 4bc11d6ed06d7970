"""What a watch saw."""

from __future__ import annotations

from collections.abc import Sequence as Many
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, message, must_be
from regard.lens._coverage import coverage
from regard.lens._layers import Layer
from regard.lens._lengths import check_lengths
from regard.lens._recording import recording_of
from regard.lens._session import Session
from regard.lens._tokens import spelled
from regard.lens.kept import KeptCall
from regard.records import Coverage, Recording, Sequence


class Seen:
    """Everything one ``regard.watch`` saw; filled while the model runs, kept after the ``with`` ends.

    Example:
        >>> import torch, regard
        >>> model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> with regard.watch(model, probes=[regard.Entropy()]) as seen:
        ...     output = model(torch.randn(1, 5, 8))
        >>> seen["self_attn"].entropy.shape
        torch.Size([1, 2, 5])
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def layers(self) -> list[Layer]:
        """Every layer in the order of its first call."""
        return list(self._session.layers)

    def __getitem__(self, name: str | tuple[str, int]) -> Layer:
        """The layer of a module; ``seen[name, index]`` where a module has several.

        The end of a name will do where it is that of one module: ``seen["layers.2.self"]``.
        """
        wanted, index = name if isinstance(name, tuple) else (name, None)
        whole = {layer.name for layer in self._session.layers}
        ending = [known for known in whole if known.endswith(f".{wanted}")]
        wanted = ending[0] if wanted not in whole and len(ending) == 1 else wanted
        found = [layer for layer in self._session.layers if layer.name == wanted and index in (None, layer.index)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(
                message(
                    "seen[…]",
                    must_be(
                        "name", f"a module with one layer, or a pair: ({wanted!r}, 0 … {len(found) - 1})", repr(name)
                    ),
                    hint="a shared module, or a second run inside one watch, makes several layers",
                )
            )
        names = ", ".join(dict.fromkeys(layer.name for layer in self._session.layers)) or "none"
        raise KeyError(f"no layer {name!r}; seen were: {names}")

    @property
    def keeps(self) -> bool:
        """Whether the watch was told to keep queries, keys and values."""
        return self._session.keep

    @property
    def followed_beams(self) -> bool:
        """Whether a beam search moved the hypotheses, so that the batch rows of kept calls are those of its slots."""
        return self._session.beams

    @property
    def calls(self) -> list[KeptCall]:
        """Every kept call, in the order they were made; none without ``keep=True``."""
        return list(self._session.kept)

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """Per attention module: seen how, or not seen and why."""
        return coverage(self._session)

    def recording(
        self,
        *,
        tokens: Many[str] | Many[Many[str]] = (),
        sequences: Many[Many[Sequence]] = (),
        model_name: str | None = None,
        notes: Many[str] = (),
    ) -> Recording:
        """Everything seen, as data that can be saved, loaded without torch, and looked at.

        Args:
            tokens: The tokens as strings, for one text or for each batch item; a plain form of ``sequences``.
            sequences: Per batch item, the sequences its queries and keys come from: one for a model that reads a
                text, source and target for a translation. Without either, positions have no text.
            model_name: Shown on the page; the class of the model by default.
            notes: Remarks to keep with it.

        Returns:
            A recording that shares no memory with the model.

        Raises:
            ConfigError: Both ``tokens`` and ``sequences``, or not one token for each position that was seen (and one
                more for what a model wrote last); names both numbers.
        """
        if tokens and sequences:
            raise ConfigError(message("recording", "`tokens` and `sequences` exclude each other."))
        if tokens:
            sequences = [[spelled(item)] for item in _items(tokens)]
        check_lengths(self._session.layers, sequences, plain=bool(tokens))
        return recording_of(self._session, sequences=sequences, model_name=model_name, notes=notes)

    def save(self, path: str | Path, *, as_zip: bool | None = None, redact_text: bool = False, **options: Any) -> Path:
        """Write ``recording(**options)``.

        Args:
            path: By custom ``NAME.regard``: a folder.
            as_zip: One zip file instead; None means: if the path ends in ``.zip``.
            redact_text: Leave out everything that tells the text.
            **options: As for ``recording``.

        Returns:
            The path that was written.
        """
        return self.recording(**options).save(path, as_zip=as_zip, redact_text=redact_text)


def _items(tokens: Any) -> list[list[str]]:
    """The tokens of each batch item."""
    items = [tokens] if isinstance(tokens, str) or isinstance(tokens[0], str) else tokens
    listed: list[list[Any]] = [[item] if isinstance(item, int) else [*item] for item in items]
    wrong = {type(token).__name__ for item in listed for token in item if not isinstance(token, str)}
    if wrong:
        expected = "strings, for one text or a list for each batch item"
        hint = "tokenizer.convert_ids_to_tokens(ids) makes strings of numbers"
        raise ConfigError(
            message("recording", must_be("tokens", expected, f"holding {', '.join(sorted(wrong))}"), hint=hint)
        )
    return listed
