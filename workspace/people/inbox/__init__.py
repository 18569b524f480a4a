"""Tasks and messages that people and programs put into inbox/, and their place afterwards."""

from typing import TYPE_CHECKING

from ...base.lazy import lazily

if TYPE_CHECKING:
    from . import archive, firing, forward, inbox
    from .archive import FOLDER
    from .inbox import Arrivals, Found, Offered
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "archive": ("FOLDER", "archive"),
            "firing": ("firing",),
            "forward": ("forward",),
            "inbox": ("Arrivals", "Found", "Offered", "inbox"),
        },
    )

__all__ = ["FOLDER", "Arrivals", "Found", "Offered", "archive", "firing", "forward", "inbox"]
