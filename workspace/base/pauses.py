"""The values that pause.yaml and the records of a pause share."""

from __future__ import annotations

from typing import Literal

Mode = Literal["drain", "emergency", "cancel"]
"""How a run stops: at a safe point; at once, by a kill; or at a safe point, for good."""

Resume = Literal["continue", "restart_step", "await_instructions"]
"""How it resumes: where it was; with the cut-off step from its beginning; or only with a person's instructions."""

SIGNAL = "signal"
"""The reason of a pause by a signal. It ends with the next start, so that a deployment resumes by itself."""
