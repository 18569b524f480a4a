"""The command `satchel`.

group      the list of commands, also of other distributions, and how errors are printed
commands/  the commands: a module for each family, loaded when one of it is called
options    what commands share: the workspace, a moment, options of storage and of a start, and what a start asks
output     JSON for programs; for people tables, progress bars, and records and values in lines that fit a terminal
summary    the state, the open questions and the outcome of a run; an active one in moving lines, or one for each item
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from .group import main
    from .options import complete_folders, given, storage_option, tell
