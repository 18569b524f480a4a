"""What a run works with besides its data: `run.prompt`, the text of a prompt and the version that the run is held to,
and `run.refer`, something outside that the agent needs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...workspace.base import AgentError
from ...workspace.journal.records import Configured
from ...workspace.lifecycle import Workspace
from ...workspace.state import prompts
from ..engine import Context, Session, current_call
from ..steps import Prompt, prompt


def read(session: Session, loop: asyncio.AbstractEventLoop, name: str, values: dict[str, Any]) -> Prompt:
    """May be called from any thread. `loop` is the one of the run."""
    workspace = session.context.workspace
    pinned = prompts.pinned(workspace.moment.config)
    version, folder = (pinned or {}).get(name, ""), workspace.definition.prompts_folder
    made = prompt.read(session.store, workspace.redactor, name, values, version, folder)
    if pinned is not None and name not in pinned:
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            _pin(workspace, name, made.version)
        else:  # of a step: what it returns is recorded later
            loop.call_soon_threadsafe(_pin, workspace, name, made.version)
    if (call := current_call.get()) is not None:
        call.prompts[name] = made.version
    return made


def _pin(workspace: Workspace, name: str, version: str) -> None:
    config = workspace.moment.config
    known = prompts.pinned(config)
    if known is not None and name not in known:
        workspace.journal.add(Configured(config={**config, prompts.PINNED: {**known, name: version}}))


def refer(context: Context, reference: str) -> None:
    """Record durably that the agent needs what is at `reference`. What it holds is recorded as soon as that is known.
    AgentError for a secret in it, which no later start could follow."""
    workspace = context.workspace
    for _, rule in workspace.redactor.found_in(reference):
        raise AgentError(
            "a reference has a secret", why=rule, remedy="let the environment have it, as fsspec's options"
        )
    if reference not in workspace.definition.references:
        workspace.journal.flush()  # what it works with may be about to be recorded
        config = workspace.moment.config
        known = config.get("references", [])
        if reference not in known:
            workspace.journal.add(Configured(config={**config, "references": [*known, reference]}))
            workspace.journal.flush()
    context.on_refer(reference)
