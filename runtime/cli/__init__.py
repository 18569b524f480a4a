"""The command `satchel`.

group      the list of commands, also of other distributions, and how errors are printed
commands/  the commands: a module for each family, loaded when one of it is called
options    what commands share: the workspace, a moment, options of storage and of a start, and what a start asks
render/    the text and JSON that they print
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from .group import main
    from .options import complete_folders, given, storage_option, tell
