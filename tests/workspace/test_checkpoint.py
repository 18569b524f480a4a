"""Checkpoints and moments: that a run read from any checkpoint and continued is the run that was never interrupted."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from satchel.workspace import checkpoint, patch, record
from satchel.workspace.checkpoint import MessagesAt
from satchel.workspace.errors import InvalidFile, NewerFormat
from satchel.workspace.looking import look
from satchel.workspace.moment import ROOT, Moment
from satchel.workspace.record import (
    NOTHING,
    AnyRecord,
    Closed,
    Doubt,
    Failure,
    Line,
    Message,
    Opened,
    Output,
    PartialPromoted,
    PlanChanged,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepStarted,
)  # fmt: skip
from satchel.workspace.store import DiskStore

RUN = "run-1"
AT = "2026-11-01T00:00:00.000Z"


class History:
    """A run that takes one legal action after another, as the runtime would record them, in groups."""

    def __init__(self, choose: random.Random):
        self.choose = choose
        self.moment = Moment(run_id=RUN)
        self.groups: list[list[Line]] = []
        self.epoch = 0
        self.calls = 0
        self.open()

    def group(self, *records: AnyRecord) -> None:
        first = self.moment.seq + 1
        lines = [Line(first + n, first, AT, self.epoch, found) for n, found in enumerate(records)]
        # What is applied at a re-opening comes from the file, so that is what is compared with.
        lines = [record.parse(record.encode(line)[:-1]) for line in lines]
        self.moment.apply(read_again(lines))
        self.groups.append(lines)

    def act(self) -> None:
        actions = [self.step, self.step, self.begin, self.commit, self.effect, self.effect, self.fail, self.plan,
                   self.promote, self.progress, self.ask, self.answer, self.reopen, self.change]  # fmt: skip
        self.choose.choice(actions)()

    def scope(self) -> str:
        return self.choose.choice([*self.moment.scopes])

    def call(self, scope: str | None = None) -> dict[str, Any]:
        self.calls += 1
        return {
            "scope": self.scope() if scope is None else scope, "no": self.calls,
            "step": self.choose.choice(["read", "send"]), "args": f"{self.choose.randrange(4):016x}", "n": self.calls,
            "call": self.choose.choice(["", "('ü')"]),
        }  # fmt: skip

    def open(self) -> None:
        self.epoch += 1
        why = self.choose.choice(["run", "recover", "resolve"])
        found = "new" if not self.moment.seq else "clean" if self.moment.clean else "crash"
        self.group(
            Opened(
                format=record.FORMAT, run_id=RUN, satchel="0", python="3", host="h", pid=1, why=why, found=found  # type: ignore[arg-type]
            )
        )  # fmt: skip

    def reopen(self) -> None:
        if self.choose.random() < 0.7:
            status = self.choose.choice([None, "completed", "failed", "waiting", "paused"])
            error = Failure("E", "ü", ("agent.py:1 in f",)) if status == "failed" else None
            self.group(Closed(status=status, reason="because" if status else "", error=error))  # type: ignore[arg-type]
        self.open()

    def begin(self) -> None:
        number = self.moment.highest_id + 1
        key = self.choose.choice([str(number), f"_scope {number}", f"setup-{number}"])
        if not self.moment.has_plan and not key.startswith("_"):
            return  # items are of a plan
        if key not in self.moment.scopes and key not in self.moment.results:
            self.group(ScopeBegun(scope=key, title=f"Item {number} / ü"))

    def commit(self) -> None:
        key = self.scope()
        if key == ROOT or any(doubt.scope == key for doubt in self.moment.doubts.values()):
            return
        messages = [Message(scope=key, role="user", content=Raw(b'"hi"')) for _ in range(self.choose.randrange(3))]
        splices = self.moment.plan.copy().add([f"after {key}"]) if self.choose.random() < 0.3 else ()
        self.group(
            *messages,
            ScopeCommitted(
                scope=key, patch=self.changes(), plan=tuple(splices), result=Raw(b"[1]"),
                outputs={f"{key}.md": Output("0" * 64, 3)} if self.choose.random() < 0.3 else {},
                cancelled=self.choose.choice([None, "not needed"]),
            ),
        )  # fmt: skip

    def change(self) -> None:
        self.group(ScopeCommitted(scope=ROOT, patch=self.changes()))

    def changes(self) -> record.Patch:
        if not self.moment.has_data:
            return [{"op": "add", "path": "", "value": {"log": [], "a/b": {"~": 1}}}]
        new = msgspec.json.decode(msgspec.json.encode(self.moment.data))
        new["log"] = (new["log"] + [self.calls])[-5:]
        new["a/b"] = self.choose.choice([{"~": True}, {"~": 1}, None, {"~": 1.0, "x": [{}]}])
        return patch.diff(self.moment.data, new)

    def step(self) -> None:
        result, blob = self.choose.choice([(Raw(b'{"a": 1}'), ""), (NOTHING, "0" * 64 + "-1"), (Raw(b"null"), "")])
        self.group(StepCompleted(**self.call(), result=result, blob=blob, ms=self.calls))

    def effect(self) -> None:
        call = self.call()
        self.group(StepStarted(**call, idempotency_key="k", arguments=self.choose.choice([NOTHING, Raw(b"[1]")])))
        ending = self.choose.randrange(4)
        if ending == 0:
            self.group(StepCompleted(**call, effect=True, result=Raw(b"1"), how="verified"))
        elif ending == 1:
            self.group(StepFailed(**call, effect=True, not_done=True, error=Failure("E", "x")))
        elif ending == 2:
            self.group(Doubt(**call, id=f"d{self.moment.doubts_asked + 1}", why="unknown_outcome", cause="a crash"))

    def ask(self) -> None:
        key = self.scope()
        others = tuple(self.moment.scopes[key].started) + tuple(self.moment.scopes[key].done)[:1]
        self.group(
            Doubt(**self.call(key), id=f"d{self.moment.doubts_asked + 1}", why="unclaimed", others=others, cause="")
        )

    def answer(self) -> None:
        if self.moment.doubts:
            id = self.choose.choice([*self.moment.doubts])
            outcome = self.choose.choice(["done", "not_done"])
            result = self.choose.choice([NOTHING, Raw(b'"r"')]) if outcome == "done" else NOTHING
            self.group(Resolved(id=id, outcome=outcome, by="ann", result=result))  # type: ignore[arg-type]

    def fail(self) -> None:
        self.group(StepFailed(**self.call(), error=Failure("E", "x"), attempt=2))

    def plan(self) -> None:
        splices = self.moment.plan.copy().write("Plan ü", [f"do {self.calls}", "do\u2028it"])
        self.group(PlanChanged(plan=tuple(splices), by=self.choose.choice(["agent", "person"]), why="planned"))

    def promote(self) -> None:
        call = self.call()
        for attempt in range(1, self.choose.randrange(1, 4)):
            self.group(
                PartialPromoted(
                    **call, attempt=attempt, file="recovered/x.md", characters=3, damaged=False, cut_off_at=AT,
                    cut_off_by="crash",
                )
            )  # fmt: skip
        if self.choose.random() < 0.3:
            self.group(StepCompleted(**call, result=Raw(b'"done"')))

    def progress(self) -> None:
        call = self.call()
        self.group(StepProgress(**call, value=Raw(b"[1,2]")))
        if self.choose.random() < 0.3:
            self.group(StepCompleted(**call, result=Raw(b"1")))


def shown(moment: Moment) -> Any:
    """All that a moment says, as plain values that can be compared. Messages whose scope has not committed with them
    count for nothing, and `new_messages` is only what a file still lacks."""
    facts = {name: getattr(moment, name) for name in moment.__struct_fields__ if name not in ("plan", "new_messages")}
    facts["plan"] = (moment.plan.text, moment.plan.outline())
    facts["scopes"] = {
        key: {name: getattr(scope, name) for name in scope.__struct_fields__ if name != "messages"}
        for key, scope in moment.scopes.items()
    }
    return facts


def read_again(lines: Iterable[Line]) -> list[Line]:
    """Values of a patch become part of the moment, so lines are applied once."""
    return [record.parse(record.encode(line)[:-1]) for line in lines]


def grown(seed: int, actions: int) -> History:
    history = History(random.Random(seed))
    for _ in range(actions):
        history.act()
    return history


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 25), st.data())
def test_a_moment_read_from_any_checkpoint_and_continued_is_the_uninterrupted_one(
    seed: int, actions: int, data: st.DataObject
) -> None:
    history = grown(seed, actions)
    cut = data.draw(st.integers(0, len(history.groups)))
    early = Moment(run_id=RUN)
    for group in history.groups[:cut]:
        early.apply(read_again(group))
    read, at = checkpoint.parse(checkpoint.encode(early, MessagesAt(early.messages, 7, "00000000")))
    assert shown(read) == shown(early) and at == MessagesAt(early.messages, 7, "00000000")
    for group in history.groups[cut:]:
        read.apply(read_again(group))
    assert shown(read) == shown(history.moment)


@given(st.integers(0, 2**32))
def test_the_same_records_give_the_same_moment_however_they_are_cut_into_calls(seed: int) -> None:
    history = grown(seed, 15)
    at_once = Moment(run_id=RUN)
    at_once.apply(read_again(line for group in history.groups for line in group))
    assert shown(at_once) == shown(history.moment)
    assert at_once.new_messages == history.moment.new_messages


@given(st.integers(0, 2**32))
def test_a_checkpoint_is_the_same_bytes_when_it_is_written_again(seed: int) -> None:
    data = checkpoint.encode(grown(seed, 12).moment, MessagesAt())
    assert checkpoint.encode(*checkpoint.parse(data)) == data


SAMPLE = grown(1, 40).moment
DATA = checkpoint.encode(SAMPLE, MessagesAt())


def test_a_checkpoint_with_any_byte_changed_is_refused() -> None:
    for at in range(len(DATA) - 1):
        for byte in {DATA[at] ^ 1, 0}:
            with pytest.raises(ValueError):
                checkpoint.parse(DATA[:at] + bytes([byte]) + DATA[at + 1 :])


def test_a_checkpoint_cut_anywhere_is_refused() -> None:
    for at in range(len(DATA) - 1):
        with pytest.raises(ValueError):
            checkpoint.parse(DATA[:at])


def test_a_checkpoint_is_json_with_its_hash_last() -> None:
    facts = json.loads(DATA)
    assert next(iter(facts)) == "format" and next(reversed(facts)) == "sha256"
    assert facts["sha256"] == hashlib.sha256(DATA[: DATA.rindex(b',"sha256"')]).hexdigest()


def signed(facts: Any) -> bytes:
    body = (facts if isinstance(facts, bytes) else json.dumps(facts).encode())[:-1]
    return b'%s,"sha256":"%s"}\n' % (body, hashlib.sha256(body).hexdigest().encode())


def changed(**changes: Any) -> dict[str, Any]:
    facts = json.loads(DATA)
    del facts["sha256"]
    return facts | changes


def test_a_newer_checkpoint_is_not_a_broken_one() -> None:
    with pytest.raises(NewerFormat, match=r"(?i)upgrade"):
        checkpoint.parse(signed(changed(format=2, agents="something else altogether")))


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "facts",
    [
        {}, changed(agents={}), changed(agents={"other": changed()["agents"][""]}), changed(at={"seq": -1, "epoch": 1}),
        changed(at={"seq": 1, "epoch": -1}), changed(at={"seq": 1, "epoch": 10**12}),
        changed(at={"seq": 10**13, "epoch": 1}),
        changed(status="asleep"), changed(format="1"), changed(agents={"": changed()["agents"][""] | {"open": {}}}),
        changed(run_id=5), json.dumps(changed()).encode()[:-1] + b',"x":' + DEEP + b"}",
        json.dumps(changed()).encode()[:-1] + b',"reason":"\xff"}', b"[1]", b"null",
    ],
    ids=lambda facts: str(facts)[:20],
)  # fmt: skip
def test_a_signed_checkpoint_that_says_nothing_sensible_is_refused(facts: Any) -> None:
    with pytest.raises(ValueError):
        checkpoint.parse(signed(facts))


def test_an_id_of_many_digits_does_not_make_checkpoints_impossible() -> None:
    moment = Moment(run_id=RUN)
    key = "9" * 40
    moment.apply([Line(1, 1, AT, 1, ScopeBegun(scope=key, title="a"))])
    moment.apply([Line(2, 2, AT, 1, PlanChanged(plan=tuple(moment.plan.copy().write(None, ["a"])), by="agent"))])
    read, _ = checkpoint.parse(checkpoint.encode(moment, MessagesAt()))
    assert shown(read) == shown(moment)
    task = read.plan.next_leaf()
    assert task is not None
    read.plan.begin(task, read.highest_id)
    assert read.plan.tasks[0].id == "1"  # and not one too long to be an id


# The files


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    (tmp_path / "workspace.yaml").write_text(f"format: 1\nrun_id: {RUN}\nagent: agent.py:main\n")
    return DiskStore(tmp_path)


def moment_at(seq: int) -> Moment:
    moment = Moment(run_id=RUN)
    moment.seq, moment.epoch = seq, 1
    return moment


def test_only_the_newest_checkpoints_are_kept_and_nothing_else_is_removed(store: DiskStore) -> None:
    store.replace("checkpoints/notes.txt", b"mine")
    for seq in range(1, 10):
        checkpoint.write(store, moment_at(seq), MessagesAt())
    assert [path[12:24] for path in checkpoint.paths(store)] == [f"{seq:012d}" for seq in range(5, 10)]
    assert store.read("checkpoints/notes.txt").data == b"mine"
    assert checkpoint.newest(store)[0].seq == 9  # type: ignore[union-attr]


@pytest.mark.parametrize("damage", [b"", b"{}", DATA[:-9], b"\0" * 500, DATA.replace(b"run-1", b"run-2")])
def test_a_broken_checkpoint_is_passed_over_and_complained_of(store: DiskStore, damage: bytes) -> None:
    for seq in (3, 4, 5):
        checkpoint.write(store, moment_at(seq), MessagesAt())
    store.replace(checkpoint.paths(store)[-1], damage)
    moment, _, complaints = checkpoint.newest(store)
    assert moment is not None and moment.seq == 4
    assert len(complaints) == 1 and "000000000005" in complaints[0]
    store.replace(checkpoint.paths(store)[-2], b"x")
    assert checkpoint.newest(store)[0].seq == 3  # type: ignore[union-attr]
    store.replace(checkpoint.paths(store)[0], b"x")
    moment, at, complaints = checkpoint.newest(store)
    assert moment is None and at == MessagesAt() and len(complaints) == 3


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_checkpoint_that_is_no_file_is_passed_over(store: DiskStore, tmp_path: Path, kind: str) -> None:
    checkpoint.write(store, moment_at(3), MessagesAt())
    planted = tmp_path / "checkpoints/000000000009-x.json"
    planted.symlink_to("/etc/passwd") if kind == "link" else planted.mkdir()
    moment, _, complaints = checkpoint.newest(store)
    assert moment is not None and moment.seq == 3 and len(complaints) == (kind == "link")


def test_a_newer_checkpoint_is_never_passed_over(store: DiskStore) -> None:
    checkpoint.write(store, moment_at(3), MessagesAt())
    store.replace("checkpoints/000000000009-x.json", signed(changed(format=2)))
    with pytest.raises(NewerFormat):
        checkpoint.newest(store)


def test_a_checkpoint_ahead_of_the_journal_is_refused_with_advice(store: DiskStore) -> None:
    from satchel.workspace.errors import Damaged

    history = grown(3, 5)
    lines = [line for group in history.groups for line in group]
    store.replace("journal/000000000001.jsonl", b"".join(map(record.encode, lines[:-1])))
    checkpoint.write(store, history.moment, MessagesAt())
    with pytest.raises(Damaged, match="checkpoint stands at") as refused:
        look(store)
    assert refused.value.remedy and "copy" in refused.value.remedy


def test_a_checkpoint_of_another_run_is_refused_with_advice(store: DiskStore) -> None:
    from satchel.workspace.errors import Damaged

    moment = moment_at(3)
    moment.run_id = "another"
    checkpoint.write(store, moment, MessagesAt())
    with pytest.raises((Damaged, InvalidFile), match="another"):
        look(store)


def test_without_any_checkpoint_the_whole_journal_is_read(store: DiskStore) -> None:
    history = grown(5, 20)
    store.replace(
        "journal/000000000001.jsonl", b"".join(record.encode(line) for group in history.groups for line in group)
    )
    assert shown(look(store).moment) == shown(history.moment)
