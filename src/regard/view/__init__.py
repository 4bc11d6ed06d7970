"""Recording → page, and a summary for the terminal."""

from regard.view._look import look as look
from regard.view._page import page as page
from regard.view._page import write_page as write_page
from regard.view._summary import HeadSummary as HeadSummary
from regard.view._summary import LayerSummary as LayerSummary
from regard.view._summary import Pair as Pair
from regard.view._summary import Summary as Summary
from regard.view._summary import summary as summary

__all__ = ["HeadSummary", "LayerSummary", "Pair", "Summary", "look", "page", "summary", "write_page"]
