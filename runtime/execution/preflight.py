"""Checks before a run resumes: what it works with, what of that has changed, and whether its data fits the state type
of its agent.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...schemas import Where, dotted
from ...workspace.base import DEFINITION, Refused, SatchelError, UsageError, version
from ...workspace.formats import Definition
from ...workspace.history import BlamedValue, data_origins, story
from ...workspace.inbound import Point, notice, rewind_record
from ...workspace.inspect import Look, Report, define
from ...workspace.journal import Configured
from ...workspace.lifecycle import PauseWish, Workspace
from ...workspace.secrets import as_recorded, redactor_of
from ...workspace.state import Moment, json_patch, prompts
from ...workspace.store import Store
from ...workspace.views import BRIEF, STATE
from ..agent import Agent, Code, Codec, Step, canonical, check_known, check_migrated, code, dropped, load, migrate
from ..live import reverify
from .resources import CONTENTS, Referred
from .start import Start

SETTINGS = "the settings have changed"

_MODEL_KEYS = ("model", "models")
_SHOWN = 8
"""How many digits of a hash are shown."""


def config(
    store: Store,
    definition: Definition,
    agent: Agent,
    code: code.Code,
    was: Mapping[str, Any],
    references: Sequence[str] = (),
) -> dict[str, Any]:
    """What the run works with now, in its recorded form, after it has worked with `was`. `code` is `code_of` the agent,
    `references` are those that it has named itself.

    Not seen: code that is imported by a computed name or lies in other folders, what installed packages import, a model
    behind a name, and models that are neither a step's `fallback` nor under `model` or `models` in the settings.
    """
    shelf = prompts.Shelf(store, definition.prompts_folder)
    found: dict[str, Any] = {
        "satchel": version(),
        "python": platform.python_version(),
        "agent": definition.agent,
        "agent_sha256": _sha(code.modules),
        "code": code.modules,
        "packages": code.packages,
        **({"commit": code.commit} if code.commit else {}),
        "settings_sha256": _sha(definition.settings),
        "prompts": {name: prompts.version_of(data) for name, data in shelf.files().items()},
        "models": _models(agent, definition.settings),
        "state_version": agent.version,
        "on_cancel": agent.on_cancel is not None,
    }
    if definition.prompts == "pinned" and (pinned := prompts.pinned(was)) is not None:
        found[prompts.PINNED] = pinned
    found |= {"references": list(references)} if references else {}
    now: dict[str, Any] = as_recorded(
        was, redactor_of(definition).value(found)
    )  # it is compared with what was recorded
    return now


def compare_configs(was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """The changes between two configurations, one by one, in words. Facts that an older one lacks count as
    unchanged."""
    if not was:
        return ()
    told: list[str] = []
    for key, name in (("satchel", "satchel"), ("python", "python"), ("agent", "agent"), ("state_version", None)):
        if key in was and was[key] != now.get(key):
            told.append(f"{name or 'state version'} {was[key]} -> {now.get(key)}")
    told += _items(was, now, "code", "{}")
    told += _items(was, now, "packages", "{}", is_version=True)
    told += _items(_in_use(was), _in_use(now), "prompts", "prompt {}")
    for key, (before, after) in _changed(was, now, "models"):
        told.append(f"model {key} was {_plain(before)}, is {_plain(after)}")
    if "settings_sha256" in was and was["settings_sha256"] != now["settings_sha256"]:
        told.append(f"{SETTINGS} ({was['settings_sha256'][:_SHOWN]} -> {now['settings_sha256'][:_SHOWN]})")
    return tuple(told)


def _in_use(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration with the prompts that the run uses: it is held to some, whatever their files say."""
    pinned = prompts.pinned(config)
    return config if pinned is None else {**config, "prompts": {**config.get("prompts", {}), **pinned}}


def refuse(found: Sequence[str]) -> None:
    """Raise the error of `on_drift: refuse`."""
    raise Refused(
        "not resuming: `on_drift: refuse` is set and these have changed:\n  " + "\n  ".join(found) + "\n ",
        path="workspace.yaml",
        remedy="undo the changes, or accept them: `satchel resume --accept-drift` "
        "(`resume(accept_drift=True)` in Python)",
    )


