"""People's edits of the readable files: found, merged, asked about, or refused."""

# mypy: implicit-reexport

from ...base.lazy import deferred

if not deferred(__name__):
    from . import apply, displaced, rejected
    from .detect import cut_off, editable, judge, notice, untaken
    from .findings import CheckData, Edit, Noticed, Question, Refusal, Side
    from .messages import CutOff
    from .rejected import is_known, not_settled, reject
    from .upwards import reach
