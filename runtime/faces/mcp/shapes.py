"""What the tools take and give. The schemas that clients get are made of these."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, field

from ...api import State

Name = Annotated[str, Meta(description="The run, as list_runs names it.", min_length=1)]
Reason = Annotated[str, Meta(description="Why, for the people who look at the run.", max_length=500)]
Json = Any


class ListArguments(Struct, forbid_unknown_fields=True):
    search: Annotated[str, Meta(description="Only runs with this text in their name or run_id.")] = ""
    state: Annotated[State | None, Meta(description="Only runs in this state.")] = None


class OneRun(Struct, forbid_unknown_fields=True):
    run: Name


class LogArguments(Struct, forbid_unknown_fields=True):
    run: Name
    last: Annotated[int, Meta(description="Only so many, the newest.", ge=1, le=500)] = 50
    item: Annotated[str | None, Meta(description="Only those of an item, such as ^3.")] = None
    type: Annotated[str | None, Meta(description="Only those of a type: step.completed, or step.* for several.")] = None
    agent: Annotated[str | None, Meta(description="Only those of a sub-agent, by its path.")] = None
    step: Annotated[str | None, Meta(description="Only those of the steps of this name.")] = None
    since: Annotated[str | None, Meta(description="Only those since a time, or of the last 2h.")] = None
    audit: Annotated[bool, Meta(description="Only checkpoints, openings and what people did.")] = False


class ShowArguments(Struct, forbid_unknown_fields=True):
    run: Name
    at: Annotated[
        int | str, Meta(description="The number of a record, `latest`, an item (^3: before it began), or a checkpoint.")
    ] = "latest"


class StartArguments(Struct, forbid_unknown_fields=True):
    run: Name
    input: Annotated[
        dict[str, Any] | None, Meta(description="The arguments of the agent, by parameter. Only for the first start.")
    ] = None


class AnswerArguments(Struct, forbid_unknown_fields=True):
    run: Name
    decision: Annotated[
        Any, Meta(description="One of the choices, a text, or the JSON value that answer_schema describes.")
    ] = UNSET
    arguments: Annotated[
        dict[str, Any] | None,
        Meta(description="Other arguments to approve, by name. Those that are left out stay as they were asked."),
    ] = None
    standing: Annotated[
        bool, Meta(description="Approve each later call of the question's tool, too. Only if your user has said so.")
    ] = False
    revoke: Annotated[
        bool,
        Meta(description="No answer: end the standing approval, one of `approved` in status, that `question` names."),
    ] = False
    question: Annotated[str, Meta(description="The id of the question, such as a1. Not needed if one is open.")] = ""
    note: Annotated[str, Meta(description="A remark for the record.", max_length=2000)] = ""
    result: Annotated[Any, Meta(description="Only for an effect in doubt that has happened: its result.")] = None


class SendArguments(Struct, forbid_unknown_fields=True):
    run: Name
    content: Annotated[Any, Meta(description="A text is a task in words, everything else is a task as data.")]
    message: Annotated[bool, Meta(description="A message to the agent, not a task. It must be a text.")] = False


class PauseArguments(Struct, forbid_unknown_fields=True):
    run: Name
    reason: Reason = "asked over MCP"
    until: Annotated[str | None, Meta(description="When it may continue by itself: 22:30, or 45m from now.")] = None


class EndArguments(Struct, forbid_unknown_fields=True):
    run: Name
    reason: Reason = "asked over MCP"


class ForkArguments(Struct, forbid_unknown_fields=True):
    run: Name
    to: Annotated[str, Meta(description="The name of the new run: a folder that is empty or missing.", min_length=1)]
    at: Annotated[int | str | None, Meta(description="From which moment: as for show. Left out: from now.")] = None


class AskedQuestion(Struct):
    """A question to a person, of the agent (a1) or about an effect whose outcome is unknown (d1)."""

    id: str
    text: str
    choices: list[str] = field(default_factory=list)
    answer_schema: Annotated[
        Json, Meta(description="The JSON Schema of the answer, if it is no text, or of the arguments.")
    ] = None
    arguments: Annotated[Json, Meta(description="Of the call. It may be approved with other ones.")] = None
    tool: Annotated[str, Meta(description="The name of the call. An approval may stand for its later calls.")] = ""
    context: Json = None
    asked_at: str = ""


class Approved(Struct):
    """An approval in force for each later call of a tool by an agent, given with the answer to `question`."""

    question: str
    tool: str
    agent: Annotated[str, Meta(description="Empty for the run's own agent.")]
    by: str
    at: str
    uses: int


class Items(Struct):
    """Of the plan: finished, and all."""

    done: int
    all: int


class RunSummary(Struct):
    """Where a run is, and what to do next."""

    run: str
    state: State
    next: Annotated[str, Meta(description="What to do next, in words.")]
    run_id: str = ""
    task_id: Annotated[str | None, Meta(description="The id of the run as a task; null before its first start.")] = None
    reason: Annotated[str, Meta(description="Why it has stopped.")] = ""
    items: Items | None = None
    item: Annotated[str, Meta(description="The item that has begun, or the next one.")] = ""
    running: Annotated[list[str], Meta(description="The calls that have run for some time, in words.")] = field(
        default_factory=list
    )
    questions: list[AskedQuestion] = field(default_factory=list)
    approved: list[Approved] = field(default_factory=list)
    error: Annotated[str, Meta(description="The error of the agent, or what is wrong with the workspace.")] = ""
    result: Annotated[Json, Meta(description="What the agent of a completed run has returned.")] = None
    result_omitted: Annotated[bool, Meta(description="The result is too long to be given here.")] = False
    outputs: Annotated[list[str], Meta(description="The URIs of the files that the run has made.")] = field(
        default_factory=list
    )
    outputs_omitted: int = 0
    inbox: Annotated[int, Meta(description="Files in the inbox that no agent has taken.")] = 0
    steps: int = 0
    tokens: int = 0
    usd: float = 0.0
    until: Annotated[str, Meta(description="When a sleep or a pause ends (UTC).")] = ""
    last_activity: Annotated[str, Meta(description="Of the last record (UTC).")] = ""
    notes: Annotated[list[str], Meta(description="What else people should know.")] = field(default_factory=list)


class RunLine(Struct):
    """A run in a list. status tells more."""

    run: str
    state: State
    needs_person: Annotated[bool, Meta(description="It asks, or rests until a person acts.")] = False
    run_id: str = ""
    task_id: str | None = None
    items: Items | None = None
    questions: Annotated[list[str], Meta(description="The ids of the open questions.")] = field(default_factory=list)
    last_activity: str = ""
    problem: str = ""


class RunList(Struct):
    runs: list[RunLine]
    omitted: Annotated[int, Meta(description="So many more runs match: search for less.")] = 0


class ShownRecord(Struct):
    """A record of the journal. Long texts in it are shortened."""

    seq: int
    at: str
    type: str
    who: str
    words: Annotated[str, Meta(description="The record as a line of the log.")]
    record: Json


class Log(Struct):
    records: list[ShownRecord]


class AgentFiles(Struct):
    """One agent of the run: the text of its todo.md, and the data of its state.json."""

    path: Annotated[str, Meta(description="Empty for the run's own agent.")]
    status: str
    plan: str
    data: Json
    open: Annotated[list[str], Meta(description="The items that have begun and not ended.")]


class ShownMoment(Struct):
    """The whole run right after a record."""

    run: str
    seq: int
    newest: int
    status: str
    record: ShownRecord | None
    agents: list[AgentFiles]
    problem: str = ""


class AnswerOutcome(Struct):
    """The outcome of an answer, or of a revocation."""

    question: str
    is_recorded: Annotated[
        bool,
        Meta(
            description="It is on record. Otherwise the process that runs it takes an answer at its next stop, and a "
            "revocation before its next call."
        ),
    ]
    was_before: Annotated[bool, Meta(description="The same was said earlier.")]
    open_questions: list[AskedQuestion]
    next: str


class SentFile(Struct):
    file: str
    kind: str


class SentFiles(Struct):
    sent: list[SentFile]
    next: str


class StopOutcome(Struct):
    """The outcome of asking a run to stop. `requested`: it stops at its next safe point."""

    run: str
    status: str
    said: str


class Killed(Struct):
    """The outcome of the emergency stop: stopped, idle, elsewhere, draining or failed."""

    run: str
    how: str
    said: str


class ForkOutcome(Struct):
    """The new run. It has not started."""

    run: str
    run_id: str
    seq: Annotated[int, Meta(description="The record of the other run that it begins at.")]
    files: int
    effects: Annotated[list[str], Meta(description="What the other run has done since; an equal call is not repeated.")]
    next: str
