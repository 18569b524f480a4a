"""The command `satchel`.

group       the list of commands, and how errors are printed
commands/   one module per command, loaded when that command is called
options/    options that commands share
render/     the text and JSON that they print
going       a run from its first line to its last, for `run` and `resume`
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
