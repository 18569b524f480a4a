"""Brings a run from one place to another, of whichever kinds: all of it or nothing, and never two that both live."""

from .journey import Journey, copy, move
from .places import destination
from .transfer import Phase, Tell

__all__ = ["Journey", "Phase", "Tell", "copy", "destination", "move"]
