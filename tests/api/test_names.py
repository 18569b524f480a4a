"""A fact has one name, in a result and in the JSON of the command; and a result holds plain Python values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cli.conftest import Cli, Make, data_of

import satchel
from satchel import Handle

from .test_answering import GRANTING

MORE = {
    "run": {"exit_code"},
    "status": {"items", "inbox", "position", "edits", "conflicts", "diagnosis"},  # several facts in one
    "recover": {"exit_code"},
    "copy": {"exit_code"},
    "pause": {"url"},
}
"""What a program gets in addition."""

CALLS: dict[str, tuple[tuple[str, ...], Callable[[Handle], Any]]] = {
    "run": ((), Handle.run),
    "status": ((), Handle.status),
    "check": ((), Handle.check),
    "check --storage": ((), Handle.try_storage),
    "recover": ((), Handle.recover),
    "stop": ((), Handle.stop),
    "pause": ((), Handle.pause),
    "merge": ((), Handle.merge),
    "send": (("a task",), lambda handle: handle.send("a task")[0]),
    "answer": (("a1", "deny"), lambda handle: handle.answer("deny", "a1")),
    "copy": (("TO",), lambda handle: handle.copy(f"{handle.url}-2")),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", CALLS)
def test_a_fact_has_another_name_for_programs_than_in_python(make: Make, cli: Cli, name: str) -> None:
    one, other = make(GRANTING, "one"), make(GRANTING, "other")
    if name != "run":
        for folder in (one, other):
            satchel.open(folder).run()
    words, call = CALLS[name]
    given = [f"{one}-2" if word == "TO" else word for word in words]
    told: Any = data_of(cli(*name.split(), "--json", one, *given))
    result = call(satchel.open(other))
    keys = set(told[0] if isinstance(told, list) else told) - MORE.get(name, set())
    holders = [result, getattr(result, "moment", None), getattr(result, "definition", None)]
    assert keys and not [key for key in keys if not any(hasattr(each, key) for each in holders)]


def test_an_answer_is_not_equal_to_what_was_said(make: Make) -> None:
    handle = satchel.open(folder := make(GRANTING))
    handle.run()
    file = folder / "approvals/a1.yaml"
    file.write_text(file.read_text().replace("decision:", "decision: deny"))
    (asked,) = handle.questions()
    assert asked.reply and asked.reply.decision == "deny" and asked.reply.result is None and not asked.reply.at
    file.write_text(file.read_text().replace("decision: deny", "decision:"))
    done = handle.answer("deny", by="ada", note="not now")
    assert done.answer and done.answer.decision == "deny" and done.answer.by == "ada" and done.answer.at
    (row,) = handle.history.log(type="approval.answered")
    assert row.record["type"] == "approval.answered" and row.record["decision"] == "deny"
    assert "msgspec.Raw" not in repr([asked.reply, done.answer, row.record])
