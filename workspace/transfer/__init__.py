"""Bring a run from one place to another, of any kind: all of it or nothing, and never two active copies."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from .copy_files import Phase, Tell
    from .ends import destination
    from .transfer import Journey, copy, move
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "copy_files": ("Phase", "Tell"),
            "ends": ("destination",),
            "transfer": ("Journey", "copy", "move"),
        },
    )

__all__ = ["Journey", "Phase", "Tell", "copy", "destination", "move"]
