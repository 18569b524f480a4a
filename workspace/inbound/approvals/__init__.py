"""Questions to people: each is a file in approvals/, and the answer is typed into it."""

# mypy: implicit-reexport

from ...base.lazy import deferred

if not deferred(__name__):
    from .files import ApprovalFiles, answer_text, filled_in, nothing_has_come, outcome_text, read_form
    from .form import (
        Reply,
        blank,
        check_standing,
        fill_in,
        fit_arguments,
        fit_decision,
        form_problems,
        properties_of,
        read_reply,
        typed_arguments,
    )
    from .question import APPROVE, DENY, FOLDER, Question, find_question, open_questions, path_of, with_changes
