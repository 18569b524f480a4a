"""What a person is asked before something is done: a confirmation, work to send, and the list of keys."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import TextArea

from .lines import Bar, Lines, fold

KEYS = """\
q  leave; runs go on     ?  this list     Escape  back, follow again
arrows, Page Up/Down, Home, End, Tab      move, scroll, next part
Ctrl-Z  to the shell; fg comes back

All runs
Enter  open a run     b  back to all runs
/      filter by words of the folder, run, state or what it wants
o      order by what needs a person, or by name

One run
1 ... 7, left, right  views: overview, plan, timeline, text,
       questions, messages, details
a  answer a question
p  pause at the next safe point
r  start or resume, in the background
x  stop: kill what runs it, at once (asks first)
c  cancel: end the run for good (asks first)
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
