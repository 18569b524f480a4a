"""A person in a real browser who returns to earlier moments, edits against the run, and pauses it until a time: on a
disk and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from servers import Server

import satchel

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

from .chrome import Chrome, Served, Tab, chrome
from .conftest import make

__all__ = ["chrome"]

pytestmark = pytest.mark.slow

MAILING = """
from satchel import agent, effect, step

@step
def write(text: str) -> str:
    return text.upper()

@effect
def mail(text: str) -> str:
    with open(SENT, "a") as sent:
        sent.write(text + "\\n")
    return "sent"

async def work(run, item):
    if item.text == "ask":
        await run.ask("Go on?", ["yes", "no"], wait_for=0)
    else:
        await mail(await write(item.text))
    run.state["letters"] = run.state.get("letters", 0) + 1

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Letters", PLAN)
    await run.todo.each(work)
"""


PLANS = {"letters": ["Ada", "Grace", "Barbara"], "again": ["Ada", "Grace"], "held": ["Ada", "ask", "Grace", "ask"]}
"""A run for each test, by its name. It sends a letter for each item, and waits for a person at `ask`."""


class Root(NamedTuple):
    """Where the runs are, and the page of them."""

    url: str
    served: Served
    folder: Path

    def run(self, name: str) -> satchel.Handle:
        return satchel.open(f"{self.url}/team/{name}")

    def sent(self, name: str) -> list[str]:
        """The letters that have left, whoever's memory of them is gone."""
        return (self.folder / f"{name}.sent").read_text().splitlines()


