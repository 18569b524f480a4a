"""A run's supervisor, and the process that it starts.

signals.py      signals as bytes that a loop waits for
pause_watch.py  what pause.yaml says, while signals are to be heard, and over a network
lifeline.py     the child's end of the pipe by which it learns that its supervisor is gone
child.py        starts one child and talks to it
deadline.py     when a child must have stopped, whatever has asked for that
supervisor.py   when a child is drained, killed, and started again
aftermath.py    what is put right when a child was killed
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
