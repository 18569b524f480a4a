"""The outputs that the agents of one run write, and the reports on outputs that others have changed."""

from __future__ import annotations

from functools import partial

from ...workspace.journal.records import Output
from ...workspace.lifecycle import Workspace
from ...workspace.people import outputs
from ...workspace.state import AgentMoment


class Outputs:
    """For one opened workspace."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._made: dict[str, Output] = {}  # since it was opened, by path; they are on record once their scope commits

    def write(self, agent: AgentMoment, name: str, path: str, data: bytes) -> Output:
        """Write `outputs/NAME` of an agent to `path`. LeaseHeld if another process has the workspace."""
        workspace = self._workspace
        last = self._made.get(path) or agent.outputs.get(name)
        check_owner = partial(workspace.owned.check_has_it, workspace.store)
        output, kept = outputs.write(workspace.store, path, data, last, check_owner)
        self._made[path] = output
        if kept:
            workspace.report.add_late(
                "found",
                f"{path} was changed after the run wrote it; that version is kept as {kept}, and the file is restored",
            )
            workspace.save_report()
        return output
