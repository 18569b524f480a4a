"""Each record of the journal in words: what happened, and its tone.

The log, the page, the terminal view and MCP show these words, and so does the `why.md` of a checkpoint. That is why
they are here, below `runtime/present/`, which hands them on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..base import counted, duration, one_line, usd
from ..journal import (
    AgentBegun,
    AgentEnded,
    AnswersGrown,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRevoked,
    Closed,
    Configured,
    Doubt,
    Edited,
    Failure,
    Fenced,
    FileWritten,
    Forced,
    Input,
    Key,
    Message,
    Migrated,
    OfCall,
    Opened,
    PartialPromoted,
    Paused,
    PauseLate,
    PauseRequested,
    PlanChanged,
    Pruned,
    Resolved,
    ResourceChanged,
    Resumed,
    Rewound,
    Saved,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    Spent,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepRetry,
    StepStarted,
    TaskDone,
    TaskTaken,
    Uncalled,
    code_version,
)
from ..state import Tone

_RESULT = 60  # characters of a result

DOUBTS = {
    "unknown_outcome": "has it happened?",
    "unclaimed": "is it the same action as an earlier call?",
    "unreached": "it started and was not called again: has it happened?",
    "lost": "has the lost owner of the run done it after its backup?",
    "uncalled": "it was done and is not called any more: does it stay done?",
}
"""What each kind of doubt asks."""


class RecordWords(NamedTuple):
    """`act` names what happened, `text` says the rest. Not safe to print as it is: it has the agent's own texts."""

    act: str
    text: str
    tone: Tone | None = None

    @property
    def line(self) -> str:
        """Both in a line of the log."""
        return f"{self.act:<11} {self.text}".rstrip()


def describe_record(record: AnyRecord) -> RecordWords:
    return WORDS[type(record)](record)


# The process and its pauses


def _opened(record: Opened) -> RecordWords:
    was = {
        "new": "a new run",
        "clean": "it was closed",
        "crash": "after a crash",
        "files": "from its files, because the journal was missing",
    }[record.found]
    loaded = f", from {record.checkpoint}" if record.checkpoint else ""
    by = f" of {record.by}" if record.by else f" on {record.host}"
    more = f"; {record.arrived}" if record.arrived else ""
    if record.forked is not None:
        more += f"; a fork of {record.forked.run_id} at {record.forked.url} from record {record.forked.seq}"
    more += f"; taken over from {record.took_over}" if record.took_over else ""
    more += f"; the cut-off end of the journal is in {record.cut_off}/" if record.cut_off else ""
    return RecordWords(
        "opened",
        f"to {record.why}, {was}{loaded}{more}; process {record.pid}{by}, "
        f"satchel {record.satchel}, Python {record.python}",
        "active",
    )


def _closed(record: Closed) -> RecordWords:
    why = f": {record.reason}" if record.reason else ""
    point = f"; {record.checkpoint}" if record.checkpoint else ""
    tones: dict[str | None, Tone] = {"failed": "bad", "completed": "good"}
    text = f"{record.status or 'as it was'}{why}{point}"
    return RecordWords("closed", text, tones.get(record.status, "active"))


def _fenced(record: Fenced) -> RecordWords:
    return RecordWords("fenced", "earlier processes can't write any more")


def _configured(record: Configured) -> RecordWords:
    versions = f"satchel {record.config.get('satchel')}, Python {record.config.get('python')}"
    return RecordWords("configured", f"{versions}, agent {code_version(record.config)}", "active")


def _saved(record: Saved) -> RecordWords:
    return RecordWords("checkpoint", f"{record.file} ({record.why}, {record.bytes:,} bytes)", "active")


def _pruned(record: Pruned) -> RecordWords:
    what = [f"records up to {record.up_to}"] if record.up_to else []
    what += [f"{counted(number, 'file')} in {folder}" for folder, number in sorted(record.files.items())]
    return RecordWords("pruned", f"{', '.join(what)} by {record.by}", "hold")


