"""Each record of the journal in one line, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..base import counted, duration, one_line
from .records import (
    AgentBegun,
    AgentEnded,
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
    Resource,
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

_RESULT = 60  # characters of a result


class Told(NamedTuple):
    text: str
    colour: str | None


def tell(record: AnyRecord) -> Told:
    """What happened, and a colour for it. Not safe to print as it is: it holds the agent's own texts."""
    return WORDS[type(record)](record)


# The process and its pauses


def _opened(record: Opened) -> Told:
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
    return Told(
        f"opened      to {record.why}, {was}{loaded}{more}; process {record.pid}{by}, "
        f"satchel {record.satchel}, Python {record.python}",
        "cyan",
    )


def _closed(record: Closed) -> Told:
    why = f": {record.reason}" if record.reason else ""
    colours = {"failed": "red", "completed": "green"}
    point = f"; {record.checkpoint}" if record.checkpoint else ""
    text = f"closed      {record.status or 'as it was'}{why}{point}"
    return Told(text, colours.get(record.status or "", "cyan"))


def _fenced(record: Fenced) -> Told:
    return Told("fenced      earlier processes can't write any more", None)


def _configured(record: Configured) -> Told:
    versions = f"satchel {record.config.get('satchel')}, Python {record.config.get('python')}"
    return Told(f"configured  {versions}, agent {code_version(record.config)}", "cyan")


def _saved(record: Saved) -> Told:
    return Told(f"checkpoint  {record.file} ({record.why}, {record.bytes:,} bytes)", "cyan")


def _pruned(record: Pruned) -> Told:
    what = [f"records up to {record.up_to}"] if record.up_to else []
    what += [f"{counted(number, 'file')} in {folder}" for folder, number in sorted(record.files.items())]
    return Told(f"pruned      {', '.join(what)} by {record.by}", "magenta")


def _rewound(record: Rewound) -> Told:
    file = f", {record.file}" if record.file else ""
    effects = "; effects since then are done again" if record.forgets else ""
    says = f": {'; '.join(record.says)}" if record.says else ""
    return Told(f"rewound     to record {record.to:,}{file} by {record.by}{effects}{says}", "magenta")


def _resource(record: Resource) -> Told:
    how = {"ok": "", "failed": ", it failed", "timed_out": ", it took too long"}[record.outcome]
    why = f": {one_line(record.why, 120)}" if record.why else ""
    took = f" ({duration(record.ms / 1000)})" if record.ms >= 1000 else ""
    text = f"resource    {record.name} ({record.tier}) {record.event}{took}{how}{why}"
    return Told(text, "red" if record.outcome != "ok" else "cyan")


def _pause_requested(record: PauseRequested) -> Told:
    mode = {"drain": "", "emergency": ", at once", "cancel": ", for good"}[record.mode]
    until = f", until {record.until}" if record.until else ""
    then = "" if record.resume == "continue" else f"; then {record.resume}"
    return Told(f"stop        requested by {record.by}{mode}: {record.reason}{until}{then}", "yellow")


def _pause_late(record: PauseLate) -> Told:
    said = f"{record.reason}, by {record.by}: the run completed before it could stop"
    return Told(f"too late    {said}", "yellow")


def _forced(record: Forced) -> Told:
    still = f"; still running: {', '.join(record.under_way)}" if record.under_way else ""
    return Told(f"forced      the stop, after {duration(record.waited)}{still}", "red")


def _paused(record: Paused) -> Told:
    why = f": {_failure(record.error)}" if record.error else ""
    return Told(f"paused      {'by force' if record.forced else 'as requested'}{why}", "cyan")


def _resumed(record: Resumed) -> Told:
    words = f"; instructions: {one_line(record.instructions, 120)}" if record.instructions else ""
    said = "".join(f"; {each}" for each in record.says)
    return Told(f"resumed     by {record.by}, after {duration(record.seconds)}{words}{said}", "cyan")


# Calls


def _input(record: Input) -> Told:
    return Told(f"input       {'(large)' if record.blob else _json(bytes(record.arguments))}", None)


def _started(record: StepStarted) -> Told:
    return Told(f"begins      {_call(record)}", None)


def _completed(record: StepCompleted) -> Told:
    return Told(f"{'effect' if record.effect else 'step':<12}{_call(record)}{_result(record)}", None)


def _failed(record: StepFailed) -> Told:
    fate = ", it certainly did not happen" if record.not_done else ""
    fate += "; the agent has cancelled it" if record.cancelled else ""
    return Told(f"failed      {_call(record)} attempt {record.attempt}: {_failure(record.error)}{fate}", "red")


def _retried(record: StepRetry) -> Told:
    wait = duration(record.wait)
    return Told(f"retry       {_call(record)} in {wait}, attempt {record.attempt}: {_failure(record.error)}", "yellow")


def _progressed(record: StepProgress) -> Told:
    return Told(f"progress    {_call(record)}: {_json(bytes(record.value))}", None)


def _promoted(record: PartialPromoted) -> Told:
    damaged = ", damaged" if record.damaged else ", as a person has edited it" if record.edited else ""
    size = counted(record.characters, "character")
    return Told(f"recovered   {size} of {_call(record)}{damaged}, cut off by {record.cut_off_by}: {record.file}", None)


