"""approvals/ID.yaml: the form that a person fills in, and Satchel's remarks in it. Pure.

Satchel's own text is comments of its own kinds (`# not accepted: `, `# answered: `, `# withdrawn: `), which are removed
before new ones are added, and the last line, which shows that the file is unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ....schemas import Problem
from ...base import InvalidFile, UsageError, decode
from ...formats import yamltext
from ...state import DONE, REDO, Answered, same
from .question import APPROVE, Question, with_changes

FORMAT = 1
_BOM = "\ufeff"
_STAMP = re.compile(r"^# satchel ([0-9a-f]{16})[ \t]*(?:\r?\n)?\Z", re.MULTILINE)
_OURS = re.compile(
    r"^# (?:(not accepted|answered|withdrawn): ([^\r\n]*)|satchel [0-9a-f]{16}[ \t]*)(?:\r\n|\n|\r|\Z)", re.MULTILINE
)
_ROW = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE = re.compile(r"line ([0-9]+)")
_MODELINE = "# yaml-language-server: $schema=../.satchel/schemas/approval.json\n"
_LISTED = 20


def blank(question: Question, run_id: str) -> bytes:
    """The empty form."""
    asked: dict[str, Any] = {"question": question.text}
    if question.choices:
        asked["choices"] = list(question.choices)
    if question.may_change:
        asked["asked_arguments"] = question.arguments
    if question.tool:
        asked["tool"] = question.tool
    if question.schema is not None:
        asked["answer_schema"] = question.schema
    if "context" in question.facts:
        asked["context"] = question.facts["context"]
    known: dict[str, Any] = {"status": "open", "asked_at": question.asked_at}
    known |= {"expires": question.expires} if question.expires else {}
    known |= {"default": question.facts["default"]} if "default" in question.facts else {}
    known |= {"agent": question.agent} if question.agent else {}
    known |= {"item": question.item} if question.item else {}
    known |= {"format": FORMAT, "run_id": run_id, "id": question.id}
    more = "result:\n" if question.is_doubt else "arguments:\n" if question.may_change else ""
    more += "standing:\n" if question.tool else ""
    return sign(
        f"{_MODELINE}{_instructions(question)}\n{yamltext.dump(asked)}\ndecision:\n{more}by:\nnote:\n\n"
        f"# The rest belongs to Satchel.\n{yamltext.dump(known)}"
    )


def _instructions(question: Question) -> str:
    if question.is_unclaimed:
        how = ["write one of these as the decision below and save this file:", ""]
        how += [f"    {each}: {question.meaning(each)}" for each in question.choices[:_LISTED]]
        how += ["    ..."] if len(question.choices) > _LISTED else []
        how += ["", "A result is what the earlier call returned; leave it empty if that is recorded."]
    elif question.is_doubt:
        how = [
            f"write {DONE} as the decision below if it has happened (and its return value as the result),",
            f"or {REDO} if it has not happened and may be done again; then save this file.",
        ]
    elif question.choices:
        some = list(question.choices[:_LISTED])
        how = ["write one of these as the decision below and save this file:", "", *(f"    {each}" for each in some)]
        how += ["    ..."] if len(question.choices) > _LISTED else []
        if question.may_change:
            how += ["", f"To {APPROVE} it with other arguments, write those that you change as arguments, such as"]
            how += [f"{{{next(iter(question.arguments or {}), 'name')}: ...}}. The others stay as they were asked."]
        if question.tool:
            how += ["", f"To {APPROVE} each later call of {question.tool} in this run, too, write true as standing."]
    elif question.schema is not None:
        how = ["write what answer_schema describes as the decision below, and save this file."]
    else:
        how = ["write your answer as the decision below and save this file."]
    lines = ["A run waits for your answer:", *how, ""]
    lines.append("You can add your name (by) and a note. The run records the answer before it continues. A recorded")
    lines.append(f"answer can't be changed. To answer from a shell: satchel answer WORKSPACE {question.id} ...")
    return "".join(f"# {' '.join(line.splitlines())}".rstrip() + "\n" if line else "#\n" for line in lines)


def sign(text: str) -> bytes:
    """`text` with a last line that identifies it."""
    end = "" if not text or text.endswith(("\n", "\r")) else _newline(text)
    body = (text + end).encode()
    return b"%s# satchel %s%s" % (body, _sha(body), _newline(text).encode())


def is_signed(data: bytes) -> bool:
    """Whether the file is unchanged since Satchel wrote it."""
    text = data.decode(errors="replace")
    match = _STAMP.search(text)
    return match is not None and _sha(text[: match.start()].encode()) == match[1].encode()


def is_open(data: bytes, run_id: str) -> bool:
    """Whether the file says that it is of this run, and that its question is open."""
    text = _decoded(data)
    if text is None or run_id not in text or "open" not in text:
        return False  # the usual case, without parsing
    said = _value(words(text))
    return isinstance(said, dict) and said.get("run_id") == run_id and said.get("status") == "open"


def words(text: str) -> str:
    """The text of people and of the form, without Satchel's remarks and stamps."""
    return _OURS.sub("", text)


