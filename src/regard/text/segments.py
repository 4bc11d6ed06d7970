"""Words and sentences of a text, in English, Chinese and their like. Nothing is lost: joined, they are the text."""

from __future__ import annotations

from collections.abc import Iterator

import regex  # type: ignore[import-untyped]

# Read by Python's `regex` and by `tokenizers` alike; each alternative keeps one space before it.
_CONTRACTION = r"(?<=\p{L})['’](?:s|t|re|ve|m|ll|d|S|T|RE|VE|M|LL|D)(?!\p{L})"
_LETTERS = r" ?(?:(?!\p{Han})[\p{L}\p{M}])+"
_SIGNS = r" ?(?:(?!\p{Han})[^\s\p{L}\p{M}\p{N}])+"
_SPACES = r"[\r\n]+|[^\S\r\n]+(?!\S)|\s"
RUNS = rf"{_CONTRACTION}|{_LETTERS}|\p{{Han}}+|\p{{N}}|{_SIGNS}|{_SPACES}"
WORDS = rf"{_CONTRACTION}|{_LETTERS}|\p{{Han}}|\p{{N}}+|{_SIGNS}|{_SPACES}"

_RUN = regex.compile(RUNS)
_WORD = regex.compile(WORDS)
_END = regex.compile(
    r"""(?:(?P<wide>[。！？｡]+[。！？!?…]*)|(?P<narrow>[.!?…]+))(?P<closed>[”’"'»」』）)\]】》]*)(?P<space>\s*)|(?P<blank>\n\s*\n)"""
)
_LEADS_ON = regex.compile(
    r"""(?:^|[\s(\["'“‘])(?:Mr|Mrs|Ms|Messrs|Dr|Prof|St|Mt|Gen|Col|Maj|Capt|Lt|Sgt|Rev|Hon|Rep|Sen|Gov|vs|e\.g|i\.e|cf|viz"""
    r"|[Ff]igs?|[Ee]qs?|[Ss]ec|[Cc]h|[Vv]ol|[Pp]p|approx|ca|[A-Z])$"
)
_NUMBERED = regex.compile(r"(?:^|\s)[Nn]os?$")
_BETWEEN_HAN = regex.compile(r"\p{Han}{2}")
_LOOKED_BACK = 12


def split_words(text: str) -> tuple[str, ...]:
    """The words of a text: joined, they are the text.

    Runs of letters, runs of digits, runs of signs, each with the space before it; a Chinese character is a word of its
    own; English endings (``'t``, ``'s``) too. Other white space stands by itself.

    Args:
        text: Any text.

    Example:
        >>> from regard.text import split_words
        >>> split_words("I don't know 银行.")
        ('I', ' don', "'t", ' know', ' ', '银', '行', '.')
    """
    return tuple(_pieces(text))


def split_runs(text: str) -> list[str]:
    """The parts that a tokenizer of pieces never joins: as ``split_words``, but Chinese in runs and digits apart."""
    found: list[str] = _RUN.findall(text)
    return found


def sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text, each with the white space behind it: joined, they are the text.

    A sentence ends at ``。！？``, at ``. ! ? …`` before white space unless a small letter follows or an abbreviation
    leads on (``Dr.``, ``e.g.``, ``J.``), at ``. ! ?`` between Chinese characters, and at a blank line. Closing quotes
    and brackets belong to it.

    Args:
        text: Any text.

    Example:
        >>> from regard.text import sentences
        >>> sentences("Dr. Li paid 3.5 yuan. Why? “很好。”他说。")
        ('Dr. Li paid 3.5 yuan. ', 'Why? ', '“很好。”', '他说。')
    """
    found, start = list[str](), 0
    for end in _ends(text):
        found.append(text[start:end])
        start = end
    return (*found, text[start:]) if start < len(text) else tuple(found)


def _pieces(text: str) -> Iterator[str]:
    """What the pattern finds, and what it might leave out."""
    reached = 0
    for found in _WORD.finditer(text):
        if found.start() > reached:
            yield text[reached : found.start()]
        yield found.group()
        reached = found.end()
    if reached < len(text):
        yield text[reached:]


def _ends(text: str) -> Iterator[int]:
    for found in _END.finditer(text):
        narrow = found["narrow"]
        if narrow is None or _ends_narrow(text, found):
            yield found.end()


def _ends_narrow(text: str, found: regex.Match[str]) -> bool:
    """Whether a stop that has other uses ends a sentence."""
    following = text[found.end() : found.end() + 1]
    if not following:
        return True
    if not found["space"] and _BETWEEN_HAN.match(text[found.start() - 1 : found.start()] + following):
        return not found["narrow"].endswith("…")
    if not found["space"] and not (found["narrow"] != "." and found["closed"] and not following.isalnum()):
        return False
    if following.islower():
        return False
    before = text[max(0, found.start() - _LOOKED_BACK) : found.start()]
    if found["narrow"] == "." and not found["closed"]:
        return not _LEADS_ON.search(before) and not (following.isdigit() and _NUMBERED.search(before))
    return True
