"""`satchel skill`: how a coding agent reads, corrects and continues a run."""

from __future__ import annotations

from importlib import resources

import click

_EXAMPLES = """\b
Examples:
  mkdir -p .claude/skills/satchel
  satchel skill > .claude/skills/satchel/SKILL.md
"""


@click.command("skill", epilog=_EXAMPLES)
def command() -> None:
    """Print an Agent Skill: a SKILL.md that tells a coding agent how to read, correct and continue runs.

    Put it into a folder called satchel where your coding agent looks for skills.
    """
    click.echo(resources.files(__package__.rpartition(".")[0]).joinpath("SKILL.md").read_text("utf-8"), nl=False)