def _items(
    was: Mapping[str, Any], now: Mapping[str, Any], section: str, name: str, *, is_version: bool = False
) -> Iterator[str]:
    for key, (before, after) in _changed(was, now, section):
        what = name.format(key)
        if before is None:
            yield f"{what} {after} is new" if is_version else f"{what} is new"
        elif after is None:
            yield f"{what} {before} is missing now" if is_version else f"{what} is missing now"
        elif is_version:
            yield f"{what} {before} -> {after}"
        elif section == "code":
            yield f"{what} has changed ({before[:_SHOWN]} -> {after[:_SHOWN]})"
        else:
            yield f"{what} was {before[:_SHOWN]}, is {after[:_SHOWN]}"


def _changed(was: Mapping[str, Any], now: Mapping[str, Any], section: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if section not in was:
        return
    before, after = was[section], now.get(section, {})
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield key, (before.get(key), after.get(key))


def code_of(agent: Agent) -> code.Code:
    """Empty for an agent that was defined in no file, for example at a prompt, and for Satchel itself, whose version is
    in the record."""
    if agent.function.__module__.startswith(f"{__name__.partition('.')[0]}."):
        return code.Code()
    try:
        file = inspect.getsourcefile(inspect.unwrap(agent.function))
    except TypeError:
        file = None
    return code.of(file) if file and os.path.isfile(file) else code.Code()


def _models(agent: Agent, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The models of the settings, by their place, and the fallbacks of the steps in the agent's module."""
    found = dict(_in_settings("settings", settings))
    for value in list(getattr(agent.function, "__globals__", {}).values()):
        if isinstance(value, Step) and value.fallback:
            found[f"{value.name}.fallback"] = list(value.fallback)
    return dict(sorted(found.items()))


def _in_settings(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key in _MODEL_KEYS:
            yield f"{place}.{key}", inner
        else:
            yield from _in_settings(f"{place}.{key}", inner)


def _plain(value: Any) -> str:
    return "not given" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _sha(value: Any) -> str:
    return hashlib.sha256(canonical(value, "the configuration")).hexdigest()


_WAYS_ON = "write a migration (`@migration`), run the code that has written it, or correct `data` in the file"


class StateCheck:
    """Asks the types of the agents. That of a sub-agent is known only while it runs: `running` gives it by its path."""

    def __init__(self, start: Start, moment: Moment, running: Callable[[str], Agent | None] = lambda path: None):
        self._start, self._moment, self._running = start, moment, running

    def schema(self, path: str) -> dict[str, Any] | None:
        """Of data of the type's own version."""
        agent = self._agent(path)
        return agent.schema_of_data() if agent is not None and self._is_current(path, agent) else None

    def kept(self, path: str, data: Any) -> Any:
        agent = self._agent(path)
        if agent is None or not agent.drop or not self._is_current(path, agent):
            return data
        return json_patch.apply(data, dropped(data, Codec(agent.state, "the state"), agent.drop))

    def __call__(self, path: str, data: Any) -> None:
        agent = self._agent(path)
        if agent is None:
            return
        codec, recorded = Codec(agent.state, "the state"), self._moment.agents[path]
        check_migrated(data, recorded.data_version if recorded.has_data else agent.version, agent.migrations, codec)
        if agent.unknown == "keep" and self._is_current(path, agent):
            _check_lists(codec, data)

    def _agent(self, path: str) -> Agent | None:
        return self._running(path) or (None if path else _own(self._start))

    def _is_current(self, path: str, agent: Agent) -> bool:
        recorded = self._moment.agents[path]
        return not recorded.has_data or recorded.data_version == agent.version


def _own(start: Start) -> Agent | None:
    """The run's own agent. None if it can't be imported: that is told when it is to be run."""
    try:
        return start.agent or load(start.store, define(start.store).agent)
    except Exception:
        return None


def check_recorded(store: Store, agent: Agent, moment: Moment) -> None:
    """Before the agent is called. Refused if its code can't read, or would lose, what earlier code has recorded."""
    recorded = moment.root
    if not recorded.has_data or recorded.data_version != agent.version:
        return  # the migrations check it
    codec = Codec(agent.state, "the state")
    try:
        codec.decode(msgspec.json.encode(recorded.data))
    except UsageError as error:
        raise Refused(
            "the recorded state does not fit the agent's state type", path=STATE, why=error.why, remedy=_WAYS_ON
        ) from error
    check_known(recorded.data, codec, agent.drop, agent.unknown, written_by=partial(_written_by, store))


def _written_by(store: Store, path: Where) -> str:
    """The record that has set a value of the data."""
    try:
        told = story(store)
        node: BlamedValue | None = data_origins(told.start, told.lines)[""]
        for part in path:
            node = node and node.below(str(part))
    except (SatchelError, LookupError):
        return ""
    origins = [leaf.cell.origin for _, leaf in node.leaves("")] if node is not None else []
    last = max(origins, key=lambda each: each.seq, default=None)
    if last is None or not last.title:
        return ""
    return f"; {last.title!r} has written it, in record {last.seq}"


def _check_lists(codec: Codec, data: Any) -> None:
    """UsageError if the edit has a key that even `unknown="keep"` can't keep, because it is in a list."""
    for each in codec.unknown_keys(data):
        if any(isinstance(part, int) for part in each.path):
            place = dotted(("data", *each.path[:-1]))
            raise UsageError("the state does not fit its type", why=f"{place}: {each}, and it is in a list")


_REMEDY = "restore what was not changed on purpose, or untick its item in todo.md to make it again"

Stop = Literal["", "pause", "unclean"]
"""How the run has stopped last: no pause, or one that ends with this start; clean or forced."""


class Findings(Struct, frozen=True):
    """The findings before a run resumes."""

    drift: tuple[str, ...]
    complaints: tuple[str, ...]  # of its outputs; a person is to say what becomes of them
    rechecks: reverify.Rechecks
    offer: str = ""  # after an unclean stop: what it can go back to
    code: Code | None = None  # of the agent, if that was looked at
    is_refused: bool = False  # it had completed, and must not continue if edits have given it new work
    fits: bool = False  # the recorded state is known to fit the agent's code

    @property
    def says(self) -> tuple[str, ...]:
        return (*self.drift, *self.complaints)

    def tell(self, workspace: Workspace, *, is_offered: bool = True) -> None:
        """Put them into the report. Changes of workspace.yaml that were reported as an edit are not repeated."""
        report = workspace.report
        edited = any(each.kind == "edited" and each.text.startswith(f"{DEFINITION}: ") for each in report.remarks)
        told = [each for each in self.drift if not (edited and each.startswith(SETTINGS))]
        told += [self.offer] if self.offer and is_offered else []
        if workspace.definition.prompts == "pinned":
            shelf = prompts.Shelf(workspace.store, workspace.definition.prompts_folder)
            told += prompts.held(shelf, workspace.moment.config)
        for text in told:
            report.add("found", text)
        ask_about(report, self.complaints)
        if told or self.complaints:
            workspace.save_report()


def check(start: Start, seen: Look, *, stop: Stop) -> Findings:
    """What has changed since the last run, and what has become of its outputs. After a `stop` that was a pause, also
    which effects to verify again.

    Raises Refused if the run must not continue with the current agent. Nothing is changed yet, so a refusal leaves the
    workspace as it was. An agent that can't be imported is reported when it is called.
    """
    store, moment, definition = start.store, seen.moment, seen.definition
    is_unclean = stop == "unclean"
    complaints: tuple[str, ...] = ()
    up_to = ""
    if is_unclean or definition.recheck == "always":
        complaints = changed_outputs(store, seen, stop)
        up_to = reverify.ALL if stop else moment.resumed_at
    rechecks = reverify.Rechecks(moment, up_to=up_to)
    offer = _offer(store, moment) if is_unclean else ""
    if moment.is_new:
        return Findings((), complaints, rechecks, offer)
    try:
        found = start.agent or load(store, definition.agent)
    except Exception:
        return Findings((), complaints, rechecks, offer)
    code = code_of(found)
    differences = compare_configs(moment.config, config(store, definition, found, code, moment.config))
    is_refused = bool(differences) and definition.on_drift == "refuse" and not start.accept_drift
    if is_refused and not moment.is_finished:
        refuse(differences)
    root = moment.root
    if root.has_data and root.data_version != found.version and not moment.is_finished:
        migrate(root.data, root.data_version, found.migrations, Codec(found.state, "the state"))
    fits = not start.from_checkpoint and _fits(store, seen, found)
    return Findings(differences, complaints, rechecks, offer, code, is_refused, fits)


def _fits(store: Store, seen: Look, agent: Agent) -> bool:
    """Whether the agent's code can read the recorded state and loses nothing of it. Otherwise Refused, unless people
    have changed something: then the opening finds out."""
    try:
        check_recorded(store, agent, seen.moment)
    except Refused:
        if not notice(store, seen.moment, seen.definition, patience=BRIEF).is_anything:
            raise
        return False
    return True


def changed_outputs(store: Store, seen: Look, stop: Stop = "") -> tuple[str, ...]:
    """What is wrong with the outputs, in words."""
    moment = seen.moment
    if stop:
        return tuple(reverify.wrong_outputs(store, moment.outputs, reads_all=stop == "unclean"))
    if moment.clean and moment.status in ("waiting", "sleeping"):  # its open scopes have come to rest, as in a pause
        return tuple(reverify.wrong_outputs(store, moment.outputs, seconds=reverify.BRIEF))
    return tuple(reverify.wrong_outputs(store, reverify.outputs_at_rest(moment), seconds=reverify.BRIEF))


def ask_about(report: Report, complaints: Sequence[str]) -> None:
    """Let a person decide about outputs that differ from what the run had made."""
    for text in (*complaints, _REMEDY) if complaints else ():
        report.add("wanted", text)


def _offer(store: Store, moment: Moment) -> str:
    """After a stop that was not clean: the checkpoint that the run can return to."""
    point = rewind_record.last_good(store, moment)
    if point is None:
        return ""
    return (
        f"the last known-good checkpoint is at record {point.moment.seq}{f' ({point.at})' if point.at else ''}; "
        "`satchel resume --from-checkpoint` goes back to it"
    )


def record_config(workspace: Workspace, agent: Agent, code: Code | None, referred: Referred) -> None:
    """Record what the run works with from here on, if it has changed. `code` is the agent's code, if it was read
    before."""
    moment, redactor = workspace.moment, workspace.redactor
    named = [each for each in moment.config.get("references", ()) if each not in referred.dropped]
    store = workspace.store
    now = config(store, workspace.definition, agent, code or code_of(agent), moment.config, named)
    if workspace.definition.prompts == "pinned" and prompts.PINNED not in now:
        kept = partial(prompts.keep, store, redactor=workspace.redactor)
        files = prompts.Shelf(store, workspace.definition.prompts_folder).files()
        now[prompts.PINNED] = {name: kept(name, data) for name, data in files.items()}
    known = {redactor.text(each) for each in (*workspace.definition.references, *named)}
    if contents := {each: content for each, content in referred.contents.items() if each in known}:
        now[CONTENTS] = contents
    if now != moment.config:
        asked_again = len(moment.taken_back)
        workspace.journal.add(Configured(config=now))
        if len(moment.taken_back) > asked_again:  # other code has been approved
            workspace.journal.flush()
            workspace.desk.write_questions()


class Go(Struct, frozen=True):
    """Call the agent, unless the opening finds that nothing is left to do."""

    wanted: PauseWish | None  # the pause that is over with this start
    is_unclean: bool  # the run was stopped by force
    is_overruling: bool  # windows that are open do not count
    found: Findings
    point: Point | None  # the checkpoint that it goes back to first
    arguments: bytes | None = None  # to record; see `arguments_to_record`
