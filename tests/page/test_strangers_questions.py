"""What a person asks who sees the page for the first time: each answer is a few clicks from the list of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from .chrome import Chrome, Served, Tab, chrome
from .conftest import make

__all__ = ["chrome"]

REFUNDS = """
from satchel import agent, effect, step

@step
def ask_model(order):
    RUN.spend(usd=RUN.settings["usd"] * (3 if order == "lamp" else 1), tokens=100)
    if RUN.settings.get("fails") and order == "chair":
        raise ValueError("the shop has no chair")
    return f"I refund the {order}"

@effect
def send_mail(to, text):
    return "queued"

async def work(run, item):
    global RUN
    RUN = run
    run.messages.add("user", f"The {item.text} is broken")
    run.messages.add("assistant", await ask_model(item.text))
    run.messages.add("tool", await send_mail("ada@example.org", "Sorry"))
    if run.settings.get("asks"):
        answer = await run.ask(f"Refund the {item.text}?", arguments={"amount": 80, "to": "ada"}, wait_for=0)
        run.state[item.text] = dict(answer.arguments)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Refunds", ["lamp", "chair"])
    await run.todo.each(work)
    return "all"
"""


class Stranger:
    """Counts what a person presses, from the list of runs on."""

    def __init__(self, tab: Tab):
        self.tab, self.presses = tab, 0
        tab.go("/")

    def follow(self, link: str) -> Stranger:
        self.tab.follow(link)
        self.presses += 1
        return self

    def text(self, selector: str) -> str:
        return self.tab.do(lambda page: page.locator(selector).first.inner_text())


@pytest.mark.slow
def test_a_stranger_does_not_find_an_answer(tmp_path: Path, chrome: Chrome) -> None:
    root = tmp_path / "runs"
    make(root / "monday", REFUNDS, "settings: {usd: 0.2}\n").run()
    make(root / "tuesday", REFUNDS, "settings: {usd: 0.1, fails: true}\n").run()
    asking = make(root / "wednesday", REFUNDS, "settings: {usd: 0.2, asks: true}\n")
    assert asking.run().status == "waiting"
    with Served(str(root)) as served, chrome.tab(served.url) as tab:
        # Why did it fail?
        stranger = Stranger(tab)
        assert "the shop has no chair" in tab.text, "already in the list"
        told = stranger.follow("tuesday").text(".diagnosis")
        assert "the shop has no chair" in told and "agent.py:" in told and "ask_model" in told and stranger.presses == 1
        # Which call was the dearest?
        stranger = Stranger(tab)
        stranger.follow("monday").follow("Cost").follow("^1/1 ask_model")
        assert "$0.60" in tab.text and stranger.presses == 3
        # What did the model see before it sent the mail?
        stranger = Stranger(tab)
        said = stranger.follow("monday").follow("Messages").text(".messages")
        assert said.index("The lamp is broken") < said.index("I refund the lamp") < said.index("queued")
        assert stranger.presses == 2
        # The same, from the mail
        stranger = Stranger(tab)
        sent = '^1 send_mail("text":"Sorry","to":"ada@example.org") -> "queued"'
        said = stranger.follow("monday").follow(sent).follow("What was said before it").text(".messages")
        assert said.index("The lamp is broken") < said.index("I refund the lamp") and "queued" not in said
        assert stranger.presses == 3
        # Approve the refund with 50 in place of 80
        stranger = Stranger(tab)
        stranger.follow("Refund the lamp?")
        tab.open("Approve with changes")
        tab.fill("amount", "50")
        tab.press("Approve with these changes")
        assert "approve with amount: 50" in tab.note
        asking.run()
        assert asking.history.show().agents[0].data["lamp"]["amount"] == 50
        # Which of two runs did better?
        stranger = Stranger(tab)
        sides = stranger.follow("monday").follow("Compare with another run").follow("tuesday").text(".sides")
        assert "2 of 2 better" in " ".join(sides.split()) and stranger.presses == 3
        # The same, from the list
        stranger = Stranger(tab)
        for name in ("monday", "tuesday"):
            tab.do(lambda page, name=name: page.get_by_label(f"Choose {name}", exact=True).check())
        tab.press("Compare")
        assert "2 of 2 better" in " ".join(stranger.text(".sides").split())
        assert not tab.wrong
