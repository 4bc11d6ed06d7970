"""Attention for PyTorch that runs at full speed and can be looked into."""

from __future__ import annotations

__version__ = "0.1.0"
