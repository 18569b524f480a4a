"""Who goes back, corrects a step or begins another run gets new answers of models. A restart does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from servers import BUCKET, Server

import satchel

from .in_process import ASK, Below, below, kept, until
from .keeping import HEAD, make
from .provider import Provider

DYING = (
    HEAD
    + ASK
    + """
import pathlib

@step
def ask(prompt: str) -> str:
    with OpenAI() as client:
        text = say(prompt, client)
    if not pathlib.Path(SEEN).exists():
        pathlib.Path(SEEN).touch()
        os._exit(9)
    return text

@step
def die() -> None:
    if os.path.exists(SEEN) and not os.path.exists(SEEN + ".twice"):
        pathlib.Path(SEEN + ".twice").touch()
        os._exit(9)

async def work(run: Run, item) -> None:
    run.state["text"] = await ask("hello")
    if TWICE:
        await die()

@agent
async def main(run: Run):
    await run.plan("Demo", ["one"])
    await run.todo.each(work)
    return run.state["text"]
"""
)
"""Dies with an answer that it has not recorded, and then perhaps once more, when it is."""


def dying(tmp_path: Path, *, twice: bool = False) -> str:
    return DYING.replace("SEEN", repr(str(tmp_path / "seen"))).replace("TWICE", str(twice))


def died(here: Below, tmp_path: Path, *, twice: bool = False) -> Path:
    """A run whose process has died, with an answer that is kept."""
    folder = make(tmp_path / "demo", dying(tmp_path, twice=twice))
    here.crash(folder)
    until(lambda: kept(folder))
    return folder


def test_a_restart_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with below(Provider(5), monkeypatch) as here:
        folder = died(here, tmp_path)
        assert here.run(folder).result == here.provider.answer("hello") and here.provider.asked == ["hello"]
        assert not kept(folder)


def test_a_redone_item_gets_the_answer_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with below(Provider(5), monkeypatch) as here:
        folder = died(here, tmp_path)
        satchel.open(folder).history.redo("^1")
        assert here.run(folder).result == here.provider.answer("hello", 2)
        assert here.provider.asked == ["hello", "hello"] and not kept(folder)


@pytest.mark.slow
def test_a_rewound_run_gets_the_answer_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with below(Provider(5), monkeypatch) as here:
        folder = died(here, tmp_path)
        satchel.open(folder).history.rewind(to="^1")
        assert here.run(folder).result == here.provider.answer("hello", 2)
        assert here.provider.asked == ["hello", "hello"] and not kept(folder)


@pytest.mark.slow
def test_a_step_that_a_person_wants_again_gets_an_answer_that_a_crash_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies between the record of a result and the removal of its answer leaves it."""
    with below(Provider(5), monkeypatch) as here:
        folder = died(here, tmp_path, twice=True)
        (path,) = kept(folder)
        left = path.read_bytes()
        here.crash(folder)
        assert here.provider.asked == ["hello"] and not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(left)
        (file,) = folder.glob("steps/*/*ask*.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | {"redo": True}))
        assert here.run(folder).result == here.provider.answer("hello", 2) and here.provider.asked == ["hello"] * 2
        assert not path.exists()


def test_an_edit_of_the_state_costs_the_answer_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step makes the same request."""
    with below(Provider(5), monkeypatch) as here:
        folder = died(here, tmp_path)
        file = folder / "state.json"
        state: dict[str, Any] = json.loads(file.read_text())
        state["data"] = {**(state["data"] or {}), "note": "by hand"}  # no data yet, if it died before the first save
        file.write_text(json.dumps(state))
        assert here.run(folder).result == here.provider.answer("hello") and here.provider.asked == ["hello"]


def test_a_fork_gets_the_answer_of_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the origin does not lose it."""
    with below(Provider(5), monkeypatch) as here:
        folder = died(here, tmp_path)
        satchel.open(folder).history.fork(tmp_path / "fork")
        assert not kept(tmp_path / "fork")
        assert here.run(tmp_path / "fork").result == here.provider.answer("hello", 2)
        assert here.run(folder).result == here.provider.answer("hello", 1) and here.provider.asked == ["hello"] * 2


@pytest.mark.slow
def test_a_replay_gets_the_answer_of_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it is in the process that had the origin, whose address is still set."""
    with below(Provider(5), monkeypatch) as here:
        folder = died(here, tmp_path)
        assert here.run(folder).status == "completed"
        satchel.open(folder).history.replay("^1", tmp_path / "again")
        assert json.loads((tmp_path / "again" / "state.json").read_text())["data"]["text"] == here.provider.answer(
            "hello", 2
        )
        assert here.provider.asked == ["hello"] * 2 and not kept(folder)


@pytest.mark.slow
def test_a_restart_in_a_bucket_asks_again(moto: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also below another keeper than the one that has read the answer."""
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    place = moto.place()
    key = place.removeprefix(f"s3://{BUCKET}/")
    source = dying(tmp_path)
    files = {"workspace.yaml": "format: 1\nrun_id: demo-1\nagent: agent.py:main\nkeeper: true\n", "agent.py": source}
    for name, text in files.items():
        moto.client.put_object(Bucket=BUCKET, Key=f"{key}/{name}", Body=text.encode())

    def answers() -> list[str]:
        found = moto.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{key}/.satchel/answers/").get("Contents", [])
        return [each["Key"] for each in found]

    with below(Provider(5), monkeypatch) as here:
        here.crash(place)
        until(answers)
        with here.another() as other:
            outcome = other.run(place)
            assert outcome.status == "completed", outcome.error
            assert outcome.result == here.provider.answer("hello") and here.provider.asked == ["hello"]
        assert not answers()