def _rewound(record: Rewound) -> RecordWords:
    file = f", {record.file}" if record.file else ""
    effects = "; effects since then are done again" if record.forgets else ""
    says = f": {'; '.join(record.says)}" if record.says else ""
    return RecordWords("rewound", f"to record {record.to:,}{file} by {record.by}{effects}{says}", "hold")


def _resource(record: ResourceChanged) -> RecordWords:
    how = {"ok": "", "failed": ", it failed", "timed_out": ", it took too long"}[record.outcome]
    why = f": {one_line(record.why, 120)}" if record.why else ""
    took = f" ({duration(record.ms / 1000)})" if record.ms >= 1000 else ""
    text = f"{record.name} ({record.tier}) {record.event}{took}{how}{why}"
    return RecordWords("resource", text, "bad" if record.outcome != "ok" else "active")


def _pause_requested(record: PauseRequested) -> RecordWords:
    mode = {"drain": "", "emergency": ", at once", "cancel": ", for good"}[record.mode]
    until = f", until {record.until}" if record.until else ""
    then = "" if record.resume == "continue" else f"; then {record.resume}"
    return RecordWords("stop", f"requested by {record.by}{mode}: {record.reason}{until}{then}", "ask")


def _pause_late(record: PauseLate) -> RecordWords:
    said = f"{record.reason}, by {record.by}: the run completed before it could stop"
    return RecordWords("too late", said, "ask")


def _forced(record: Forced) -> RecordWords:
    still = f"; still running: {', '.join(record.under_way)}" if record.under_way else ""
    return RecordWords("forced", f"the stop, after {duration(record.waited)}{still}", "bad")


def _paused(record: Paused) -> RecordWords:
    why = f": {_failure(record.error)}" if record.error else ""
    return RecordWords("paused", f"{'by force' if record.forced else 'as requested'}{why}", "active")


def _resumed(record: Resumed) -> RecordWords:
    words = f"; instructions: {one_line(record.instructions, 120)}" if record.instructions else ""
    said = "".join(f"; {each}" for each in record.says)
    return RecordWords("resumed", f"by {record.by}, after {duration(record.seconds)}{words}{said}", "active")


# Calls


def _input(record: Input) -> RecordWords:
    return RecordWords("input", f"{'(large)' if record.blob else _json(bytes(record.arguments))}")


def _started(record: StepStarted) -> RecordWords:
    return RecordWords("begins", _call(record))


def _completed(record: StepCompleted) -> RecordWords:
    return RecordWords("effect" if record.effect else "step", f"{_call(record)}{_result(record)}")


def _failed(record: StepFailed) -> RecordWords:
    fate = ", it certainly did not happen" if record.not_done else ""
    fate += "; the agent has cancelled it" if record.cancelled else ""
    return RecordWords("failed", f"{_call(record)} attempt {record.attempt}: {_failure(record.error)}{fate}", "bad")


def _retried(record: StepRetry) -> RecordWords:
    wait = duration(record.wait)
    return RecordWords("retry", f"{_call(record)} in {wait}, attempt {record.attempt}: {_failure(record.error)}", "ask")


def _progressed(record: StepProgress) -> RecordWords:
    return RecordWords("progress", f"{_call(record)}: {_json(bytes(record.value))}")


def _promoted(record: PartialPromoted) -> RecordWords:
    damaged = ", damaged" if record.damaged else ", as a person has edited it" if record.edited else ""
    size = counted(record.characters, "character")
    return RecordWords(
        "recovered", f"{size} of {_call(record)}{damaged}, cut off by {record.cut_off_by}: {record.file}"
    )


def _spent(record: Spent) -> RecordWords:
    amounts = [counted(record.tokens, "token")] * bool(record.tokens) + [usd(record.usd)] * bool(record.usd)
    of = f" for {record.model}" if record.model else ""
    first = f", first token after {duration(record.first_ms / 1000)}" if record.first_ms else ""
    unused = f", for an answer that {record.unused} did not ask for again" if record.unused else ""
    return RecordWords("spent", f"{', '.join(amounts) or 'nothing'}{of}{first}{unused}")


def _answers_grown(record: AnswersGrown) -> RecordWords:
    text = f"{counted(record.answers, 'answer')} of models came further, so the crashes until now don't count"
    return RecordWords("keeper", text, "active")


