"""What was seen, as data: recordings, masks as programs, spans of text. Needs numpy only."""

from regard.records.bits import narrow as narrow
from regard.records.bits import widen as widen
from regard.records.mask_program import MaskProgram as MaskProgram
from regard.records.mask_program import Op as Op
from regard.records.mask_program import instructions as instructions
from regard.records.recording import Call as Call
from regard.records.recording import Coverage as Coverage
from regard.records.recording import Model as Model
from regard.records.recording import Recording as Recording
from regard.records.recording import Sequence as Sequence
from regard.records.recording import Token as Token

__all__ = [
    "Call",
    "Coverage",
    "MaskProgram",
    "Model",
    "Op",
    "Recording",
    "Sequence",
    "Token",
    "instructions",
    "narrow",
    "widen",
]
