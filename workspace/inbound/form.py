"""approvals/ID.yaml: the form that a person fills in, Satchel's remarks in it, and the answer in it. Pure.

Satchel's own text is comments of its own kinds (`# not accepted: `, `# answered: `, `# withdrawn: `), which are removed
before new ones are added, and the last line, which shows that the file is unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ... import schemas
from ...schemas import Problem, Where, dotted, nearest, short
from ..base import InvalidFile, UsageError, decode
from ..formats import yamltext
from ..journal import NOTHING
from ..state import DONE, NONE_SINCE, REDO, RecordedAnswer, same
from .question import APPROVE, Question, with_changes

if TYPE_CHECKING:
    from ..formats import YamlDocument

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
_NOT_THIS = "Move this file away; the run then writes the question again"


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
    elif question.is_lost:
        how = [
            f"write {DONE} as the decision below if the lost owner has done it (and its return value as the result),",
            f"{REDO} if it has not, or {NONE_SINCE} if it has not and has done nothing else after the backup either:",
            "then no other effect is asked about. Save this file.",
        ]
    elif question.is_doubt:
        how = [
            f"write {DONE} as the decision below if it has happened (and its return value as the result),",
            f"or {REDO} if it has not happened and may be done again; then save this file.",
        ]
    elif question.choices:
        some = [_typeable(each) for each in question.choices[:_LISTED]]
        how = ["write one of these as the decision below and save this file:", "", *(f"    {each}" for each in some)]
        how += ["    ..."] if len(question.choices) > _LISTED else []
        if question.may_change:
            how += ["", f"To {APPROVE} it with other arguments, write those that you change as arguments, such as"]
            name = _typeable(next(iter(question.arguments or {}), "name"))
            how += [f"{{{name}: ...}}. The others stay as they were asked."]
        if question.tool:
            tool = _typeable(question.tool)
            how += ["", f"To {APPROVE} each later call of {tool} in this run, too, write true as standing."]
    elif question.schema is not None:
        how = ["write what answer_schema describes as the decision below, and save this file."]
    else:
        how = ["write your answer as the decision below and save this file."]
    lines = ["A run waits for your answer:", *how, ""]
    lines.append("You can add your name (by) and a note. The run records the answer before it continues. A recorded")
    lines.append(f"answer can't be changed. To answer from a shell: satchel answer WORKSPACE {question.id} ...")
    return "".join(f"# {' '.join(line.splitlines())}".rstrip() + "\n" if line else "#\n" for line in lines)


def _typeable(text: str) -> str:
    """A text as a person can type it. What can't be seen, or turns the line around, is escaped as in YAML."""
    if text.isprintable():
        return text
    escaped = text.encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{escaped}"'


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
    if (value := _value(beside)) is not _UNREADABLE and value == _value(inside):
        return _signed_like(data, beside)
    count = len(problems)  # at the top, where a comment can't become part of a value
    places = [_LINE.sub(lambda match: f"line {int(match[1]) + count}", problem.place) for problem in problems]
    told = [_reason(problem, place) for problem, place in zip(problems, places, strict=True)]
    return _signed_like(data, _with_remarks(inside, {0: told}))


def answered(data: bytes, answer: RecordedAnswer) -> bytes | None:
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


def tells(data: bytes, answer: RecordedAnswer) -> bool:
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
    """None of a form without a value, `_UNREADABLE` of one that can't be read."""
    try:
        return yamltext.latest(text, "").value
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


# The answer in a form


class Reply(NamedTuple):
    """A typed answer. `by` and `note` are empty if they were left out; `result` is for a doubt, as JSON. `how`: typed
    into the file by a person, or written there by a command while another process had the run. `arguments` are those
    that it changes. `standing`: it also counts for later calls of the tool."""

    decision: Any
    by: str
    note: str
    result: msgspec.Raw
    how: Literal["file", "command"] = "file"
    arguments: Mapping[str, Any] = MappingProxyType({})
    standing: bool = False


def read_reply(question: Question, run_id: str, data: bytes) -> Reply | None:
    """The answer in the file; None if there is none yet. InvalidFile if it can't be taken: its lines are those of the
    file without Satchel's remarks."""
    path = question.path
    text = words(decode(data, path))
    document = yamltext.load(text, path)
    said = document.value
    if not isinstance(said, dict):
        found = "nothing" if said is None else short(said)
        raise InvalidFile(path, [Problem("line 1", found, "the question and its answer", _NOT_THIS)])
    if problems := schemas.problems("approval", said, place=document.place):
        raise InvalidFile(path, problems)
    _check_question(question, run_id, said, document)
    if said.get("status", "open") != "open":
        problem = Problem(
            document.place(("status",)), short(said["status"]), "open: no answer is recorded yet", "Put `open` back"
        )
        raise InvalidFile(question.path, [problem])
    decision = said.get("decision")
    written = _written(text, document, "decision")
    if (decision is None and written not in question.choices) or decision == "":
        _check_result(question, said, None, document)
        return None
    answer = fit_decision(question, decision, written, file=path, place=document.place)
    result = _check_result(question, said, answer, document)
    changes = _changes(question, said.get("arguments"), answer, text, document)
    by, note = (said.get("by") or "").strip(), (said.get("note") or "").strip()
    standing = said.get("standing") is True
    if standing:
        check_standing(question, answer, changes, file=path, place=document.place)
    return Reply(answer, by, note, result, said.get("how") or "file", changes, standing)


