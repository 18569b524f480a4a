"""Do one item of a run again in a fork, with other prompts or settings, and compare its calls, its results and its cost
with the first time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...schemas import nearest
from ...workspace.base import SatchelError, UsageError, arguments, urls
from ...workspace.history import (
    Call,
    DataChange,
    StepHistory,
    Work,
    data_changes,
    moment_at,
    named_so,
    same_outcome,
    step_history,
    story,
)
from ...workspace.inspect import Remark, define, look
from ...workspace.journal import AgentBegun, Failure, Kept, Key, Line, Output, ScopeCommitted, Spent, gone
from ...workspace.secrets import redactor_of
from ...workspace.state import ABSENT, OVER, ROOT, Status, is_of_item, is_of_task, json_patch, prompts
from ...workspace.store import Store, open_store
from ...workspace.transfer import ForkResult, Tell
from ..agent import Agent
from ..execution import Outcome, Start, check_agent, check_watch, running
from ..launch import no_exit, templates
from ..live import Interruption, ReplayTarget, Watch
from ..status import OpenQuestion, Place, questions_of, use_options, value_of
from . import rewind


class CallPair(Struct, frozen=True):
    """The n-th call of one name in both, or the equal call of an effect. `kept`: the fork knows this effect, so the
    replay did not do it again; it has called it, or has stopped before that."""

    agent: str
    old: Call | None
    new: Call | None
    is_same: bool
    kept: bool


class Time:
    """`work`, one time that an item was done. `parts`: what the item has done itself, and what its sub-agents have done
    for it, also if it was undone later."""

    def __init__(self, found: StepHistory, lines: Sequence[Line], work: Work):
        self.work, self.lines, self.last = work, lines, work.ended or found.moment.seq
        self._spawned: dict[str, list[Line]] = {}
        for line in lines:
            if isinstance(line.record, AgentBegun) and "/" not in line.record.agent:
                self._spawned.setdefault(line.record.agent, []).append(line)
        self.parts = [work, *self._of_sub_agents(found)]

    def _of_sub_agents(self, found: StepHistory) -> Iterator[Work]:
        for each in found.work:
            if each.state == "undone" and each.scope == ROOT and self.work.state != "undone":
                continue  # a return has undone these calls, and not this time: it has made them again
            if each.agent and each.scope == ROOT:  # one for all times that the sub-agent was started
                known = (call for call in each.calls if call.seq or call.effect)
                yield replace(each, calls=[call for call in known if self._has_started(each.agent, call.seq)])
            elif each.agent and each.begun and self._has_started(each.agent, each.begun):
                yield each

    def has(self, agent: str, scope: str, seq: int) -> bool:
        """Whether record `seq`, of a scope, belongs to it."""
        return (
            self._has_started(agent, seq) if agent else scope == self.work.scope and self.work.begun <= seq <= self.last
        )

    def _has_started(self, agent: str, seq: int) -> bool:
        """Whether a sub-agent has worked for this item at record `seq`; at 0 of an effect that a fork knows, at all."""
        spawned = self._spawned.get(agent.partition("/")[0], ())
        if not seq:
            return any(self._is_ours(line) for line in spawned)
        newest = next((line for line in reversed(spawned) if line.seq <= seq), None)
        return newest is not None and self._is_ours(newest) and seq <= self.last

    def _is_ours(self, line: Line) -> bool:
        assert isinstance(line.record, AgentBegun)
        return line.record.scope == self.work.scope and self.work.begun <= line.seq <= self.last

    @property
    def calls(self) -> list[Call]:
        return [call for part in self.parts for call in part.calls]

    @property
    def by_step(self) -> dict[_Step, list[_PartCall]]:
        """In the order in which their scopes began."""
        found: dict[_Step, list[_PartCall]] = {}
        for part in self.parts:
            for call in part.calls:
                found.setdefault(_step(part, call), []).append(_PartCall(part, call))
        return found


class _PartCall(NamedTuple):
    """A call, and the part that it is in."""

    part: Work
    call: Call

    @property
    def is_known(self) -> bool:
        """An effect that a fork has brought along."""
        return self.call.effect and not self.call.seq

    @property
    def is_of_this_time(self) -> bool:
        """False for an effect of an earlier time; whether it was called again is not on record."""
        return not self.call.effect or self.call.seq >= self.part.begun


_Step = tuple[str, str, str]
"""An agent, one of its items by its text, empty for the item itself, and the name of a step. In a fork, the item of a
sub-agent may have another id, because the effects of the first one belong to that."""


def _step(part: Work, call: Call) -> _Step:
    title = part.scope if part.scope.startswith("_") else part.title
    return part.agent, title if part.agent else "", call.step


def pairs(
    old: Time, new: Time | None, called: Collection[tuple[str, str, Key]], *, is_finished: bool
) -> Iterator[CallPair]:
    """In the order of the first time. What only one of them has done is paired with nothing. `called`: the known
    effects that the replay has called."""
    first, second = old.by_step, new.by_step if new else {}
    for step in dict.fromkeys((*first, *second)):
        made = second.get(step, ())
        known = {each.call.key: each for each in made if each.is_known}
        is_called = {key: (each.part.agent, each.part.scope, key) in called for key, each in known.items()}
        others = []
        for each in first.get(step, ()):
            again = known.pop(each.call.key, None) if each.call.effect else None
            if again is None:
                others.append(each.call)
            elif is_called[each.call.key]:
                yield CallPair(step[0], each.call, again.call, same_outcome(each.call, again.call), True)
            else:
                kept = not is_finished or not each.is_of_this_time
                yield CallPair(step[0], each.call, None, kept, kept)
        for one, other in zip_longest(others, (each.call for each in made if not each.is_known)):
            is_same = one is not None and other is not None and same_outcome(one, other)
            yield CallPair(step[0], one, other, is_same, False)
        for key, each in known.items():
            if is_called[key]:
                yield CallPair(step[0], None, each.call, False, True)


End = Literal["done", "effect", "missed", "failed", "paused", "waiting", "sleeping"]


class Turn(Struct, frozen=True):
    """One of the two times that the item was done. `state` as of `Work` then, empty if it has not begun; `result` as a
    JSON value, None for one that is no longer kept; `ms` of its steps; `tokens` and `usd` as the agent has reported
    them."""

    state: str
    result: Any
    calls: int
    ms: int
    tokens: int
    usd: float
    outputs: dict[str, Output]


class ReplayResult(Struct, frozen=True):
    """A replay of `item`, called `title`, in the run `run_id` at `to`, from record `seq` of the run at `url`.

    `settings`, redacted, and `prompts`, with their versions, are those that were set. `end`: "done"; "effect", it
    has come to an effect that is not on record; "missed", the agent did not come to the item; or the status of the
    run. `reason` says more. `data`: the values of state.json in which the commits differ; None if one has not
    committed. `questions` and `failure` are of the new run, `report` is that of its opening.
    """

    url: str
    to: str
    run_id: str
    item: str
    title: str
    seq: int
    settings: dict[str, Any]
    prompts: dict[str, str]
    end: End
    status: Status
    reason: str
    first: Turn
    second: Turn
    calls: list[CallPair]
    data: list[DataChange] | None
    questions: list[OpenQuestion]
    failure: Failure | None
    report: tuple[Remark, ...]

    @property
    def is_same(self) -> bool:
        """Whether both times have finished the item, and came to the same: state, result, outputs and outcomes of
        steps. Costs don't count."""
        sides = [
            (turn.state, turn.result, {name: each.sha256 for name, each in turn.outputs.items()})
            for turn in (self.first, self.second)
        ]
        return sides[0] == sides[1] and self.data == [] and all(pair.is_same for pair in self.calls)


