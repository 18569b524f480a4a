"""The command `satchel`.

group       the list of commands, and how errors are printed
commands/   one module per command, loaded when that command is called
options/    options that commands share
render/     the text and JSON that they print
going       a run from its first line to its last, for `run` and `resume`
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from .arguments import complete_folders, given, storage_option, tell
    from .group import main
