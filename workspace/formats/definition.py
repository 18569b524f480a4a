"""The format of workspace.yaml: which run a workspace holds and which agent works in it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from ...schemas import Problem, Where, dotted, problems, short
from ..base import DEFINITION, InvalidFile, NewerFormat, UsageError, decode, seconds_of
from . import yaml_plain, yamltext

FORMAT = 1
LIMIT = 64 << 10
"""Bytes. Every command reads this file, and parsing YAML takes time."""

_IDENTITY = ("$schema", "format", "run_id")

_LENGTH = ("a duration of at most 100 years", "Write a number of seconds, or one with s, m, h or d")

_EDITOR = "# yaml-language-server: $schema=.satchel/schemas/workspace.json"


class Window(Struct, frozen=True):
    """A time in which the run pauses by itself. Durations in seconds."""

    cron: str
    duration: float
    timezone: str = "UTC"
    reason: str = "schedule"
    notify_before: float = 0.0


class ScheduledTask(Struct, frozen=True):
    """When `serve` puts a task into the run's inbox: at the times of `cron`, or `every` so many seconds. With `keep`
    also while an earlier one of that `name` waits there. A new run gets its first at once, unless it is to `wait`."""

    cron: str = ""
    every: float = 0.0
    timezone: str = "UTC"
    name: str = ""
    keep: bool = False
    wait: bool = False


class Budget(Struct, frozen=True):
    """The total that the run may use; None: no limit. `time` in seconds of running time."""

    steps: int | None = None
    tokens: int | None = None
    usd: float | None = None
    time: float | None = None


class Checkpoints(Struct, frozen=True):
    """When checkpoints are written. A number for `every` is seconds."""

    every: Literal["growth", "item", "milestone"] | float = 600.0


class Rule(Struct, frozen=True):
    """How much is kept: so many of the newest, and all that are younger than `age` seconds."""

    number: int = 0
    age: float = 0.0

    @property
    def keeps_all(self) -> bool:
        return self.age == math.inf


class Keep(Struct, frozen=True):
    """How much of a workspace's past is kept. `history` counts records of the journal."""

    history: Rule = Rule(10_000)
    checkpoints: Rule = Rule(5)
    recovered: Rule = Rule(100)
    inbox: Rule = Rule(1000)
    rejected: Rule = Rule(100, 90 * 86400.0)


class Every(Struct, frozen=True):
    """After how many steps of a process, or seconds, another one continues the run. 0: never."""

    steps: int = 0
    seconds: float = 0.0


class Redact(Struct, frozen=True):
    """What must not be written: what the patterns match, and the values of these environment variables."""

    patterns: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class Webhook(Struct, frozen=True):
    """Where a signed notice is sent. `secret` is `${NAME}`, a variable of the environment, or the path of a file."""

    webhook: str
    secret: str


class Definition(Struct, frozen=True):
    """The content of workspace.yaml. `agent` is `FILE.py:NAME`, or `PACKAGE.MODULE:NAME`; it is not imported here."""

    run_id: str
    agent: str  # empty for a workspace that programs hold
    settings: dict[str, Any] = field(default_factory=dict)
    input: dict[str, Any] = field(default_factory=dict)  # arguments of the agent, by parameter
    group: str = ""  # whose runs `serve` bounds together
    priority: int = 0
    drain_timeout: float = 120.0  # seconds
    drain_then: Literal["force", "extend"] = "force"
    idle_below: float = 0.0  # seconds
    restart_every: Every = Every()
    isolate: Literal["", "process", "none"] = ""  # empty: as `serve` says
    keeper: bool = False  # what reads answers of models to their end when the agent's process dies
    on_drift: Literal["report", "ask", "refuse"] = "report"
    on_reference: Literal["report", "refuse"] = "report"
    recheck: Literal["always", "never"] = "always"
    prompts: Literal["live", "pinned"] = "live"
    prompts_folder: str = ""  # that runs share; see `Shelf` in state/prompts.py
    references: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    schedule: tuple[ScheduledTask, ...] = ()
    budget: Budget = Budget()
    checkpoints: Checkpoints = Checkpoints()
    keep: Keep = Keep()
    notify: tuple[str | Webhook, ...] = ()
    redirect_to: str = ""
    backup: str = ""  # where a copy follows, as it is written: `{run_id}` and `{name}` are replaced
    redact: Redact = Redact()
    kind: str = ""  # what programs hold it as
    format: int = FORMAT
    said: dict[str, Any] = field(default_factory=dict)  # all keys but the run's identity

    @property
    def restarts(self) -> bool:
        """Whether it wants another process from time to time."""
        return self.restart_every != Every()

    @property
    def recorded(self) -> dict[str, Any]:
        """The part in the journal."""
        return {"settings": {}, **self.said}