class _Side(NamedTuple):
    """One time, with the values that its commit has changed, each with that before."""

    turn: Turn
    changes: list[DataChange] | None


def compared(
    old: tuple[Place, Time],
    new: tuple[Place, Time | None],
    only: ReplayTarget,
    outcome: Outcome,
    *,
    settings: dict[str, Any],
    prompts: dict[str, str],
    seq: int,
) -> ReplayResult:
    """The result. `only` and `outcome` are those of the run that has done it again."""
    place, there, work = old[0], new[0], old[1].work
    moment = look(there.store).moment
    first, second = _side(*old), _side(*new)
    end = only.end or ("missed" if outcome.status in OVER else outcome.status)
    return ReplayResult(
        place.url,
        there.url,
        moment.run_id,
        work.names[0],
        work.title,
        seq,
        settings,
        prompts,
        end,  # type: ignore[arg-type]
        moment.status,
        only.reason or moment.reason,
        first.turn,
        second.turn,
        [*pairs(old[1], new[1], only.called, is_finished=second.changes is not None)],
        None if first.changes is None or second.changes is None else [*_differing(first.changes, second.changes)],
        questions_of(moment, there),
        moment.error if moment.status == "failed" else None,
        (*outcome.report.remarks,),
    )


def _side(place: Place, time: Time | None) -> _Side:
    if time is None:
        return _Side(Turn("", None, 0, 0, 0, 0.0, {}), None)
    work = time.work
    lines = [line for line in time.lines if work.begun <= line.seq <= time.last]
    spent = [
        each.record
        for each in lines
        if isinstance(each.record, Spent) and time.has(each.record.agent, each.record.scope, each.seq)
    ]
    commit = lines[-1].record if lines else None
    turn = Turn(
        work.state,
        None,
        sum(len(each.calls) for each in time.parts),
        sum(each.ms for each in time.parts),
        sum(each.tokens for each in spent),
        round(sum(each.usd for each in spent), 9),
        {},
    )
    if not isinstance(commit, ScopeCommitted):
        return _Side(turn, None)
    before = moment_at(place.store, lines[-1].seq - 1).agents[commit.agent]
    data = before.data if before.has_data else {}
    changes = [DataChange("", *change) for change in data_changes(data, json_patch.apply(data, commit.patch))]
    try:
        result = value_of(place.store, Kept(commit.result, commit.blob))
    except (SatchelError, FileNotFoundError):
        result = None  # its blob is gone
    return _Side(replace(turn, result=result, outputs=commit.outputs), changes)


