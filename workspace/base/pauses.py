"""The words that pause.yaml and the records of a pause share."""

from __future__ import annotations

from typing import Literal

Mode = Literal["drain", "emergency", "cancel"]
"""How a run is to stop: at a safe point; at once, by a kill; or at a safe point, and for good."""

Resume = Literal["continue", "restart_step", "await_instructions"]
"""How it is to go on: where it was; with the step that was cut off begun anew; or only with a person's words."""

SIGNAL = "signal"
"""The reason of a pause that a signal asked for. It is over with the next start: a deploy must go on by itself."""