def parse(source: str | bytes, path: str = DEFINITION) -> Definition:
    """The content of the file. InvalidFile lists everything that is wrong, with lines; NewerFormat if it is newer."""
    text = decode(source, path) if isinstance(source, bytes) else source
    if (value := yaml_plain.mapping(text)) is not None:
        with suppress(InvalidFile):  # the other reader knows the lines
            return _of(value, dotted, path)
    found = _OWN_ID.search(text)
    if found is None or text.count(found[1]) > 1:
        return _parsed(text, path)
    others = f"{text[: found.start(1)]}\0{text[found.end(1) :]}"
    if (like := _ALIKE.get(others)) is None:
        like = _parsed(text, path)
        if like.run_id != found[1]:  # that line is in a text of several lines
            return like
        if len(_ALIKE) >= _MOST_ALIKE:
            _ALIKE.clear()
        _ALIKE[others] = like
    settings, given, said = deepcopy((like.settings, like.input, like.said))  # an agent may change its own
    return replace(like, run_id=found[1], settings=settings, input=given, said=said)


_OWN_ID = re.compile(r"^run_id: (?=.{3,63}$)([a-z][a-z0-9]*-[a-z0-9-]+)$", re.MULTILINE)
"""A run_id that YAML takes for nothing but a text."""

_ALIKE: dict[str, Definition] = {}
"""Files that were read, without their `run_id`. The runs that are made from a template differ in that only, and reading
YAML is the dearest part of a first look at thousands of them."""

_MOST_ALIKE = 64


def _parsed(text: str, path: str) -> Definition:
    document = yamltext.load(text, path)
    return _of(document.value, document.place, path)


def places(source: bytes) -> Callable[[Where], str]:
    """Names the line of a key, in a file that `parse` takes."""
    return yamltext.load(decode(source, DEFINITION), DEFINITION).place


def restore(run_id: str, recorded: Mapping[str, Any]) -> Definition:
    """The content of the file when the journal got `recorded` of it."""
    return _of({"format": FORMAT, "run_id": run_id, **recorded}, dotted, DEFINITION)


def _of(value: Any, place: Callable[[Where], str], path: str) -> Definition:
    # First: an unknown key may be a feature of a newer format.
    match value:
        case {"format": int(number)} if number > FORMAT and not isinstance(number, bool):
            raise NewerFormat(
                f"has format {number}, but this Satchel reads format {FORMAT}",
                path=path,
                why="it needs a newer Satchel",
                remedy="upgrade Satchel; nothing was changed",
            )
    if found := problems("workspace", value, place=place):
        raise InvalidFile(path, found)
    said = {key: each for key, each in value.items() if key not in _IDENTITY and not key.startswith("x-")}
    try:
        options = _options(value)
    except _NotValid as error:
        raise InvalidFile(path, [Problem(place(error.where), short(error.found), *error.expected)]) from None
    return Definition(
        value["run_id"], value.get("agent", ""), value.get("settings", {}), value.get("input", {}), **options, said=said
    )


class _NotValid(Exception):
    """A value that fits the schema and is not valid: `expected` and what to do."""

    def __init__(self, where: Where, found: Any, expected: tuple[str, str]):
        super().__init__(where, found)
        self.where, self.found, self.expected = where, found, expected


def _seconds(written: Any, *where: str | int) -> float:
    try:
        return seconds_of(written)
    except UsageError:
        raise _NotValid(where, written, _LENGTH) from None


