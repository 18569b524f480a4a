"""The command `satchel`: one module a command (`cmd_*.py`), loaded when that command is called.

group       the list of commands, and what a mistake looks like
place       the workspace that a command is about
standing    where a run stands, for `status` and `ls`
survey      every file against its schema, for `check`
going       an agent's run from the first line to the last, for `run` and `resume`
"""

from .group import main

__all__ = ["main"]
