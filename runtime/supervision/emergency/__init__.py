"""The emergency stop.

processes.py  identifies processes for certain, and kills them
stopping.py   writes the stop down, kills every process of a run, and checks that none is left
"""

from typing import TYPE_CHECKING

from ....workspace.base.lazy import lazily

if TYPE_CHECKING:
    from .stopping import Stopped, stop
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "stopping": ("Stopped", "stop"),
        },
    )

__all__ = ["Stopped", "stop"]
