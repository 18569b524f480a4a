"""People's edits of the readable files: found, merged, asked about, or refused."""

from typing import TYPE_CHECKING

from ...base.lazy import lazily

if TYPE_CHECKING:
    from . import apply, displaced, rejected
    from .detect import notice, untaken
    from .findings import CheckData, Edit, Noticed, Question, Refusal, Side
    from .rejected import not_settled, reject
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "apply": ("apply",),
            "detect": ("notice", "untaken"),
            "displaced": ("displaced",),
            "findings": ("CheckData", "Edit", "Noticed", "Question", "Refusal", "Side"),
            "rejected": ("not_settled", "reject", "rejected"),
        },
    )

__all__ = [
    "CheckData",
    "Edit",
    "Noticed",
    "Question",
    "Refusal",
    "Side",
    "apply",
    "displaced",
    "not_settled",
    "notice",
    "reject",
    "rejected",
    "untaken",
]
