"""What may be removed of a run's past, and removing it: `keep:` in workspace.yaml.

    planning.py   what may go now
    old_files.py  the files of finished work beyond a rule
    size.py       how large it is
    pruning.py    removes it, in an order that a crash may cut off anywhere

Effects, questions, answers and edits stay for ever (journal/pruning.py), and whatever the run may still need.
"""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from .planning import Facts, Plan, plan, replaced
    from .pruning import Pruner, by_rule, carry_out
    from .size import Size, size_of