def _options(value: dict[str, Any]) -> dict[str, Any]:
    """The values of the optional keys."""
    plain = ("group", "on_drift", "on_reference", "recheck", "redirect_to", "backup", "isolate", "keeper", "kind")
    found: dict[str, Any] = {key: value[key] for key in plain if key in value}
    if set(re.findall("{run_id}|{name}|[{}]", found.get("backup", ""))) & {"{", "}"}:
        expected = ("a path or URL, in which only {run_id} and {name} are replaced", "Write s3://bucket/{run_id}")
        raise _NotValid(("backup",), found["backup"], expected)
    found["priority"] = int(value.get("priority", 0))  # 1e1 is a whole number, too
    found["references"] = tuple(value.get("references", ()))
    found["notify"] = tuple(Webhook(**each) if isinstance(each, dict) else each for each in value.get("notify", ()))
    if "prompts" in value:
        written = value["prompts"]
        if isinstance(written, str) and "/" in written:
            written = {"folder": written}
        is_word = isinstance(written, str)
        found["prompts"] = written if is_word else written.get("use", "live")
        found["prompts_folder"] = "" if is_word else written["folder"]
    drain, budget = value.get("drain", {}), dict(value.get("budget", {}))
    if "timeout" in drain:
        found["drain_timeout"] = _seconds(drain["timeout"], "drain", "timeout")
    if "then" in drain:
        found["drain_then"] = drain["then"]
    if "idle_below" in value:
        found["idle_below"] = _seconds(value["idle_below"], "idle_below")
    if "restart_every" in value:
        found["restart_every"] = _every(value["restart_every"])
    if "time" in budget:
        budget["time"] = _seconds(budget["time"], "budget", "time")
    found["budget"] = Budget(**budget)
    found["schedule"] = tuple(_start(number, start) for number, start in enumerate(value.get("schedule", ())))
    found["windows"] = tuple(_window(number, window) for number, window in enumerate(value.get("windows", ())))
    found["checkpoints"] = _checkpoints(value.get("checkpoints", {}))
    found["keep"] = Keep(**{key: _rule(written, key) for key, written in value.get("keep", {}).items()})
    if "redact" in value:
        found["redact"] = _redact(value["redact"])
    return found


def _every(written: Any) -> Every:
    """A number is steps, as a number in `keep` is not a length of time either."""
    if not isinstance(written, str):
        return Every(steps=int(written))
    seconds = _seconds(written, "restart_every")
    if seconds < 1:
        raise _NotValid(("restart_every",), written, ("a length of time of at least one second", "Write 12h or 7d"))
    return Every(seconds=seconds)


def _redact(written: dict[str, Any]) -> Redact:
    found = Redact(tuple(written.get("patterns", ())), tuple(written.get("env", ())))
    for number, pattern in enumerate(found.patterns):
        try:
            matches_nothing = re.compile(pattern).search("") is not None
        except (re.error, RecursionError, OverflowError) as error:
            expected = ("a regular expression of Python's re", f"It can't be read: {error}")
            raise _NotValid(("redact", "patterns", number), pattern, expected) from None
        if matches_nothing:
            raise _NotValid(
                ("redact", "patterns", number),
                pattern,
                ("a pattern that does not match the empty text", "Use + in place of *, or make less of it optional"),
            )
    return found


def _checkpoints(written: dict[str, Any]) -> Checkpoints:
    found: dict[str, Any] = {}
    if "every" in written:
        every = written["every"]
        is_word = every in ("growth", "item", "milestone")
        found["every"] = every if is_word else _seconds(every, "checkpoints", "every")
    return Checkpoints(**found)


def _rule(written: Any, key: str) -> Rule:
    each = written if isinstance(written, list) else [written]
    ages = (math.inf if age == "all" else _seconds(age, "keep", key) for age in each if isinstance(age, str))
    numbers = (int(number) for number in each if not isinstance(number, str))  # 1e4 is a whole number, too
    return Rule(max(numbers, default=0), max(ages, default=0.0))


def _start(number: int, written: dict[str, Any]) -> ScheduledTask:
    facts = {"name": str(number + 1)} | written
    if "every" in facts:
        where = ("schedule", number, "every")
        facts["every"] = _seconds(facts["every"], *where)
        if facts["every"] < 1 or facts["every"] % 1:
            raise _NotValid(where, written["every"], ("whole seconds, at least one", "Write 10s, 5m or 2h"))
        if "timezone" in facts:
            where, remedy = ("schedule", number, "timezone"), "Remove it, or write a `cron:`"
            raise _NotValid(where, written["timezone"], ("no time zone next to `every`", remedy))
    return ScheduledTask(**facts)


def _window(number: int, written: dict[str, Any]) -> Window:
    facts = dict(written)
    for key in ("duration", "notify_before"):
        if key in facts:
            facts[key] = _seconds(facts[key], "windows", number, key)
    return Window(**facts)


def encode(definition: Definition, comments: Sequence[str] = ()) -> str:
    """The file, with `comments` above its keys, a line each. InvalidFile if `parse` would refuse it."""
    head = [_EDITOR, *(f"# {line}".rstrip() for comment in comments for line in comment.splitlines() or [""])]
    held = {"kind": definition.kind} if definition.kind else {"agent": definition.agent}
    identity = {"format": definition.format, "run_id": definition.run_id, **held}
    text = "\n".join(head) + "\n\n" + yamltext.dump(identity)
    if definition.settings:
        text += "\n" + yamltext.dump({"settings": definition.settings})
    if definition.input:
        text += "\n" + yamltext.dump({"input": definition.input})
    parse(text)
    return text
