"""What was seen, as data: recordings, masks as programs, spans of text. Needs numpy only."""

from regard.records.mask_program import MaskProgram as MaskProgram
from regard.records.mask_program import Op as Op
from regard.records.mask_program import instructions as instructions

__all__ = ["MaskProgram", "Op", "instructions"]
