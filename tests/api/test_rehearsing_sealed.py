"""A run with sealed values is rehearsed: the key is handed on, and nothing sealed is shown."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import warm
from click.testing import CliRunner

import satchel
from satchel.runtime.api import rehearse_here
from satchel.runtime.cli.group import group
from satchel.workspace.store import DiskStore

COLD = subprocess.Popen
TOKEN = "canary-7f3a9b"
PASSWORD = "canary-of-input"
KEYS = [base64.b64encode(bytes([number]) * 32).decode() for number in range(3)]

CODE = f"""
import os
from dataclasses import dataclass
from pathlib import Path
from satchel import Run, Sealed, agent, step

@dataclass
class State:
    token: Sealed | None = None

@step
async def sign_in(user: Sealed, password: Sealed) -> Sealed:
    return Sealed({TOKEN!r})

@step
async def look(text: str) -> None: ...

@agent(state=State)
async def main(run: Run[State], password: Sealed) -> None:
    async def first(run: Run[State]) -> None:
        run.state.token = await sign_in(Sealed("ada"), password)

    async def second(run: Run[State]) -> None:
        again = await sign_in(run.state.token, password)
        assert again.value == run.state.token.value == {TOKEN!r} and password.value == {PASSWORD!r}
        await run.ask("Go on?", wait_for=0)

    await run.scope("first", first, run)
    await run.scope("second", second, run)
"""
NO_STATE = (
    CODE.replace("run.state.token = await", "await")
    .replace("(run.state.token, password)", "(password, password)")
    .replace("== run.state.token.value", "")
)
assert NO_STATE.count("run.state") == 0

NOT_TOLD = "assert again.value"
LEAKS = {
    "an error in a scope": (NOT_TOLD, "raise KeyError(run.state.token.value, password.value)\n        assert again"),
    "an argument": (NOT_TOLD, "await look(again.value)\n        assert again"),
    "an error of the agent": (
        '    await run.scope("second"',
        "    raise KeyError(password.value)\n    await run.scope('x'",
    ),
    "the end of the process": (NOT_TOLD, "raise SystemExit(again.value)\n        assert again"),
    "a hard end of the process": (NOT_TOLD, "print(again.value, flush=True); os._exit(9)\n        assert again"),
    "its output": (NOT_TOLD, f"os.system('echo {{}}'.format(again.value))\n        {NOT_TOLD}"),
}


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SATCHEL_SEAL_KEY_FILE", raising=False)
    monkeypatch.setenv("SATCHEL_SEAL_KEY", KEYS[0])
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)


@pytest.fixture
def waiting(tmp_path: Path, key: None) -> Path:
    return made(tmp_path / "runs" / "vault", CODE)


def made(folder: Path, code: str) -> Path:
    folder.mkdir(parents=True)
    given = f"input:\n  password: {satchel.Sealed(PASSWORD).sealed}\n"
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {folder.name}\nagent: agent.py:main\n{given}")
    (folder / "agent.py").write_text(code)
    assert satchel.run(folder).status == "waiting"
    return folder


def test_a_run_with_sealed_values_is_refused(waiting: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SATCHEL_SEAL_KEY", f"{KEYS[0]} {KEYS[1]}")
    assert satchel.open(waiting).history.rehearse().verdict == "same"
    (waiting / "agent.py").write_text(
        CODE.replace('Sealed("ada")', "password").replace("(run.state.token,", "(password,")
    )
    assert satchel.open(waiting).history.rehearse().verdict == "again"
    monkeypatch.setenv("SATCHEL_SEAL_KEY", f"{KEYS[1]} {KEYS[0]}")
    (waiting / "agent.py").write_text(
        CODE.replace("(run.state.token,", "(Sealed(again),").replace(
            "        again =", f"        again = {TOKEN!r}\n        again ="
        )
    )
    assert satchel.open(waiting).history.rehearse().verdict == "again", (
        "it would be sealed with the new key, as at a start"
    )


def test_the_key_is_in_the_environment_or_on_the_command_line_of_a_rehearsal(
    waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", COLD)
    check = f"""
for name in ("environ", "cmdline"):
    assert {KEYS[0]!r} not in Path(f"/proc/self/{{name}}").read_text()
assert not any("SEAL" in name for name in os.environ)
"""
    (waiting / "agent.py").write_text(CODE.replace("@dataclass", f"{check}\n@dataclass"))
    found = satchel.open(waiting).history.rehearse()
    assert found.verdict == "same", found


def test_a_file_with_the_key_is_not_found(waiting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SATCHEL_SEAL_KEY")
    monkeypatch.setenv("SATCHEL_SEAL_KEY_FILE", "key")
    Path("key").write_text(KEYS[0])
    assert satchel.open(waiting).history.rehearse().verdict == "same"
    Path("key").unlink()
    found = satchel.open(waiting).history.rehearse()
    assert found.verdict == "refused" and str(tmp_path / "key") in found.problem, found


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("code", [CODE, NO_STATE])
@pytest.mark.parametrize(
    ("keys", "why", "remedy"),
    [
        ("", "neither SATCHEL_SEAL_KEY nor SATCHEL_SEAL_KEY_FILE is set", "et one of them to that key"),
        (KEYS[2], "it needs the key", "dd that key to SATCHEL_SEAL_KEY"),
    ],
)
def test_a_refusal_does_not_say_which_key_is_needed(
    tmp_path: Path, key: None, monkeypatch: pytest.MonkeyPatch, code: str, keys: str, why: str, remedy: str
) -> None:
    folder = made(tmp_path / "vault", code)
    name = satchel.Sealed("x").sealed.split(":")[2]
    monkeypatch.setenv("SATCHEL_SEAL_KEY", keys)
    found = satchel.open(folder).history.rehearse()
    assert found.verdict == "refused", found
    assert all(each in found.problem for each in (name, why, remedy)), found.problem


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", LEAKS)
def test_the_report_or_the_copy_shows_what_is_sealed(waiting: Path, tmp_path: Path, way: str) -> None:
    old, new = LEAKS[way]
    assert old in CODE
    (waiting / "agent.py").write_text(CODE.replace(old, new))
    done = CliRunner().invoke(group, ["rehearse", "--json", str(waiting)])
    told = json.loads(done.stdout)["runs"][0]
    assert told["verdict"] == ("same" if way in ("an argument", "its output") else "fails"), told
    assert TOKEN not in done.output and PASSWORD not in done.output
    assert "redacted" in done.output or way in ("its output", "a hard end of the process"), "it was there to be shown"
    if "end of the process" in way:
        return
    copy = tmp_path / "copy"
    shutil.copytree(waiting, copy)
    assert rehearse_here(DiskStore(copy)).verdict == told["verdict"]
    files = b"".join(path.read_bytes() for path in copy.rglob("*") if path.is_file() and "agent." not in path.name)
    assert TOKEN.encode() not in files and PASSWORD.encode() not in files