def remarks(data: bytes, kind: Literal["not accepted", "answered", "withdrawn"]) -> list[str]:
    """Satchel's remarks in a file."""
    return [match[2] for match in _OURS.finditer(data.decode(errors="replace")) if match[1] == kind]


def refused(data: bytes, problems: Sequence[Problem]) -> bytes | None:
    """The file with the reasons next to what was not accepted. None if it can't contain a comment, because it is not
    UTF-8."""
    text = _decoded(data)
    if text is None:
        return None
    inside = words(text)
    by_line: dict[int, list[str]] = {}
    for problem in problems:
        line = int(match[1]) if (match := _LINE.match(problem.place)) else 0
        by_line.setdefault(line, []).append(_reason(problem))
    beside = _with_remarks(inside, by_line)
    if _value(beside) is not _UNREADABLE and _value(beside) == _value(inside):
        return _signed_like(data, beside)
    count = len(problems)  # at the top, where a comment can't become part of a value
    places = [_LINE.sub(lambda match: f"line {int(match[1]) + count}", problem.place) for problem in problems]
    told = [_reason(problem, place) for problem, place in zip(problems, places, strict=True)]
    return _signed_like(data, _with_remarks(inside, {0: told}))


def answered(data: bytes, answer: Answered) -> bytes | None:
    """The file of a recorded answer. What a person writes into it later stays, without effect."""
    text = _decoded(data)
    if text is None:
        return None
    inside, was_told = words(text), bool(remarks(data, "answered"))
    decision = msgspec.json.decode(answer.decision)
    changes = msgspec.json.decode(answer.changes) if len(answer.changes) else {}
    if not was_told:
        for key, value in (
            ("decision", decision),
            ("arguments", changes or None),
            ("standing", bool(answer.standing) or None),
            ("by", answer.by),
            ("note", answer.note),
            ("status", "answered"),
            ("answered_at", answer.at),
        ):
            inside = _set(inside, key, value)
    shown = " ".join(msgspec.json.encode(decision).decode().split()) if not isinstance(decision, str) else decision
    shown = " ".join(with_changes(shown, changes).split())[:200]
    by = "the default, because the question expired" if answer.how == "expired" else answer.by
    by = " ".join(by.split())
    said = f"# answered: {shown}, by {by}, {answer.at}. Changes to this file have no effect any more."
    if answer.standing and not answer.revoked:
        said = f"# answered: {shown}, and each later call of {answer.standing}, by {by}, {answer.at}. To revoke it for "
        said += "the calls that have not begun, write false as standing. Other changes have no effect any more."
    elif answer.standing:
        inside = _set(inside, "standing", False)
        said += f" It counted for the calls of {answer.standing} until it was revoked by {answer.revoked}."
    return _signed_like(data, said + _newline(inside) + inside)


def tells(data: bytes, answer: Answered) -> bool:
    """Whether the file shows the recorded answer, and that it was revoked."""
    told = remarks(data, "answered")
    return bool(told) and (not answer.revoked or "revoked by" in told[0])


def withdrawn(data: bytes) -> bytes | None:
    """The file of a withdrawn question."""
    text = _decoded(data)
    if text is None:
        return None
    inside = _set(words(text), "status", "withdrawn")
    said = "# withdrawn: the run no longer asks this. An answer has no effect."
    return _signed_like(data, said + _newline(inside) + inside)


def fill_in(data: bytes, values: dict[str, Any]) -> bytes:
    """A form with these keys filled in, as a person would. UsageError or InvalidFile if it is not one."""
    text = decode(data, "the form")
    for key, value in values.items():
        text = yamltext.set_value(text, (key,), value, file="the form")
    return text.encode()


_UNREADABLE = object()


def _value(text: str) -> Any:
    try:
        return yamltext.load(text, "").value
    except InvalidFile:
        return _UNREADABLE


def _set(text: str, key: str, value: Any) -> str:
    """Unless it already has this value, or can't be changed: then the comment at the top must be enough."""
    before = _value(text)
    if not isinstance(before, dict) or value == "" or same(before.get(key), value):
        return text
    try:
        return yamltext.set_value(text, (key,), value, file="")
    except (UsageError, InvalidFile):
        return text


def _with_remarks(text: str, by_line: dict[int, list[str]]) -> str:
    newline, rows = _newline(text), _ROW.findall(text)
    made = []
    for number, row in enumerate(["", *rows]):
        made += [f"# not accepted: {reason}{newline}" for reason in by_line.get(number, ())]
        made.append(row)
    return "".join(made)


def _reason(problem: Problem, place: str = "") -> str:
    remedy = f". {problem.remedy}" if problem.remedy else ""
    place = f"{place}: " if place else ""
    return " ".join(f"{place}found {problem.found}, expected {problem.expected}{remedy}".split())


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode().removeprefix(_BOM)
    except UnicodeDecodeError:
        return None


def _signed_like(was: bytes, text: str) -> bytes:
    return sign(_BOM + text if was.startswith(_BOM.encode()) else text)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _sha(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()
