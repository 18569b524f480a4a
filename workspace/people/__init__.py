"""Read what people write: edits, answers, and files in the inbox."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from . import outputs, saving
    from .saving import being_saved
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "outputs": ("outputs",),
            "saving": ("being_saved", "saving"),
        },
    )

__all__ = ["being_saved", "outputs", "saving"]