def typed_arguments(data: bytes) -> Any:
    """The arguments in a form, whether or not they are valid; None if there are none, or it can't be read."""
    said = _said(data)
    return said.get("arguments") if isinstance(said, dict) else None


def _said(data: bytes) -> Any:
    return None if (text := _decoded(data)) is None else _value(words(text))


def revoked_by(run_id: str, id: str, data: bytes) -> str | None:
    """Whether the file of a standing approval says that it does not stand any more: by whom, or an empty text. None if
    it does not say so, or can't be read."""
    said = _said(data)
    if not isinstance(said, dict) or said.get("standing") is not False:
        return None
    if not same([said.get("run_id"), said.get("id")], [run_id, id]):
        return None
    by = said.get("revoked_by")
    return by.strip() if isinstance(by, str) else ""


def check_asked(question: Question, run_id: str, data: bytes) -> None:
    """InvalidFile if a form does not show the question as it was asked."""
    document = yamltext.load(words(decode(data, question.path)), question.path)
    _check_question(question, run_id, document.value, document)
    if question.is_doubt and not same(document.value.get("question"), question.text):
        place, found = document.place(("question",)), short(document.value.get("question"))
        expected = f"{short(question.text)}, as it was asked"
        raise InvalidFile(question.path, [Problem(place, found, expected, "")])


def form_problems(path: str, data: bytes) -> list[Problem]:
    """What is wrong with a file in approvals/, whatever its question is. InvalidFile if it is not YAML."""
    document = yamltext.load(decode(data, path), path)
    return schemas.problems("approval", document.value, place=document.place)


def check_form(path: str, data: bytes) -> None:
    """InvalidFile if it is no form."""
    if problems := form_problems(path, data):
        raise InvalidFile(path, problems)


def _written(text: str, document: YamlDocument, *path: str) -> str:
    """A value as it is in the file, if it has no quotes."""
    node = document.root
    for key in path:
        node = node.items.get(key) if node else None
    return text[node.start : node.end].strip() if node and node.kind == "scalar" and node.style == "plain" else ""


def _changes(question: Question, said: Any, answer: Any, text: str, document: YamlDocument) -> dict[str, Any]:
    """The arguments that the answer changes."""
    if said is None:
        return {}
    written = {name: _written(text, document, "arguments", name) for name in said} if isinstance(said, dict) else {}
    return fit_arguments(question, said, written, answer, file=question.path, place=document.place)


def _check_question(question: Question, run_id: str, said: dict[str, Any], document: YamlDocument) -> None:
    """A form must still have the question that was asked: an answer to another one does not count."""
    asked: dict[str, Any] = {"run_id": run_id, "id": question.id, "asked_at": question.asked_at}
    if not question.is_doubt:  # these are Satchel's own text, which may differ in another version
        asked |= {
            "question": question.text,
            "choices": list(question.choices) or None,
            "answer_schema": question.schema,
            "asked_arguments": question.arguments,
            "tool": question.tool or None,
            "context": question.facts.get("context"),
        }
    for key, value in asked.items():
        if not same(said.get(key), value):
            found = f"{short(said[key])} as `{key}`" if key in said else f"no `{key}`"
            remedy = f"Put it back. {_NOT_THIS}" if key in said else _NOT_THIS
            expected = f"{short(value)}, as it was asked: an answer to another question does not count"
            raise InvalidFile(question.path, [Problem(document.place((key,)), found, expected, remedy)])


def _check_result(question: Question, said: dict[str, Any], answer: Any, document: YamlDocument) -> msgspec.Raw:
    """For an effect in doubt: its result, if it has happened."""
    result = said.get("result")
    if result is None:
        return NOTHING
    if not (question.is_doubt and (answer is None or question.has_happened(answer))):
        expected = "no result, unless `decision` is done" if question.is_doubt else "no result: no effect is in doubt"
        remedy = "Leave it empty, or correct `decision`"
        problem = Problem(document.place(("result",)), "a result", expected, remedy)
        raise InvalidFile(question.path, [problem])
    return msgspec.Raw(msgspec.json.encode(result))


# Whether an answer fits its question: harmless differences are accepted, a typo never


