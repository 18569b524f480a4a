"""The command `satchel`.

group       the list of commands, and what a mistake looks like
commands/   one module a command, loaded when that command is called
options/    what commands share of their command lines
render/     what they print
standing    where a run stands, for `status` and `ls`
survey      every file against its schema, for `check`
going       an agent's run from the first line to the last, for `run` and `resume`
"""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from .group import main
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "group": ("main",),
        },
    )

__all__ = ["main"]