def _differing(old: list[DataChange], new: list[DataChange]) -> Iterator[DataChange]:
    """From what the first commit has left to what the second one has left, at each path that one of them has
    changed."""
    was, now = ({change.path: change for change in changes} for changes in (old, new))
    for path in dict.fromkeys((*was, *now)):
        known = was.get(path) or now[path]
        before = ABSENT if known.kind == "added" else known.old
        one, other = (_left(changes[path]) if path in changes else before for changes in (was, now))
        for change in data_changes(one, other, path):
            yield DataChange("", *change)


def _left(change: DataChange) -> Any:
    return ABSENT if change.kind == "removed" else change.new


Text = str | os.PathLike[str]
"""A prompt, or the file that has it."""


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """Which item to do again, and how. See `RunHistory.replay`. UsageError for a value that is not valid."""

    item: str
    to: str | os.PathLike[str]
    settings: Mapping[str, Any] | None = None
    prompts: Mapping[str, Text] | Text | None = None
    agent: Agent | None = None
    watch: Watch | None = None
    run_id: str = ""
    by: str | None = None
    progress: Tell | None = None
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        arguments.text("item", self.item)
        arguments.mapping("settings", self.settings)
        check_agent(self.agent)
        check_watch(self.watch)


class Ready(NamedTuple):
    """A fork in which the item can begin."""

    first: Time
    prompts: dict[str, str]  # the versions of those that were chosen
    forked: ForkResult
    start: Start


