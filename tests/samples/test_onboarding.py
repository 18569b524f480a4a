"""Somebody new gets one account, the privileges that were approved, and one mail, whatever dies in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from satchel import run
from satchel.workspace.inspect import lease
from satchel.workspace.store import DiskStore

from . import newcomers, post_office
from .folder import journal
from .newcomers import rows, satchel
from .post_office import PostOffice

ACCOUNT = ("ada", "Ada Lovelace", "ada@example.org")


@pytest.fixture
def office(tmp_path: Path) -> Iterator[PostOffice]:
    with post_office.opened(tmp_path / "box") as office:
        yield office


@pytest.fixture
def newcomer(tmp_path: Path, office: PostOffice) -> Path:
    return newcomers.make(tmp_path / "run", office.port, office.box)


def check_done(folder: Path, office: PostOffice, by: str = "Grace") -> None:
    assert rows(folder, "accounts") == [ACCOUNT]
    assert rows(folder, "privileges") == [("ada", "billing", by)]
    (mail,) = office.mails()
    assert mail["To"] == "ada@example.org"
    assert mail.get_payload() == (
        f"Dear Ada Lovelace,\n\nyour account is ada.\n\nYou may use billing: approved by {by}.\n"
    )
    assert newcomers.held_back(folder) == []


def test_it_waits_without_a_process_and_goes_on_when_the_file_says_approve(newcomer: Path, office: PostOffice) -> None:
    first = satchel("run", newcomer, "--quiet")
    assert first.returncode == 4, first.stdout + first.stderr
    assert newcomers.processes(newcomer) == []
    assert (rows(newcomer, "accounts"), rows(newcomer, "privileges"), office.mails()) == ([ACCOUNT], [], [])

    newcomers.type_answer(newcomer, "approve")
    second = satchel("run", newcomer, "--quiet")
    assert second.returncode == 0, second.stdout + second.stderr
    check_done(newcomer, office)
    assert (newcomer / "todo.md").read_text().count("- [x] ") == 3


def test_a_denial_sets_no_privilege_and_the_mail_says_so(newcomer: Path, office: PostOffice) -> None:
    assert satchel("run", newcomer, "--quiet").returncode == 4
    newcomers.type_answer(newcomer, "deny", note="not before May")
    assert satchel("run", newcomer, "--quiet").returncode == 0
    assert (rows(newcomer, "accounts"), rows(newcomer, "privileges")) == ([ACCOUNT], [])
    (mail,) = office.mails()
    assert "\nYou may not use billing: denied by Grace (not before May).\n" in mail.get_payload()
    assert "set_privilege" not in {record.get("step") for record in journal(newcomer)}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("moment", ["begun", "done"])
@pytest.mark.parametrize("effect", ["create_account", "set_privilege", "send"])
def test_killed_before_or_after_an_effect_it_asks_the_directory_or_the_mailbox(
    newcomer: Path, office: PostOffice, effect: str, moment: str
) -> None:
    if effect != "create_account":
        assert run(newcomer).status == "waiting"
        newcomers.type_answer(newcomer, "approve")
    newcomers.run_until_it_dies(newcomer, effect, moment)
    done = len(rows(newcomer, "accounts")), len(rows(newcomer, "privileges")), len(office.mails())
    order = ["create_account", "set_privilege", "send"].index(effect) + (moment == "done")
    assert done == tuple(int(number < order) for number in range(3)), "it was not killed at that moment"

    if effect == "create_account":
        assert run(newcomer).status == "waiting"
        newcomers.type_answer(newcomer, "approve")
    assert run(newcomer).status == "completed"
    check_done(newcomer, office)
    (record,) = [r for r in journal(newcomer) if r["type"] == "step.completed" and r["step"] == effect]
    assert record.get("how", "ran") == ("verified" if moment == "done" else "ran")


def test_killed_while_the_mail_server_answers_it_is_started_again_and_sends_no_second_mail(
    newcomer: Path, office: PostOffice
) -> None:
    assert satchel("run", newcomer, "--quiet").returncode == 4
    newcomers.type_answer(newcomer, "approve")
    killed: list[int] = []

    def kill() -> None:
        held = lease.read(DiskStore(newcomer))
        assert held is not None and held.supervisor is not None
        killed.append(held.pid)
        os.kill(held.pid, signal.SIGKILL)

    office.stored = kill
    last = satchel("run", newcomer)
    assert last.returncode == 0 and len(killed) == 1, last.stdout + last.stderr
    assert f"process {killed[0]} died of SIGKILL" in last.stderr
    check_done(newcomer, office)


def test_without_a_mail_server_nothing_is_done_and_the_reason_is_plain(newcomer: Path, office: PostOffice) -> None:
    newcomers.change(newcomer, "mail.port=9")
    first = satchel("run", newcomer, "--quiet")
    assert first.returncode == 3
    said = "resource mail is not available: its check failed: ConnectionError: no mail server answers at 127.0.0.1:9 "
    assert said in first.stdout + first.stderr
    assert rows(newcomer, "accounts") == [] and newcomers.held_back(newcomer) == []
    newcomers.change(newcomer, f"mail.port={office.port}")
    assert satchel("resume", newcomer, "--quiet").returncode == 4


def test_a_person_is_asked_where_nobody_can_look_into_the_mailbox(newcomer: Path, office: PostOffice) -> None:
    newcomers.change(newcomer, "mail.mailbox=''", "privileges=[]")
    newcomers.run_until_it_dies(newcomer, "send", "done")
    (doubt,) = run(newcomer).doubts
    assert "who reads that mail has to say if it came" in doubt.cause
    newcomers.type_answer(newcomer, "done", id="d1")
    assert run(newcomer).status == "completed"
    assert len(office.mails()) == 1


def test_a_mail_that_the_server_has_refused_is_sent_again(newcomer: Path, office: PostOffice) -> None:
    newcomers.change(newcomer, "privileges=[]")
    office.refusals.append("451 come back later")
    assert run(newcomer).status == "completed"
    (mail,) = office.mails()
    assert mail.get_payload() == "Dear Ada Lovelace,\n\nyour account is ada.\n"
