"""Questions to people: each is a file in approvals/, and the answer is typed into it."""

from typing import TYPE_CHECKING

from ...base.lazy import lazily

if TYPE_CHECKING:
    from .files import Desk, Found, answer_text, filled_in, nothing_has_come, read_form
    from .parse import Reply, form_problems, read
    from .question import FOLDER, Question, find, open_questions, path_of
    from .render import blank, fill_in
    from .validate import fit
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "files": ("Desk", "Found", "answer_text", "filled_in", "nothing_has_come", "read_form"),
            "parse": ("Reply", "form_problems", "read"),
            "question": ("FOLDER", "Question", "find", "open_questions", "path_of"),
            "render": ("blank", "fill_in"),
            "validate": ("fit",),
        },
    )

__all__ = [
    "FOLDER",
    "Desk",
    "Found",
    "Question",
    "Reply",
    "answer_text",
    "blank",
    "fill_in",
    "filled_in",
    "find",
    "fit",
    "form_problems",
    "nothing_has_come",
    "open_questions",
    "path_of",
    "read",
    "read_form",
]