class Replay:
    """One item done again, from the options to the comparison."""

    def __init__(self, place: Place, options: ReplayOptions):
        self._place, self._options = place, options

    def blocking(self) -> ReplayResult:
        ready = prepare(self._place, self._options)
        with no_exit(self._place):
            outcome = running.with_signals(ready.start).outcome
        return self._result(ready, outcome)

    async def without_blocking(self) -> ReplayResult:
        import asyncio

        ready = await asyncio.to_thread(prepare, self._place, self._options)
        with no_exit(self._place):
            outcome = (await running.until_stop(ready.start)).outcome
        return await asyncio.to_thread(self._result, ready, outcome)

    def _result(self, ready: Ready, outcome: Outcome) -> ReplayResult:
        store, only = ready.start.store, ready.start.only
        assert only is not None
        told = story(store)
        found = step_history(store, told=told)
        is_it = (work for work in found.work if not work.agent and work.begun and only.is_it(work.scope, work.title))
        second = next((Time(found, told.records.lines, work) for work in is_it), None)
        return compared(
            (self._place, ready.first),
            (Place(store, ready.forked.to), second),
            only,
            outcome,
            settings=redactor_of(define(store)).value({**(self._options.settings or {})}),
            prompts=ready.prompts,
            seq=ready.forked.seq,
        )


def prepare(place: Place, options: ReplayOptions) -> Ready:
    """Make the fork. UsageError, before anything is made, for an item that can't be replayed and for a name that is
    not known."""
    chosen = options.settings or {}
    told = story(place.store)
    found = step_history(place.store, told=told)
    work = _find(found, options.item)
    if work.state == "undone" and work.ended:  # so calls of its sub-agents may be gone; they are as of then
        found = step_history(place.store, work.ended, told=told)
        work = next(each for each in found.work if (each.agent, each.begun) == ("", work.begun))
    first = Time(found, told.records.lines, work)
    used = {name: version for call in first.calls for name, version in call.prompts.items()}
    definition = define(place.store)
    redactor, settings = redactor_of(definition), definition.settings
    shelf = prompts.Shelf(place.store, definition.prompts_folder)
    texts = _chosen(shelf, options, used)
    for name, data in texts.items():
        prompts.check_no_secret(name, data, redactor)
    versions = {name: prompts.version_of(data) for name, data in texts.items()}
    for key in chosen:
        if templates.where_of(key, settings) is None:
            raise _unknown(f"setting {key!r}", key, settings, _names(shelf, used))
    forked = rewind.fork(
        place,
        options.to,
        work.begun - 1,
        run_id=options.run_id,
        effects=False,
        reuse=False,
        by=options.by,
        progress=options.progress,
        storage_options=options.storage_options,
        edit=lambda text: templates.with_settings(text, chosen),
        texts=_as_used(place.store, shelf, used) | texts,
        is_replay=True,
        again=work if is_of_task(work.scope) and work.ended else None,
    )
    use_options(urls.checked(forked.to), options.storage_options)
    store = open_store(urls.checked(forked.to))
    is_known = work.scope.startswith("_") or look(store).moment.root.plan.task(work.scope) is not None
    only = ReplayTarget(work.scope if is_known else "", work.title)
    start = Start(
        store=store,
        interruption=Interruption(),
        agent=options.agent,
        watch=options.watch,
        wake=True,
        accept_drift=True,
        only=only,
    )
    return Ready(first, versions, forked, start)


def _find(found: StepHistory, item: str) -> Work:
    """The item, as it was done the last time."""
    work = named_so(item if item.isdecimal() else item.strip(), found.work, found.since, found.problem)[-1]
    if work.agent:
        above = found.moment.agents[work.agent.partition("/")[0]].spawned_in
        raise UsageError(
            f"{item.strip().rstrip('/')!r} is an item of a sub-agent",
            why="a replay does an item of the run's own agent",
            remedy=f"replay the item that has started it: ^{above}" if is_of_item(above) else None,
        )
    if not work.begun:
        raise gone(found.since - 1, found.since)
    return work


