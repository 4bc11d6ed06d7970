"""What was seen, as data: recordings, masks as programs, spans of text. Needs numpy only."""

from regard.records.bits import narrow as narrow
from regard.records.bits import widen as widen
from regard.records.explanation import Explanation as Explanation
from regard.records.mask_program import MaskProgram as MaskProgram
from regard.records.mask_program import Op as Op
from regard.records.mask_program import instructions as instructions
from regard.records.recording import Call as Call
from regard.records.recording import Coverage as Coverage
from regard.records.recording import Model as Model
from regard.records.recording import Recording as Recording
from regard.records.recording import Sequence as Sequence
from regard.records.recording import Token as Token
from regard.records.recording import attribute_of as attribute_of
from regard.records.spans import Group as Group
from regard.records.spans import TextOffsets as TextOffsets
from regard.records.spans import between_groups as between_groups
from regard.records.spans import group_pieces as group_pieces
from regard.records.spans import settle_markers as settle_markers
from regard.records.table import Table as Table

__all__ = [
    "Call",
    "Coverage",
    "Explanation",
    "Group",
    "MaskProgram",
    "Model",
    "Op",
    "Recording",
    "Sequence",
    "Table",
    "TextOffsets",
    "Token",
    "attribute_of",
    "between_groups",
    "group_pieces",
    "instructions",
    "narrow",
    "settle_markers",
    "widen",
]
