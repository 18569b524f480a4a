"""How long tests wait."""

from __future__ import annotations

from satchel.workspace.views.guarded_files import Waits

NOBODY_SAVES = Waits(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""For tests in which nobody is in the middle of saving a file, so that no one has to wait until it has settled."""

PATIENCE = 120.0
"""Seconds after which a test gives up what does not come. No machine is so slow, and it costs nothing while all is
well, so a test that must not wait for something makes that longer than this (`HANGS`)."""

HANGS = 10 * PATIENCE
"""Seconds of a wait that must not be waited for."""
