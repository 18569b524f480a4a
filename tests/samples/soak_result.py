"""Whether a round of the soak has ended as it must, however it was played."""

from __future__ import annotations

import json
import mailbox
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import newcomers
from .folder import journal


@dataclass(frozen=True, slots=True)
class Found:
    folder: Path
    box: Path
    address: str
    is_approved: bool
    kills: int  # that its processes have died of


def problems(found: Found, counts: Counter[str]) -> list[str]:
    """What is lost, doubled, or otherwise than it must be; nothing if all is well."""
    records = journal(found.folder)
    return [*_done_once(found), *_said(found), *_recorded(found, records), *_released(found, records, counts)]


def _done_once(found: Found) -> Iterator[str]:
    accounts = newcomers.rows(found.folder, "accounts")
    if accounts != [("ada", "Ada Lovelace", found.address)]:
        yield f"accounts: {accounts}"
    privileges = newcomers.rows(found.folder, "privileges")
    if privileges != ([("ada", "billing", "Grace")] if found.is_approved else []):
        yield f"privileges, approved {found.is_approved}: {privileges}"
    mails = [mail for mail in mailbox.Maildir(found.box, create=False) if mail["To"] == found.address]
    text = (
        "Dear Ada Lovelace,\n\nyour account is ada.\n\nYou may "
        + ("use billing: approved" if found.is_approved else "not use billing: denied")
        + " by Grace.\n"
    )
    if [mail.get_payload() for mail in mails] != [text]:
        yield f"mails: {[mail.get_payload() for mail in mails]}"
    if (found.folder / "outputs" / "welcome.txt").read_text() != text:
        yield "outputs/welcome.txt is not the mail"


def _said(found: Found) -> Iterator[str]:
    """The files say what was done."""
    state = json.loads((found.folder / "state.json").read_text())
    decision = {"is_granted": found.is_approved, "by": "Grace", "note": ""}
    expected = {"account": "ada", "privileges": {"billing": decision}, "welcomed": found.address}
    if (state["status"], state["data"]) != ("completed", expected):
        yield f"state.json: {state}"
    for plan, items in (("todo.md", 3), ("agents/privileges/todo.md", 1)):
        text = (found.folder / plan).read_text()
        if text.count("- [x] ") != items or text.count("- [") != items:
            yield f"{plan}: {text}"
    pause = found.folder / "pause.yaml"
    if pause.exists() and "mode: emergency" not in pause.read_text():  # an emergency is ended by nobody but a person
        yield f"pause.yaml of a run that has completed: {pause.read_text()}"


def _recorded(found: Found, records: list[dict[str, Any]]) -> Iterator[str]:
    done = Counter(
        (record.get("agent", ""), record["scope"], record["step"], record["args"], record["n"])
        for record in records
        if record["type"] == "step.completed"
    )
    if twice := [call for call, count in done.items() if count > 1]:
        yield f"done twice: {twice}"
    answered = [at for at, record in enumerate(records) if record["type"] == "approval.answered"]
    begun = [at for at, record in enumerate(records) if record.get("step") == "set_privilege"]
    if len(answered) != 1:
        yield f"answers on record: {len(answered)}"
    elif begun and (not found.is_approved or begun[0] < answered[0]):
        yield "the privilege was begun without an approval on record"


def _released(found: Found, records: list[dict[str, Any]], counts: Counter[str]) -> Iterator[str]:
    """Every resource was closed as often as it was opened, except where the process was killed."""
    held: list[str] = []
    is_open, killed = False, 0
    for record in [*records, {"type": "opened"}]:
        if record["type"] == "opened":
            killed += is_open
            counts["resources lost to kills"] += len(held)
            held, is_open = [], True
        elif record["type"] == "resource":
            counts[f"resources {record['event']}"] += 1
            if record.get("outcome", "ok") != "ok":
                yield f"a resource: {record}"
            elif record["event"] == "opened":
                held.append(record["name"])
            elif held[-1:] != [record["name"]]:
                yield f"{record['name']} was released, and open are {held}"
            else:
                held.pop()
        elif record["type"] == "closed":
            is_open = False
            if held:
                yield f"not released: {held}"
    if killed > found.kills:
        yield f"{killed} starts came to no end, and only {found.kills} were killed"
