"""The statuses of a run in one table: what each means, how a process ends that leaves a run so, and which one follows.

`status` and `ls`, the page, the terminal view, exit codes, the documentation and the tests read it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

Status = Literal[
    "new", "running", "draining", "waiting", "paused", "sleeping", "failed", "completed", "cancelled", "held"
]
"""What the records of a run add up to."""

State = Literal[Status, "interrupted", "damaged", "moved", "backup"]
"""Where a run is, as far as its files tell. The last four are no status: the records of the run do not say so."""

Phase = Literal["new", "active", "stopped", "over", "held", "unknown"]
"""How far a run is: never started, run by a process, to be resumed, ended, without an agent, or not to be told from
these files."""

Tone = Literal["active", "ask", "hold", "rest", "good", "bad"]
"""What a state means for people, for its colour."""


class StateFacts(NamedTuple):
    meaning: str  # as the documentation has it
    phase: Phase
    tone: Tone
    exit_code: int | None = None  # of a process that leaves the run so
    command: str = ""  # what a person types so that the run goes on


STATES: dict[State, StateFacts] = {
    "waiting": StateFacts("waits for a person's answer", "stopped", "ask", 4, "resume"),
    "failed": StateFacts("its agent failed, or crashed too often. It can be resumed", "stopped", "bad", 1, "resume"),
    "damaged": StateFacts("its files can't be read", "unknown", "bad", command="check"),
    "interrupted": StateFacts("its process has died on its way", "stopped", "ask", command="resume"),
    "running": StateFacts("a process runs it. If there is none, it was killed", "active", "active"),
    "draining": StateFacts("a process brings it to a stop. If there is none, it was killed", "active", "active"),
    "paused": StateFacts("stopped until it is resumed; `pause.yaml` says why", "stopped", "hold", 3, "resume"),
    "sleeping": StateFacts("waits for a time", "stopped", "rest", 5),
    "new": StateFacts("never started", "new", "rest", command="run"),
    "completed": StateFacts("ended. New work opens it again", "over", "good", 0),
    "cancelled": StateFacts("ended for ever; it can't be resumed", "over", "rest", 7),
    "held": StateFacts("has no agent. A program appends to it and reads it", "held", "rest"),
    "moved": StateFacts("lives elsewhere", "unknown", "rest"),
    "backup": StateFacts("a copy that follows a run. `satchel restore` goes on from it", "unknown", "rest"),
}
"""Those that need a person first."""

ACTIVE = frozenset(state for state, facts in STATES.items() if facts.phase == "active")
OVER = frozenset(state for state, facts in STATES.items() if facts.phase == "over")

EXIT_CODES: dict[str, int] = {state: facts.exit_code for state, facts in STATES.items() if facts.exit_code is not None}
"""The exit code for each status that a process leaves. 2: it was refused. 6: another process has it. 8: the storage."""

Act = Literal[
    "started",
    "replayed",
    "asked to pause",
    "pause withdrawn",
    "paused",
    "waiting",
    "sleeping",
    "failed",
    "completed",
    "cancelled",
    "rewound",
    "step edited",
    "forked",
    "held",
]


class Transition(NamedTuple):
    to: Status
    of: tuple[Status, ...]  # elsewhere the act leaves the status as it is
    meaning: str


_STOPPED: tuple[Status, ...] = ("waiting", "paused", "sleeping", "failed", "completed")
_HELD: tuple[Status, ...] = ("running", "draining", "paused")
_NOT_CANCELLED: tuple[Status, ...] = ("new", "running", "draining", *_STOPPED)

TRANSITIONS: dict[Act, Transition] = {
    "started": Transition("running", _NOT_CANCELLED, "a start or a resume, also after a crash and with new work"),
    "replayed": Transition("paused", _STOPPED, "a replay of a fork, which only a person continues"),
    "asked to pause": Transition("draining", ("running",), "a request to pause, to cancel or to stop"),
    "pause withdrawn": Transition("running", ("draining",), "the request is withdrawn before the run has stopped"),
    "paused": Transition("paused", _NOT_CANCELLED, "a pause, also of a run that no process runs"),
    "waiting": Transition("waiting", (*_HELD, "completed"), "the process ends, and people are asked"),
    "sleeping": Transition("sleeping", _HELD, "the process ends until a time"),
    "failed": Transition("failed", _NOT_CANCELLED, "the agent raised an error, or crashed too often"),
    "completed": Transition("completed", _HELD, "the agent has returned"),
    "cancelled": Transition("cancelled", _NOT_CANCELLED, "a cancellation, once the agent has undone what it must"),
    "rewound": Transition("paused", _STOPPED, "a rewind or a redo, if no pause is in force"),
    "step edited": Transition("paused", ("completed",), "a person has corrected the result of a step"),
    "forked": Transition("paused", ("new", "running", "draining", "paused", "cancelled"), "a fork, which begins so"),
    "held": Transition("held", ("new", "held"), "a program opens it with `satchel.hold`"),
}
"""What happens to a run, and the status that follows. A process that holds a replay leaves it from `paused`."""


def tone(state: str) -> Tone:
    """The tone of a state, also of one that only another version knows."""
    facts = STATES.get(cast("State", state))
    return facts.tone if facts else "rest"


def after(act: Act, status: Status) -> Status:
    """The status of a run to which this has happened."""
    transition = TRANSITIONS[act]
    return transition.to if status in transition.of else status
