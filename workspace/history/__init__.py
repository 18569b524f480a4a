"""Read any moment of a run, and what led to it. Changes nothing, takes nothing, runs nothing."""

# mypy: implicit-reexport

from ..base.lazy import on_first_use

with on_first_use(__name__):
    from .blame import Node, Origin, data_origins
    from .calls import Call, Trouble, Work
    from .comparing import CallChange, Compared, DataChange, PlanChange, compared, data_changes, same_outcome
    from .messages import MessageChange, SaidBy, conversations, message_changes, message_origins, plain
    from .moments import Story, check_kept, moment_at, story
    from .plan_blame import Item, plan_origins
    from .positions import LATEST, no_such_item, seq_of
    from .reading import Records, gone, kept_from, read, records_of, steadily
    from .work import Worked, worked
