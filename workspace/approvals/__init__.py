"""Questions to people: each is a file in approvals/, and the answer is typed into it."""

from .desk import Desk, Found, answer_text, filled_in, nothing_has_come
from .fitting import fit
from .question import FOLDER, Question, find, open_questions, path_of
from .reading import Reply

__all__ = [
    "FOLDER",
    "Desk",
    "Found",
    "Question",
    "Reply",
    "answer_text",
    "filled_in",
    "find",
    "fit",
    "nothing_has_come",
    "open_questions",
    "path_of",
]
