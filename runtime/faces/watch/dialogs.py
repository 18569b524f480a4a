"""What a person is asked: a confirmation, work to send, the list of keys, and the form for an answer, which has the
question with its context, and its choices or a field for each value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, TextArea

from ....workspace.inbound import APPROVE
from ...api import OpenQuestion
from ...present import (
    argument_rows,
    choice_meaning,
    choice_tone,
    colour,
    context_text,
    covered,
    describe_reply,
    expiry_line,
)
from .lines import Bar, Lines, fold, plain

KEYS = """\
q  leave; runs go on     ?  this list     Escape  back, follow again
arrows, Page Up/Down, Home, End, Tab      move, scroll, next part
Ctrl-Z  to the shell; fg comes back

All runs
Enter  open a run     b  back to all runs
/      filter by words of the folder, run, state or what it wants
o      order by what needs a person, or by name

One run
1 ... 8, left, right  views: overview, plan, timeline, text,
       questions, messages, details, time
a  answer a question
p  pause at the next safe point
r  start or resume, in the background
x  stop: kill what runs it, at once (asks first)
c  cancel: end the run for good (asks first)
v  revoke an approval of later calls (asks first)
s  send work to its inbox     m  send a message to its agent
e  edit todo.md               E  edit state.json
   in your editor ($VISUAL or $EDITOR)
"""


class Help(Screen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", show=False)]

    def compose(self) -> ComposeResult:
        yield Lines("help")
        yield Bar("keys")

    def on_mount(self) -> None:
        self.query_one(Lines).focus()
        self.query_one("#keys", Bar).show(Text("Escape back", "reverse"))

    def on_resize(self, event: Resize) -> None:
        rows = fold(KEYS, event.size.width)
        self.query_one(Lines).show(len(rows), lambda index, width: Text(rows[index]))


class Confirm(ModalScreen[bool]):
    """A question before what can't be undone. Only `y` does it."""

    DEFAULT_CSS = """
    Confirm { align: left bottom; }
    Confirm Bar { background: ansi_default; padding: 0 0; border-top: solid; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        Binding("n,escape,q,enter", "dismiss(False)", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Bar("confirm")

    def on_mount(self) -> None:
        folded = fold(self._question, self.app.size.width)
        self.query_one(Bar).show(*map(Text, folded), Text("y yes   n no", "bold reverse"))


class Writing(Screen[str]):
    """A text to send. Its result is empty if a person leaves without sending."""

    DEFAULT_CSS = "Writing TextArea { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s,f2", "send", show=False, priority=True),
        Binding("escape", "leave", show=False, priority=True),
    ]

    def __init__(self, title: str, text: str = "", wrong: str = "") -> None:
        """`wrong`: why the `text` could not be sent."""
        super().__init__()
        self._title, self._text, self._wrong = title, text, wrong

    def compose(self) -> ComposeResult:
        yield Bar("title")
        yield TextArea(self._text, compact=True, highlight_cursor_line=False)
        yield Bar("keys")

    def on_mount(self) -> None:
        wrong = fold(self._wrong, self.app.size.width)[:3] if self._wrong else []
        self.query_one("#title", Bar).show(Text(self._title, "bold"), *(Text(line, "bold red") for line in wrong))
        self.query_one("#keys", Bar).show(Text("Ctrl-S send   Escape leave", "reverse"))
        self.query_one(TextArea).focus()

    def action_send(self) -> None:
        self.dismiss(self.query_one(TextArea).text.strip())

    def action_leave(self) -> None:
        self.dismiss("")


_CONTEXT = 20_000  # characters
_NAME = 20  # of an argument
_STANDING = "\0standing"
"""The choice to approve later calls of the tool, too. No choice of an agent has this name."""


class TypedAnswer(NamedTuple):
    """An answer as a person has typed it, as `Handle.answer` takes it. `is_typed`: texts as on a command line.
    `changes`: the arguments that it changes, as there. `standing`: it approves later calls of the tool, too."""

    id: str
    decision: Any
    note: str
    result: str | None
    is_typed: bool
    changes: str = ""
    standing: bool = False


class Field(NamedTuple):
    """One value of an answer, as its schema describes it. Its name is empty if it is the whole answer."""

    name: str
    kind: str
    about: str
    is_required: bool
    default: str

    def value_of(self, text: str) -> Any:
        """What a person has typed, as JSON. What is no JSON is text; the check of the answer says what is wrong."""
        if self.kind == "string":
            return text
        try:
            return json.loads(text)
        except ValueError:
            return text


def fields_of(schema: Any) -> list[Field]:
    """The values of an object, or the answer as a whole."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return [Field("", *_described(schema), True, "")]
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    found = []
    for name, inner in properties.items():
        default = inner.get("default") if isinstance(inner, Mapping) else None
        shown = "" if default is None else default if isinstance(default, str) else json.dumps(default)
        found.append(Field(str(name), *_described(inner), name in needed, shown))
    return found


