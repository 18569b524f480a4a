"""Questions to people: each is a file in approvals/, and the answer is typed into it."""

# mypy: implicit-reexport

from ...base.lazy import deferred

if not deferred(__name__):
    from .files import Desk, Found, answer_text, filled_in, nothing_has_come, outcome_text, read_form
    from .parse import Reply, form_problems, read, typed_arguments
    from .question import APPROVE, DENY, FOLDER, Question, find, open_questions, path_of, with_changes
    from .render import blank, fill_in
    from .validate import check_standing, fit, fit_arguments, properties_of
