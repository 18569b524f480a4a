"""Values that files show encrypted."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pydantic
import pytest
from properties import seed

import satchel
from satchel import Refused, Run, Sealed, UsageError, agent, run, step
from satchel.errors import InvalidFile
from satchel.runtime.agent import Codec, encode

SECRET = "canary-7f3a9b"
KEYS = [base64.b64encode(bytes([number]) * 32).decode() for number in range(3)]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SATCHEL_SEAL_KEY_FILE", raising=False)
    monkeypatch.setenv("SATCHEL_SEAL_KEY", KEYS[0])


@dataclass
class Plain:
    token: Sealed | None = None
    more: dict[str, list[Sealed]] = field(default_factory=dict)
    count: int = 0


class Typed(TypedDict, total=False):
    token: Sealed | None
    more: dict[str, list[Sealed]]
    count: int


class Model(pydantic.BaseModel):
    token: Sealed | None = None
    more: dict[str, list[Sealed]] = {}
    count: int = 0


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def get(state: Any, name: str) -> Any:
    return state[name] if isinstance(state, dict) else getattr(state, name)


def put(state: Any, name: str, value: Any) -> None:
    if isinstance(state, dict):
        state[name] = value
    else:
        setattr(state, name, value)


@pytest.mark.parametrize("kind", [Plain, Typed, Model])
def test_a_sealed_value_is_readable_in_a_file_or_changes_with_each_commit(workspace: Path, kind: Any) -> None:
    read = []

    @step
    async def login(name: Sealed) -> Sealed:
        return Sealed(name.value + "+")

    @agent(state=kind)
    async def main(run: Run[Any]) -> None:
        async def first(run: Run[Any]) -> None:
            put(run.state, "token", Sealed(SECRET))
            put(run.state, "more", {"a": [await login(Sealed(SECRET))]})

        async def again(run: Run[Any]) -> str:
            put(run.state, "token", Sealed(get(run.state, "token").value))
            put(run.state, "count", 1)
            return get(run.state, "token").value[:2]

        await run.scope("first", first, run)
        before = get(run.state, "token").sealed
        await run.scope("again", again, run)
        assert get(run.state, "token").sealed == before
        read.append((get(run.state, "token").value, get(run.state, "more")["a"][0].value))

    for _ in range(2):
        outcome = run(workspace, main)
        assert outcome.status == "completed", outcome.error
        if len(read) == 1:
            (workspace / "inbox").mkdir(exist_ok=True)
            (workspace / "inbox/wake.md").write_text("again")
    assert read == [(SECRET, SECRET + "+")] * 2
    written = everything(workspace)
    assert SECRET.encode() not in written and base64.b64encode(SECRET.encode())[:12] not in written
    state = json.loads((workspace / "state.json").read_text())
    assert state["data"]["token"].startswith("sealed:1:")
    lines = [line for path in sorted((workspace / "journal").iterdir()) for line in path.read_text().splitlines()]
    patches = [json.loads(line).get("patch") for line in lines]
    assert [[each["path"] for each in patch] for patch in patches if patch and len(patch) == 1][-1:] == [["/count"]]


def test_a_person_replaces_a_sealed_value_by_plain_text(workspace: Path) -> None:
    @agent(state=Plain)
    async def main(run: Run[Plain]) -> str:
        async def first(run: Run[Plain]) -> None:
            run.state.token = Sealed(SECRET)

        await run.scope("first", first, run)
        await run.ask("Go?", wait_for=0)
        return run.state.token.value if run.state.token else ""

    assert run(workspace, main).status == "waiting"
    path = workspace / "state.json"
    before = path.read_text()
    ours = json.loads(before)["data"]["token"]
    path.write_text(before.replace(ours, "my new token"))
    with pytest.raises(InvalidFile, match=r"data\.token.*expected a sealed text") as refused:
        run(workspace, main, wake=True)
    has_it = {file.name for file in workspace.rglob("*") if file.is_file() and "my new token" in file.read_text()}
    assert has_it == {"state.rejected.json"} and "my new token" not in str(refused.value)
    path.write_text(path.read_text().replace(ours, Sealed("my new token").sealed))
    satchel.open(workspace).answer("yes", by="ada")
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", "my new token")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("", "there is no key for sealed values"),
        (KEYS[1], "a value is sealed with another key"),
        ("short", "key 1 for sealed values is not one"),
        (f"{KEYS[0]} c2hvcnQ=", "key 2 for sealed values is not one"),
    ],
)
def test_a_run_continues_without_its_key(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, keys: str, said: str
) -> None:
    entered = []

    @agent(state=Plain)
    async def main(run: Run[Plain]) -> None:
        async def first(run: Run[Plain]) -> None:
            run.state.token = Sealed(SECRET)

        entered.append(1)
        await run.scope("first", first, run)
        await run.ask("Go?", wait_for=0)

    assert run(workspace, main).status == "waiting"
    state = (workspace / "state.json").read_text()
    satchel.open(workspace).answer("yes", by="ada")
    monkeypatch.setenv("SATCHEL_SEAL_KEY", keys)
    with pytest.raises(Refused, match=said):
        run(workspace, main)
    assert len(entered) == 1
    assert json.loads((workspace / "state.json").read_text())["data"] == json.loads(state)["data"]
    monkeypatch.setenv("SATCHEL_SEAL_KEY", KEYS[0])
    assert run(workspace, main).status == "completed"


def test_a_new_key_locks_old_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = Sealed("text")
    monkeypatch.setenv("SATCHEL_SEAL_KEY", f"{KEYS[1]}, {KEYS[0]}")
    assert Sealed.opened(old.sealed) == old
    new = Sealed(old.value)
    assert new == old and new.sealed != old.sealed
    (tmp_path / "keys").write_text(f"{KEYS[1]}\n{KEYS[2]}\n")
    monkeypatch.delenv("SATCHEL_SEAL_KEY")
    monkeypatch.setenv("SATCHEL_SEAL_KEY_FILE", str(tmp_path / "keys"))
    assert Sealed.opened(new.sealed).value == "text"
    with pytest.raises(Refused, match="sealed with another key"):
        Sealed.opened(old.sealed)
    monkeypatch.setenv("SATCHEL_SEAL_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(Refused, match="can't be read: No such file"):
        Sealed("x")


def test_a_changed_ciphertext_is_taken() -> None:
    sealed = Sealed("eleven char").sealed
    rng = random.Random(seed())
    for _ in range(50):
        at = rng.randrange(len("sealed:1:12345678:"), len(sealed))
        other = "A" if sealed[at] != "A" else "B"
        with pytest.raises(ValueError, match="changed after it was sealed"):
            Sealed.opened(sealed[:at] + other + sealed[at + 1 :])
    for wrong in ("plain", sealed + "\n", "sealed:2:12345678:AAAA", ""):
        with pytest.raises(ValueError, match="it is not sealed"):
            Sealed.opened(wrong)


def test_a_sealed_value_shows_its_text() -> None:
    sealed = Sealed(SECRET)
    shown = [repr(sealed), f"{sealed}", str([sealed]), repr(Plain(sealed)), repr(Model(token=sealed))]
    assert not any(SECRET in each for each in shown)
    assert SECRET.encode() not in pickle.dumps(sealed) and SECRET.encode() not in encode([sealed], "it")
    assert pickle.loads(pickle.dumps(sealed)) == copy.deepcopy(sealed) == Sealed(SECRET) != SECRET  # noqa: S301
    with pytest.raises(AttributeError, match="never changes"):
        sealed.value = "other"
    with pytest.raises(TypeError):
        Sealed(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Plain, Typed, Model])
def test_the_schema_takes_plain_text(kind: Any) -> None:
    schema = json.dumps(Codec(kind, "the state").schema())
    assert schema.count('"pattern": "^sealed:1:') == 2


def test_a_missing_library_is_not_named() -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\nimport satchel\n"
        "try: satchel.Sealed('x')\nexcept satchel.Refused as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert "pip install 'satchel[sealed]'" in done.stdout.lower(), done


def test_half_a_character_in_a_sealed_value_is_an_error_that_shows_it() -> None:
    with pytest.raises(UsageError, match="a sealed value is not text") as raised:
        Sealed("hunter2\ud800")
    assert "hunter2" not in f"{raised.value!r} {raised.value.__cause__!r}" and raised.value.__suppress_context__