def _described(schema: Any) -> tuple[str, str]:
    if not isinstance(schema, Mapping):
        return "", ""
    kind = schema.get("type")
    parts = [kind] if isinstance(kind, str) else []
    if isinstance(choices := schema.get("enum"), list):
        parts.append("one of " + ", ".join(each if isinstance(each, str) else json.dumps(each) for each in choices))
    parts += [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    if isinstance(about := schema.get("description"), str):
        parts.append(about)
    return kind if isinstance(kind, str) else "", ", ".join(parts)


class AnswerForm(Screen[TypedAnswer | Literal["next"] | None]):
    """Asks for one answer. Its result is None if a person leaves without answering, and "next" to read the next
    question first."""

    DEFAULT_CSS = """
    AnswerForm #question-lines { height: 1fr; min-height: 2; }
    AnswerForm #choices { height: auto; max-height: 8; }
    AnswerForm #form { height: auto; max-height: 60%; scrollbar-size: 0 0; }
    AnswerForm TextArea { height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False, priority=True),
        Binding("ctrl+s,f2", "give", show=False, priority=True),
        Binding("ctrl+n", "dismiss('next')", show=False, priority=True),
        Binding("pagedown", "read(1)", show=False, priority=True),
        Binding("pageup", "read(-1)", show=False, priority=True),
    ]

    def __init__(self, asked: OpenQuestion, more: int = 0) -> None:
        """`more`: how many other questions are open."""
        super().__init__()
        self._asked, self._more = asked, more
        tool = asked.question.tool if APPROVE in asked.choices else ""
        self._choices = [*asked.choices, *[_STANDING] * bool(tool)]
        self._fields = [] if asked.choices else fields_of(asked.schema)

    def compose(self) -> ComposeResult:
        yield Bar("title")
        yield Lines("question-lines")
        if self._asked.choices:
            yield Lines("choices", has_cursor=True)
        with VerticalScroll(id="form", can_focus=False):
            for number, field in enumerate(self._fields):
                yield Bar(f"label-{number}")
                is_text = not field.name and self._asked.schema is None
                key = f"field-{number}"
                yield TextArea(id=key, compact=True) if is_text else Input(field.default, id=key, compact=True)
            if self._wants_result:
                yield Bar("label-result")
                yield Input(id="result", compact=True)
            if self._asked.question.may_change:
                yield Bar("label-changes")
                yield Input(id="changes", compact=True)
            yield Bar("label-note")
            yield Input(id="note", compact=True)
        yield Bar("keys")

    @property
    def _wants_result(self) -> bool:
        return self._asked.question.is_doubt and not self._asked.question.is_unclaimed

    def on_mount(self) -> None:
        for number, field in enumerate(self._fields):
            need = "" if field.is_required else " (may be empty)"
            about = f": {field.about}" if field.about else ""
            label = f"{field.name or 'answer'}{need}{about}"
            self.query_one(f"#label-{number}", Bar).show(Text(plain(label), "bold"))
        if self._wants_result:
            self.query_one("#label-result", Bar).show(Text("what it has returned, if it is done", "bold"))
        if arguments := self._asked.arguments if self._asked.question.may_change else None:
            label = f"other arguments to approve, as {next(iter(arguments))}=VALUE (may be empty)"
            self.query_one("#label-changes", Bar).show(Text(plain(label), "bold"))
        self.query_one("#label-note", Bar).show(Text("note (may be empty)", "bold"))
        enter = "Enter answer" if self._asked.choices else "Ctrl-S answer"
        more = f"   Ctrl-N next question ({self._more} more)" if self._more else ""
        self.query_one("#keys", Bar).show(Text(f"{enter}   Tab next field{more}   Escape leave", "reverse"))
        if choices := self._choices if self._asked.choices else []:
            lines = self.query_one("#choices", Lines)
            lines.show(len(choices), self._choice)
            lines.styles.height = min(len(choices), 8)
            lines.cursor = -1  # so that one Enter too many answers nothing
            lines.focus()
        else:
            self.query_one("#field-0").focus()
        self._show_question()

    def on_resize(self) -> None:
        self._show_question()
        self.call_after_refresh(self._show_title)

    def _show_title(self) -> None:
        """With the place in a question that is longer than the screen, so that a person does not answer half of it."""
        lines, question = self.query_one("#question-lines", Lines), self._asked.question
        seen, where = lines.seen, question.item or question.agent
        is_cut = len(seen) < lines.count
        place = f"  lines {seen.start + 1}-{seen.stop} of {lines.count}, Page Down" if is_cut else ""
        shown = plain(where, max(1, self.size.width - len(self._asked.id) - 1 - len(place))) if where else ""
        title = Text.assemble((self._asked.id, "bold reverse"), " ", (shown, "bold"), (place, "yellow"))
        self.query_one("#title", Bar).show(title)

    def on_lines_moved(self, event: Lines.Moved) -> None:
        self._show_title()

    def action_read(self, pages: int) -> None:
        self.query_one("#question-lines", Lines).action_page(pages)

    def _show_question(self) -> None:
        question, lines = self._asked.question, self.query_one("#question-lines", Lines)
        parts = [question.text]
        if self._asked.named and self._asked.call:
            parts += ["", f"call {self._asked.named}  {self._asked.call}"]
        if rows := argument_rows(self._asked):
            width = min(max(len(name) for name, _ in rows), _NAME)
            lined = ((name, text.rstrip("\n").replace("\n", f"\n{' ' * (width + 2)}")) for name, text in rows)
            parts += ["", "\n".join(f"{name:<{width}}  {text}" for name, text in lined)[:_CONTEXT]]
        if "context" in question.facts:
            context = question.facts["context"]
            parts += ["", context_text(context)[:_CONTEXT]]
        if _STANDING in self._choices:
            parts += ["", f"an approval of later calls covers {covered(question.tool, question.asked.agent)}"]
        if said := expiry_line(question):
            parts += ["", said]
        if said := describe_reply(self._asked):
            parts += ["", f"its file says: {said}"]
        folded = fold("\n".join(parts), self.size.width)
        lines.show(len(folded), lambda index, width: Text(folded[index]), 0)

    def _choice(self, index: int, width: int) -> Text:
        choice, question = self._choices[index], self._asked.question
        if choice == _STANDING:
            return Text(plain(f"{index + 1}  {APPROVE}, and each later call of {question.tool}", width), "green")
        means, style = choice_meaning(question, choice), colour(choice_tone(question, choice)) or ""
        return Text(plain(f"{index + 1}  {choice}" + (f"  ({means})" if means else ""), width), style)

    def on_key(self, event: events.Key) -> None:
        """A digit chooses."""
        if isinstance(self.focused, Lines) and event.key.isdecimal() and event.key != "0":
            self.query_one("#choices", Lines).go(int(event.key) - 1)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        self.action_give()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes to the next field, and gives the answer in the last one."""
        inputs = [*self.query(Input)]
        if event.input is inputs[-1]:
            self.action_give()
        else:
            self.focus_next()

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_give(self) -> None:
        note, question = self.query_one("#note", Input).value.strip(), self._asked.question
        result = self.query_one("#result", Input).value.strip() if self._wants_result else ""
        if self._asked.choices:
            chosen = self.query_one("#choices", Lines).cursor
            if chosen < 0:
                self.query_one("#keys", Bar).show(Text("choose an answer with the arrows first", "reverse"))
                return
            is_standing = self._choices[chosen] == _STANDING
            decision: Any = APPROVE if is_standing else self._choices[chosen]
            has_result = bool(result) and question.has_happened(decision)
            changes = self.query_one("#changes", Input).value if question.may_change else ""
            told = result if has_result else None
            self.dismiss(TypedAnswer(self._asked.id, decision, note, told, True, changes, is_standing))
            return
        typed = [self._typed(number) for number in range(len(self._fields))]
        if self._fields[0].name:
            filled = zip(self._fields, typed, strict=True)
            decision = {each.name: each.value_of(text) for each, text in filled if text or each.is_required}
            self.dismiss(TypedAnswer(self._asked.id, decision, note, None, False))
        else:
            self.dismiss(TypedAnswer(self._asked.id, typed[0], note, None, True))

    def _typed(self, number: int) -> str:
        field = self.query_one(f"#field-{number}")
        return field.text if isinstance(field, TextArea) else field.value if isinstance(field, Input) else ""
