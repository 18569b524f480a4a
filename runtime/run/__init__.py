"""The `run` object that an agent gets."""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from .answer import Answer
    from .inbox import InboxTask, Offer
    from .plan import Item
    from .resources import Pool
    from .run import Run
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "answer": ("Answer",),
            "inbox": ("InboxTask", "Offer"),
            "plan": ("Item",),
            "resources": ("Pool",),
            "run": ("Run",),
        },
    )

__all__ = ["Answer", "InboxTask", "Item", "Offer", "Pool", "Run"]
