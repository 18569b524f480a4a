"""`satchel completion`: the script with which a shell completes commands, folders and ids."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

_EXAMPLES = """\b
Examples:
  satchel completion bash > ~/.local/share/bash-completion/completions/satchel
  satchel completion zsh > ~/.zfunc/_satchel       with fpath+=~/.zfunc
  satchel completion fish > ~/.config/fish/completions/satchel.fish
"""


@click.command("completion", epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, workspaces, questions and templates.

    To try it in this shell: eval "$(satchel completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None and ctx.parent is not None
    completion = kind(ctx.parent.command, {}, "satchel", "_SATCHEL_COMPLETE")
    click.echo(ShellComplete.source(completion))  # click's own check starts bash, which may not be installed
