"""A run's supervisor, and the process that it starts.

signals.py      signals as bytes that a loop waits for
pause_watch.py  watches pause.yaml while signals are handled, also over a network
lifeline.py     the child's end of a pipe that tells it that its supervisor is gone
child.py        starts one child and talks to it
deadline.py     when a child must have stopped, whatever has requested it
supervisor.py   drains, kills and restarts a child
aftermath.py    repairs the workspace after a kill
background.py   a supervisor that outlives the terminal
"""

from typing import TYPE_CHECKING

from ....workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import background, lifeline
    from .background import Background
    from .child import EXIT_CODES, FORCE_AFTER
    from .supervisor import Order, supervise
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "background": ("Background", "background"),
            "child": ("EXIT_CODES", "FORCE_AFTER"),
            "lifeline": ("lifeline",),
            "supervisor": ("Order", "supervise"),
        },
    )

__all__ = ["EXIT_CODES", "FORCE_AFTER", "Background", "Order", "background", "lifeline", "supervise"]