@pytest.fixture(scope="module", params=["disk", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        url = str(folder / "runs")
        if request.param == "disk":
            (folder / "runs").mkdir()
        else:
            server: Server = request.getfixturevalue("seaweedfs")
            for name, value in server.environment().items():
                patch.setenv(name, value)
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            url = f"{server.place()}/runs"
        for name, plan in PLANS.items():  # before the page looks: in a bucket, it lists new runs only after a while
            template = folder / "templates" / name
            sent = str(folder / f"{name}.sent")
            make(template, MAILING.replace("SENT", repr(sent)).replace("PLAN", repr(plan)))
            satchel.new(template, f"{url}/team/{name}")
        with Served(url) as served:
            yield Root(url, served, folder)


def marks(handle: satchel.Handle) -> dict[str, str]:
    """The items of the plan, and how far each is."""
    plan = handle.status().plan
    assert plan
    return {task.text: task.mark for task in plan.tasks}


def data(handle: satchel.Handle) -> Any:
    return handle.history.show().moment.agents[""].data


def calls(handle: satchel.Handle) -> list[str]:
    """The steps and effects that the journal has results of, in their order."""
    return [row.record["step"] for row in handle.history.log(type="step.completed")]


def effects(tab: Tab) -> list[str]:
    """The letters that the page lists as sent since the moment, or by the item."""
    listed = tab.do(lambda page: page.locator(".effects code").all_inner_texts())
    return [each.removeprefix('mail("text":"').removesuffix('")') for each in listed]


def test_a_person_can_not_return_to_an_earlier_moment(root: Root, chrome: Chrome) -> None:
    run = root.run("letters")
    assert run.run().status == "completed" and root.sent("letters") == ["ADA", "GRACE", "BARBARA"]
    newest = run.history.show().seq
    with chrome.tab(root.served.url) as tab:
        tab.go("/run/team/letters")
        tab.follow("State")
        tab.do(lambda page: page.get_by_role("textbox", name="Moment", exact=True).fill("^2"))
        tab.press("Go there")
        tab.follow("Fork or rewind from here")
        assert effects(tab) == ["GRACE", "BARBARA"], "Ada's letter was sent before"
        tab.fill("Name below", "team/others")
        tab.press("Fork")
        assert "a fork of team/letters" in tab.note and tab.url.startswith(f"{root.served.url}/run/team/others?")
        tab.until(".items .done", "Ada")
        fork = root.run("others")
        assert marks(fork) == {"Ada": "done", "Grace": "open", "Barbara": "open"} and data(fork) == {"letters": 1}
        assert run.history.show().seq == newest, "the run itself stays as it is"
        assert fork.resume().status == "completed" and calls(fork) == ["write", "write"]
        assert data(fork) == {"letters": 3} and root.sent("letters") == ["ADA", "GRACE", "BARBARA"]

        tab.go("/run/team/letters/-/back/^3")
        assert effects(tab) == ["BARBARA"]
        tab.press("Rewind the run")
        assert "Resume continues it" in tab.note
        tab.until(".items .open", "Barbara")
        assert marks(run) == {"Ada": "done", "Grace": "done", "Barbara": "open"} and data(run) == {"letters": 2}
        assert run.status().state != "completed" and len([*run.history.log(type="rewound")]) == 1
        done = len(calls(run))
        assert run.resume().status == "completed" and calls(run)[done:] == ["write"]
        assert root.sent("letters") == ["ADA", "GRACE", "BARBARA"]

        tab.go("/run/team/letters/-/back/^2")
        assert effects(tab) == ["GRACE", "BARBARA"]
        tab.check("do the effects again")
        tab.press("Rewind the run")
        assert run.resume().status == "completed" and root.sent("letters")[3:] == ["GRACE", "BARBARA"]
        assert not tab.wrong


def test_an_item_can_not_be_done_again(root: Root, chrome: Chrome) -> None:
    run = root.run("again")
    assert run.run().status == "completed"
    with chrome.tab(root.served.url) as tab:
        tab.go("/run/team/again")
        for with_effects in (False, True):
            tab.follow("Plan")
            tab.follow("do again Ada")
            assert effects(tab) == ["ADA"]
            if with_effects:
                tab.check("do its effects again, too")
            tab.press("Do the item again")
            assert "Ada" in tab.note and "will be done again" in tab.note
            assert marks(run) == {"Ada": "open", "Grace": "done"} and run.status().state == "completed"
            tab.open("Resume")  # there is something to do again
            done = len(calls(run))
            assert run.resume().status == "completed"
            assert calls(run)[done:] == (["write", "mail"] if with_effects else ["write"])
            assert root.sent("again") == ["ADA", "GRACE", *(["ADA"] if with_effects else [])]
        assert data(run) == {"letters": 4} and not tab.wrong


def test_a_conflict_can_not_be_settled_or_a_pause_has_no_end(root: Root, chrome: Chrome) -> None:
    run = root.run("held")
    assert run.run().status == "waiting" and data(run) == {"letters": 1}
    with chrome.tab(root.served.url) as tab:
        tab.go("/run/team/held")
        tab.follow("state.json")
        text = tab.value("state.json")
        run.answer("yes", "a1")
        assert run.run().status == "waiting" and data(run) == {"letters": 3}
        mine = text.replace('"letters": 1', '"letters": 10')
        tab.fill("state.json", mine)
        tab.press("Save")
        assert "conflicts with the run" in tab.text and tab.value("state.json") == mine and data(run) == {"letters": 3}
        tab.press("Save it as a conflict, and settle that next")
        assert [each.path for each in run.merge().open] == ["state.json"]
        tab.follow("Back to the run")
        tab.until(".card", "state.json conflicts with the run")
        tab.follow("Settle the conflict")
        sides = tab.do(lambda page: page.locator(".versions").inner_text())
        assert sides.split() == ["Before", "1", "The", "file", "(yours)", "10", "The", "run", "3"]
        assert "1 value of the run is replaced by yours" in tab.text
        tab.press("Use the file")
        assert "state.json: settled" in tab.note and run.merge().open == [] and data(run) == {"letters": 10}

        tab.open("Pause")
        tab.fill("Reason", "the <b>weekend</b>")
        tab.fill("Until", "noonish")
        tab.press("Pause the run")
        assert "is not a time" in tab.text and tab.value("Reason") == "the <b>weekend</b>"
        tab.fill("Until", "2099-12-31T08:00:00Z")
        tab.press("Pause the run")
        tab.until(".status", "the <b>weekend</b>")
        status = run.status()
        assert status.state == "paused" and status.moment and status.moment.pause
        assert status.moment.pause.until == "2099-12-31T08:00:00.000Z"
        assert run.run().status == "paused", "the time has not come"
        run.answer("yes", "a2")
        assert run.resume().status == "completed" and data(run) == {"letters": 11}
        tab.until(".state", "completed")
        assert not tab.wrong