def fit_decision(
    question: Question, value: Any, written: str = "", *, file: str, place: schemas.validate.Place = dotted
) -> Any:
    """`value` as a valid answer in JSON. InvalidFile, naming `file`, if it is none.

    `written` is its text in the file, if it has no quotes there: `3` and `true` are texts, too.
    """
    if question.choices:
        return _chosen(question, value, written.strip(), file, place)
    if question.schema is not None:
        return _valid(question.schema, value, written, file, place)
    text = value if isinstance(value, str) else written
    if not text.strip():
        raise InvalidFile(file, [Problem(place(("decision",)), short(value), "a text", "Write it in quotes")])
    return text.strip()


def fit_arguments(
    question: Question,
    said: Any,
    written: Mapping[str, str],
    decision: Any,
    *,
    file: str,
    place: schemas.validate.Place = dotted,
) -> dict[str, Any]:
    """The arguments that an answer changes, by name, in JSON. InvalidFile, naming `file`, if it may change none, or if
    they do not fit together with the others.

    `said` are the new values, and `written` their texts in the file, if they have no quotes there.
    """
    if not question.may_change:
        expected = "no arguments: the question was asked without any"
        raise InvalidFile(file, [Problem(place(("arguments",)), short(said), expected, "Remove them")])
    asked, schema = question.arguments or {}, question.schema
    if not isinstance(said, dict):
        expected = f"the arguments to change, such as {{{next(iter(asked), 'name')}: ...}}"
        raise InvalidFile(file, [Problem(place(("arguments",)), short(said), expected, "Write names and values")])
    known = [*asked, *(name for name in properties_of(schema) if name not in asked)]
    if unknown := [name for name in said if name not in known]:
        raise InvalidFile(file, [_unknown(name, known, place) for name in unknown[:_LISTED]])
    made = {**said}
    problems = _problems(question, made, place)
    for name, text in written.items():
        if problems and text and not isinstance(made[name], str):
            as_text = {**made, name: text}
            if len(left := _problems(question, as_text, place)) < len(problems):
                made, problems = as_text, left
    if problems:
        raise InvalidFile(file, problems)
    changes = {name: value for name, value in made.items() if name not in asked or not same(value, asked[name])}
    if changes and decision != APPROVE:
        expected = f"none, unless the decision is {APPROVE}"
        remedy = "Remove them, or correct the decision"
        raise InvalidFile(file, [Problem(place(("arguments",)), short(changes), expected, remedy)])
    return changes


def check_standing(
    question: Question, decision: Any, changes: Mapping[str, Any], *, file: str, place: schemas.validate.Place = dotted
) -> None:
    """InvalidFile, naming `file`, if the answer can't stand for later calls, too."""
    if not question.tool:
        expected, remedy = "nothing: the agent has not said which tool it is about", "Remove it"
    elif decision != APPROVE:
        expected, remedy = f"nothing, unless the decision is {APPROVE}", "Remove it, or correct the decision"
    elif changes:
        expected, remedy = (
            "nothing together with changed arguments: later calls have their own",
            "Leave one of them out",
        )
    else:
        return
    raise InvalidFile(file, [Problem(place(("standing",)), "true", expected, remedy)])


def properties_of(schema: Any) -> dict[str, Any]:
    """The schemas of the values that an object may have, by name, as far as the top of its schema names them."""
    if isinstance(schema, dict) and isinstance(ref := schema.get("$ref"), str) and ref.startswith("#/$defs/"):
        schema = (schema.get("$defs") or {}).get(ref.removeprefix("#/$defs/"))
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _problems(question: Question, made: dict[str, Any], place: schemas.validate.Place) -> list[Problem]:
    def inside(path: Where) -> str:
        return place(("arguments", *path))

    schema = True if question.schema is None else question.schema
    return schemas.against(schema, {**(question.arguments or {}), **made}, inside)


def _unknown(name: str, known: list[str], place: schemas.validate.Place) -> Problem:
    meant = nearest(name, known)
    remedy = f"Did you mean {meant}?" if meant else "Remove it"
    return Problem(place(("arguments", name)), f"the argument {short(name)}", f"one of: {', '.join(known)}", remedy)


def _chosen(question: Question, value: Any, written: str, file: str, place: schemas.validate.Place) -> str:
    said = value.strip() if isinstance(value, str) else written
    if said in question.choices:
        return said
    alike = [choice for choice in question.choices if choice.casefold() == said.casefold()]
    if len(alike) == 1:
        return alike[0]
    meant = nearest(said, question.choices) if said else None
    shown = ", ".join(question.choices[:_LISTED]) + (", ..." if len(question.choices) > _LISTED else "")
    remedy = f"Did you mean {meant}?" if meant else "Write one of them"
    raise InvalidFile(file, [Problem(place(("decision",)), short(value), f"one of: {shown}", remedy)])


def _valid(schema: dict[str, Any] | bool, value: Any, written: str, file: str, place: schemas.validate.Place) -> Any:
    def inside(path: Where) -> str:
        return place(("decision", *path))

    problems = schemas.against(schema, value, inside)
    if problems and written and not isinstance(value, str) and not schemas.against(schema, written):
        return written
    if problems:
        raise InvalidFile(file, problems)
    return value