def _spent(record: Spent) -> Told:
    amounts = [counted(record.tokens, "token")] * bool(record.tokens) + [f"${record.usd:g}"] * bool(record.usd)
    return Told(f"spent       {', '.join(amounts) or 'nothing'}", None)


# Agents, their items and their data


def _agent_begun(record: AgentBegun) -> Told:
    return Told(f"agent       {record.agent} begins{record.call}", "yellow")


def _agent_ended(record: AgentEnded) -> Told:
    how = f"has failed: {_failure(record.error)}" if record.error else "has ended"
    return Told(f"agent       {record.agent} {how}", "red" if record.error else "green")


def _scope_begun(record: ScopeBegun) -> Told:
    return Told(f"begun       {_scope(record)}  {record.title}", "yellow")


def _scope_failed(record: ScopeFailed) -> Told:
    return Told(f"failed      {_scope(record)}: {_failure(record.error)}", "red")


def _uncalled(record: Uncalled) -> Told:
    said = _not_called(record.calls) if record.calls else "no effect is left that was not called again"
    return Told(f"left open   {_scope(record)}  {said}", "yellow")


def _committed(record: ScopeCommitted) -> Told:
    return Told(f"committed   {_scope(record)}{_commit(record)}", "green")


def _plan_changed(record: PlanChanged) -> Told:
    whose = f"of {record.agent} " if record.agent else ""
    return Told(f"plan        {whose}changed by {record.person or f'the {record.by}'}: {record.why}".rstrip(": "), None)


def _message(record: Message) -> Told:
    return Told(f"message     {_scope(record)}  {record.role}: {_json(bytes(record.content))}", None)


def _migrated(record: Migrated) -> Told:
    whose = f"of {record.agent} " if record.agent else ""
    changes = counted(len(record.patch), "change")
    return Told(f"migrated    the data {whose}to version {record.to}, {changes}", "magenta")


# What people say, and are asked


def _edited(record: Edited) -> Told:
    return Told(f"edited      {record.file} by {record.by}: {'; '.join(record.says)}", "magenta")


def _doubt(record: Doubt) -> Told:
    why = {
        "unknown_outcome": f"has it happened? {record.cause}",
        "unclaimed": "is it the same action as an earlier call?",
        "unreached": "it started and was not called again: has it happened?",
        "uncalled": "it was done and is not called any more: does it stay done?",
    }[record.why]
    return Told(f"asked {record.id:<6}{_call(record)}: {why}".rstrip(), "yellow")


def _resolved(record: Resolved) -> Told:
    said = {
        "done": "it has happened",
        "not_done": "it has not happened; the run may do it",
        "new": "it is a new action; the run may do it",
    }[record.outcome]
    return Told(f"answered    {record.id} by {record.by}: {said}{_note(record)}", "yellow")


def _approval_asked(record: ApprovalAsked) -> Told:
    with_these = f" with {_json(bytes(record.arguments))}" if len(record.arguments) else ""
    return Told(f"asked {record.id:<6}{_scope(record)}  {record.question}{with_these}", "yellow")


def _approval_answered(record: ApprovalAnswered) -> Told:
    said = _json(bytes(record.decision))
    said += f", changed to {_json(bytes(record.arguments))}" if len(record.arguments) else ""
    said += ", for later calls too" if record.standing else ""
    if record.how == "standing":
        return Told(f"answered    {record.id} as {record.by} has approved with {record.under}: {said}", "yellow")
    if record.how == "expired":
        return Told(f"answered    {record.id} by default, because it expired: {said}", "yellow")
    return Told(f"answered    {record.id} by {record.by}: {said}{_note(record)}", "yellow")


def _approval_revoked(record: ApprovalRevoked) -> Told:
    return Told(f"revoked     {record.id} by {record.by}: it counts for no later call", "yellow")


def _task_taken(record: TaskTaken) -> Told:
    if record.unopened:
        return Told(f"taken {record.id:<6}{record.file}, by an agent that did not open its inbox", "yellow")
    to = f"; it is forwarded to {record.handed_to}" if record.handed_to else f", into {_scope(record)}"
    return Told(f"taken {record.id:<6}{record.file}, a {record.kind}{to}", "yellow")


def _task_done(record: TaskDone) -> Told:
    to = f"forwarded to {record.moved_to}" if record.moved_to else ""
    return Told(f"done  {record.id:<6}{to}".rstrip(), "green")


WORDS: dict[type[AnyRecord], Callable[[Any], Told]] = {
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
    Resource: _resource,
    Saved: _saved,
    Pruned: _pruned,
    Rewound: _rewound,
    Configured: _configured,
    Input: _input,
    Migrated: _migrated,
}
"""The function that tells each type of record."""


# Parts of a line


def _failure(error: Failure) -> str:
    return f"{error.kind}: {one_line(error.message, 120)}"


def _note(record: Resolved | ApprovalAnswered) -> str:
    return f" ({record.note})" if record.note else ""


def _scope(record: ScopeBegun | ScopeFailed | ScopeCommitted | Uncalled | Message | OfCall | TaskTaken) -> str:
    key = record.scope
    said = f"^{key}" if key and not key.startswith("_") else key or "the agent"
    return f"{record.agent}:{said}" if record.agent else said


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
