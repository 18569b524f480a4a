"""What the tests of an agent need: calls without a run, a run without a workspace, and crashes at chosen moments."""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from .scratch import MemoryPartial, assert_errors_reach, call, fake_run, rehearse
    from .surviving import Survived, assert_survives, crash_after