# Agents, their items and their data


def _agent_begun(record: AgentBegun) -> RecordWords:
    return RecordWords("agent", f"{record.agent} begins{record.call}", "ask")


def _agent_ended(record: AgentEnded) -> RecordWords:
    how = f"has failed: {_failure(record.error)}" if record.error else "has ended"
    return RecordWords("agent", f"{record.agent} {how}", "bad" if record.error else "good")


def _scope_begun(record: ScopeBegun) -> RecordWords:
    return RecordWords("begun", f"{_scope(record)}  {record.title}", "ask")


def _scope_failed(record: ScopeFailed) -> RecordWords:
    return RecordWords("failed", f"{_scope(record)}: {_failure(record.error)}", "bad")


def _uncalled(record: Uncalled) -> RecordWords:
    said = _not_called(record.calls) if record.calls else "no effect is left that was not called again"
    return RecordWords("left open", f"{_scope(record)}  {said}", "ask")


def _committed(record: ScopeCommitted) -> RecordWords:
    if not record.scope and not record.patch:
        return RecordWords("appended", record.key)
    return RecordWords("committed", f"{_scope(record)}{_commit(record)}", "good")


def _plan_changed(record: PlanChanged) -> RecordWords:
    whose = f"of {record.agent} " if record.agent else ""
    return RecordWords("plan", f"{whose}changed by {record.person or f'the {record.by}'}: {record.why}".rstrip(": "))


def _message(record: Message) -> RecordWords:
    whose = f"logs/{record.log}" if record.log else f"{_scope(record)}  {record.role}"
    return RecordWords("row" if record.log else "message", f"{whose}: {_json(bytes(record.content))}")


def _file_written(record: FileWritten) -> RecordWords:
    if record.content is None:
        return RecordWords("removed", f"files/{record.path}")
    return RecordWords("file", f"files/{record.path}, {counted(record.content.bytes, 'byte')}")


def _migrated(record: Migrated) -> RecordWords:
    whose = f"of {record.agent} " if record.agent else ""
    changes = counted(len(record.patch), "change")
    return RecordWords("migrated", f"the data {whose}to version {record.to}, {changes}", "hold")


# What people say, and are asked


def _edited(record: Edited) -> RecordWords:
    return RecordWords("edited", f"{record.file} by {record.by}: {'; '.join(record.says)}", "hold")


def _doubt(record: Doubt) -> RecordWords:
    why = f"{DOUBTS[record.why]} {record.cause if record.why == 'unknown_outcome' else ''}"
    return RecordWords(f"asked {record.id}", f"{_call(record)}: {why}".rstrip(), "ask")


def _resolved(record: Resolved) -> RecordWords:
    said = {
        "done": "it has happened",
        "not_done": "it has not happened; the run may do it",
        "new": "it is a new action; the run may do it",
        "none_since": "it has not happened, nor anything else after the backup; the run may do it",
    }[record.outcome]
    return RecordWords("answered", f"{record.id} by {record.by}: {said}{_remark(record)}", "ask")


def _approval_asked(record: ApprovalAsked) -> RecordWords:
    with_these = f" with {_json(bytes(record.arguments))}" if len(record.arguments) else ""
    return RecordWords(f"asked {record.id}", f"{_scope(record)}  {record.question}{with_these}", "ask")


def _approval_answered(record: ApprovalAnswered) -> RecordWords:
    said = _json(bytes(record.decision))
    said += f", changed to {_json(bytes(record.arguments))}" if len(record.arguments) else ""
    said += ", for later calls too" if record.standing else ""
    if record.how == "standing":
        return RecordWords("answered", f"{record.id} as {record.by} has approved with {record.under}: {said}", "ask")
    if record.how == "expired":
        return RecordWords("answered", f"{record.id} by default, because it expired: {said}", "ask")
    return RecordWords("answered", f"{record.id} by {record.by}: {said}{_remark(record)}", "ask")


def _approval_revoked(record: ApprovalRevoked) -> RecordWords:
    return RecordWords("revoked", f"{record.id} by {record.by}: it counts for no later call", "ask")