def _chosen(shelf: prompts.Shelf, options: ReplayOptions, used: Mapping[str, str]) -> dict[str, bytes]:
    """The content of the prompts that were given, by name."""
    given = options.prompts
    if given is None:
        return {}
    given = given if isinstance(given, Mapping) else {"": given}
    found = {}
    for name, text in given.items():
        if not name and len(used) != 1:
            said = f"it has used {', '.join(sorted(used))}" if used else "no step of it has used one"
            there = _names(shelf, used)
            remedy = f"name it, as in `--set prompt.{there[0]}=@FILE`" if there else "write one in prompts/"
            raise UsageError(f"the item {options.item!r} has not used exactly one prompt", why=said, remedy=remedy)
        name = name or next(iter(used))
        if name not in used and name not in (known := _names(shelf, used)):
            raise _unknown(f"prompt {name!r}", f"prompt.{name}", {}, known)
        found[name] = _content(text)
    return found


def _content(text: Text) -> bytes:
    if isinstance(text, str):
        return text.encode()
    try:
        return Path(text).read_bytes()
    except OSError as error:
        raise UsageError("can't be read", path=os.fspath(text), why=error.strerror) from error


def _as_used(store: Store, shelf: prompts.Shelf, used: Mapping[str, str]) -> dict[str, bytes]:
    """The prompts of which the item has used another version than the file has now. One that is not kept stays as it
    is; then the start reports it as changed."""
    found = {}
    for name, version in used.items():
        try:
            if prompts.version_of(shelf.read(name).data) == version:
                continue
        except FileNotFoundError:
            pass  # it has been removed since
        with suppress(SatchelError):
            found[name] = prompts.prompt_text(store, name, version).encode()
    return found


def _names(shelf: prompts.Shelf, used: Iterable[str]) -> list[str]:
    return sorted({*used, *shelf.files()})


def _unknown(what: str, name: str, settings: Mapping[str, Any], names: Iterable[str]) -> UsageError:
    known = [*settings, *(f"prompt.{each}" for each in names)]
    close = nearest(name, known)
    listed = f"there are {', '.join(known)}" if known else "the run has no settings and no prompts"
    return UsageError(f"there is no {what}", why=listed, remedy=f"did you mean {close!r}?" if close else None)


def typed_changes(place: Place, words: Iterable[str]) -> tuple[dict[str, Any], dict[str, Text]]:
    """Settings and prompts from the command line: `KEY=VALUE`, `prompt=TEXT`, `prompt.NAME=@FILE`. A setting that is
    called `prompt` goes first."""
    settings, texts = dict[str, Any](), dict[str, Text]()
    known = define(place.store).settings
    for key, value in templates.pairs(words, "--set prompt.NAME=@FILE"):
        first, _, name = key.partition(".")
        if first != "prompt" or templates.where_of(key, known) is not None:
            settings[key] = templates.value_of(value)
        else:
            texts[name] = _typed_text(key, value)
    return settings, texts


def changes(place: Place) -> list[str]:
    """The beginnings of what `typed_changes` takes."""
    definition = define(place.store)
    names = prompts.Shelf(place.store, definition.prompts_folder).files()
    return [*(f"{key}=" for key in definition.settings), *(f"prompt.{name}=@" for name in sorted(names))]


def _typed_text(key: str, value: str) -> Text:
    """`@FILE`, or the text itself. The name of a file is no prompt."""
    if value.startswith("@"):
        return Path(value[1:]).expanduser()
    if not value.strip() or (value.endswith((".md", ".txt")) and " " not in value) or os.path.isfile(value):
        raise UsageError(
            f"--set {key}={value} has no text", remedy=f"name a file with @: --set {key}=@{value or 'FILE'}"
        )
    return value
