"""What the world outside a workspace knows: what was written, and what somebody was told and relies on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .memory import ROOT, Call, File, Nodes


class Durable(NamedTuple):
    """The journal said that everything up to record `seq` is durable."""

    seq: int


class Fact(NamedTuple):
    """Something that somebody was told, in plain terms.

    `data`: state["items"][key] is value · `result`: scope key returned value · `step`: (scope, step) returned value ·
    `outside`: the effect (scope, step) has acted on the world · `tick`: the item that reads key is done ·
    `output`: the file key has these bytes · `message`: the conversation holds key, value times ·
    `plan`: the plan has an item that reads key · `resolved`: the question key is answered ·
    `ran`, `stepped`: the function of the step key began; it returned to its caller ·
    `progress`: the step of scope key has come to value
    """

    kind: Literal[
        "data",
        "result",
        "step",
        "outside",
        "tick",
        "output",
        "message",
        "plan",
        "resolved",
        "ran",
        "stepped",
        "progress",
    ]
    key: Any
    value: Any = None


class Streamed(NamedTuple):
    """So much of an answer has been handed to its partial; `kept` says that its write has returned."""

    scope: str
    step: str
    attempt: int
    text: str
    kept: bool

    def __str__(self) -> str:
        return f"{len(self.text)} characters of {self.step} (attempt {self.attempt}){' are kept' if self.kept else ''}"


@dataclass
class Witness:
    """Sees the calls of a recording, in order, up to a crash."""

    written: set[bytes] = field(default_factory=set)  # every line ever written to the journal
    latest: dict[int, bytes] = field(default_factory=dict)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    others: list[object] = field(default_factory=list)  # facts of a workload's own kinds
    streams: dict[tuple[str, str, int], tuple[str, str]] = field(default_factory=dict)  # handed over, kept
    outputs: dict[str, set[bytes]] = field(default_factory=dict)
    power_failed: bool = False
    seen: int = 0  # acknowledgements

    def see(self, call: Call) -> None:
        if call.name == "write" and call.path.startswith(f"{ROOT}/journal/"):
            for line in call.data.splitlines(keepends=True):
                self.written.add(line)
                self.latest[json.loads(line)["seq"]] = line
        elif call.name == "acknowledge":
            self.seen += 1
            self._hear(call.fact)

    def _hear(self, fact: object) -> None:
        match fact:
            case Durable(seq):
                self.acknowledged |= {each: line for each, line in self.latest.items() if each <= seq}
            case Streamed(scope, step, attempt, text, kept):
                _, before = self.streams.get((scope, step, attempt), ("", ""))
                self.streams[scope, step, attempt] = text, text if kept else before
            case Fact():
                self.facts.append(fact)
            case _:
                self.others.append(fact)

    def seen_file(self, nodes: Nodes, call: Call) -> None:
        """Remember what an output held, once it has its name."""
        if call.name in ("rename", "link") and call.other.startswith(f"{ROOT}/outputs/"):
            file = nodes[call.node]
            assert isinstance(file, File)
            self.outputs.setdefault(call.other.removeprefix(f"{ROOT}/"), set()).add(file.data)

    def knows_of(self, tree: Mapping[str, bytes]) -> None:
        """What lies in the journal already is durable."""
        for path, data in tree.items():
            if path.startswith("journal/") and not path.startswith("journal/kept-"):
                self.see(Call("write", f"{ROOT}/{path}", data=data))
        self.acknowledged = dict(self.latest)

    def copy(self) -> Witness:
        return Witness(
            set(self.written),
            dict(self.latest),
            dict(self.acknowledged),
            list(self.facts),
            list(self.others),
            dict(self.streams),
            {path: set(versions) for path, versions in self.outputs.items()},
            self.power_failed,
            self.seen,
        )
