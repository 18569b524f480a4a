"""For tests in which nobody is in the middle of saving a file, so that no one has to wait until it has settled."""

from __future__ import annotations

from satchel.workspace.views.stable_read import Waits

NOBODY_SAVES = Waits(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