def _task_taken(record: TaskTaken) -> RecordWords:
    if record.unopened:
        return RecordWords(f"taken {record.id}", f"{record.file}, by an agent that did not open its inbox", "ask")
    to = f"; it is forwarded to {record.handed_to}" if record.handed_to else f", into {_scope(record)}"
    return RecordWords(f"taken {record.id}", f"{record.file}, a {record.kind}{to}", "ask")


def _task_done(record: TaskDone) -> RecordWords:
    to = f"forwarded to {record.moved_to}" if record.moved_to else ""
    return RecordWords(f"done {record.id}", to, "good")


WORDS: dict[type[AnyRecord], Callable[[Any], RecordWords]] = {
    Opened: _opened,
    Fenced: _fenced,
    Closed: _closed,
    AgentBegun: _agent_begun,
    AgentEnded: _agent_ended,
    StepStarted: _started,
    StepCompleted: _completed,
    StepFailed: _failed,
    StepRetry: _retried,
    StepProgress: _progressed,
    PartialPromoted: _promoted,
    ScopeBegun: _scope_begun,
    ScopeFailed: _scope_failed,
    ScopeCommitted: _committed,
    Uncalled: _uncalled,
    PlanChanged: _plan_changed,
    Message: _message,
    FileWritten: _file_written,
    Doubt: _doubt,
    Resolved: _resolved,
    Edited: _edited,
    PauseRequested: _pause_requested,
    PauseLate: _pause_late,
    Forced: _forced,
    Paused: _paused,
    Resumed: _resumed,
    ApprovalAsked: _approval_asked,
    ApprovalAnswered: _approval_answered,
    ApprovalRevoked: _approval_revoked,
    TaskTaken: _task_taken,
    TaskDone: _task_done,
    Spent: _spent,
    AnswersGrown: _answers_grown,
    ResourceChanged: _resource,
    Saved: _saved,
    Pruned: _pruned,
    Rewound: _rewound,
    Configured: _configured,
    Input: _input,
    Migrated: _migrated,
}
"""The function that puts each type of record into words."""


# Parts of a line


def _failure(error: Failure) -> str:
    return f"{error.kind}: {one_line(error.message, 120)}"


def _remark(record: Resolved | ApprovalAnswered) -> str:
    return f" ({record.note})" if record.note else ""


def place_words(agent: str, scope: str) -> str:
    """An item or named scope as the log has it: `^3`, `left:^3`; `the agent` for what is in none."""
    said = f"^{scope}" if scope and not scope.startswith("_") else scope or "the agent"
    return f"{agent}:{said}" if agent else said


def _scope(record: ScopeBegun | ScopeFailed | ScopeCommitted | Uncalled | Message | OfCall | TaskTaken) -> str:
    return place_words(record.agent, record.scope)


def _call(record: OfCall) -> str:
    prompts = "".join(f" [prompt {name}@{version}]" for name, version in record.prompts.items())
    return f"{_scope(record)}  {record.step}{record.call}{prompts}"


def _result(record: StepCompleted) -> str:
    text = "(large)" if record.blob else _json(bytes(record.result))
    result = f" -> {text}" if text else ""
    took = f" ({duration(record.ms / 1000)})" if record.ms >= 1000 else ""
    how = "" if record.how == "returned" else f" [{record.how}]"
    model = f" [by {record.model}]" if record.model else ""
    return f"{result}{took}{how}{model}"


def _commit(record: ScopeCommitted) -> str:
    said = []
    if record.patch:
        said.append(f"{counted(len(record.patch), 'change')} of the state")
    said += [f"outputs/{name}" for name in record.outputs]
    if record.cancelled is not None:
        said.append(f"skipped: {record.cancelled}")
    if record.uncalled:
        said.append(_not_called(record.uncalled))
    return f"  {', '.join(said)}" if said else ""


def _not_called(calls: Iterable[Key]) -> str:
    return f"effects done before and not called again: {', '.join(key[0] for key in calls)}"


def _json(data: bytes) -> str:
    return one_line(data[: 4 * _RESULT].decode(errors="ignore"), _RESULT)
