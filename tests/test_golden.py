"""Runs that earlier processes, and later on earlier versions, have left: tests/golden. This Satchel opens, checks and
shows each, changes nothing by looking, and continues it to its end, with each effect done once.

tests/golden/README.md says how each came about, and expected.yaml what must hold.
"""

from __future__ import annotations

import getpass
import json
import re
import runpy
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

import satchel
from satchel import SatchelError, UsageError
from satchel.errors import Damaged
from satchel.schemas import schema
from satchel.workspace.base import version

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((GOLDEN / "expected.yaml").read_text())
MAKER = runpy.run_path(str(ROOT / "tools" / "make_golden.py"))
_KINDS = {
    r"workspace\.yaml": "workspace",
    r"moved\.yaml": "moved",
    r"approvals/.*\.yaml": "approval",
    r"checkpoints/[^/]*\.json": "checkpoint",
    r"journal/.*\.jsonl": "record",
    r"(.*/)?state\.json": "state",
    r"(.*/)?steps/.*\.json": "step",
    r"(.*/)?partials/.*\.md": "partial",
    r"(.*/)?recovered/.*\.md": "recovered",
    r"\.satchel/lease\.json": "lease",
    r"\.satchel/running\.json": "running",
}
"""The schemas of files that name a format."""


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def cloned(folder: Path, destination: Path) -> Path:
    """A copy as git makes it: without times, modes and empty folders."""
    for path, data in files(folder).items():
        (destination / path).parent.mkdir(parents=True, exist_ok=True)
        (destination / path).write_bytes(data)
    return destination


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_golden_folder_can_not_be_read_or_continued(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _goes_on(name, cloned(GOLDEN / name, tmp_path / name), monkeypatch)


@pytest.mark.slow
def test_a_folder_that_is_made_now_can_not_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The maker works, and what processes leave now is what is expected of the golden folders."""
    MAKER["make"]([*MAKER["SCENARIOS"]], tmp_path / "golden", tmp_path / "runs")
    for name in MAKER["SCENARIOS"]:
        _goes_on(name, cloned(tmp_path / "golden" / name, tmp_path / name), monkeypatch)


def _goes_on(name: str, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = EXPECTED[name]
    for key, value in expected.get("environment", {}).items():
        monkeypatch.setenv(key, value)
    run, before = outside / expected.get("workspace", "run"), files(outside)
    _look(satchel.open(run), expected)
    assert files(outside) == before, f"{name}: a look changes nothing"
    for action in expected["go_on"]:
        _act(run, action)
    status = satchel.open(run).status()
    assert status.state == expected.get("ends", "completed"), f"{name}: {status.problem or status.report}"
    assert not satchel.open(run).check().problems, name
    assert _lines(outside / "bank.txt") == sorted(expected["bank"]), f"{name}: each effect is done once"
    assert _lines(outside / "reads.txt") == sorted(expected.get("reads", [])), name
    if "data" in expected:
        assert json.loads((run / "state.json").read_text())["data"] == expected["data"], name


def _look(handle: satchel.Handle, expected: dict[str, Any]) -> None:
    status = handle.status()
    assert status.state == expected["state"], status.problem
    found = [str(problem) for problem in handle.check().problems]
    wanted = expected.get("problems", [])
    assert len(found) == len(wanted) and all(map(str.startswith, found, wanted)), found
    if expected.get("history") == "lost":
        with pytest.raises(Damaged, match=r"journal: has no records: state\.json is of record [1-9]"):
            handle.history.show()
        return
    is_damaged = expected.get("history") == "damaged"
    seqs, shown = [*_seqs(handle, is_damaged=is_damaged)], handle.history.show()
    assert "its checksum does not match" in shown.problem if is_damaged else shown.seq == seqs[-1]
    assert handle.history.diff(shown.seq).is_empty
    assert handle.history.blame("state.json").values and handle.history.steps().work


def _seqs(handle: satchel.Handle, *, is_damaged: bool) -> Iterator[int]:
    with pytest.raises(Damaged) if is_damaged else nullcontext():
        for row in handle.history.log():
            yield row.line.seq


def _act(run: Path, action: str | dict[str, Any]) -> None:
    """A line of `go_on`."""
    handle = satchel.open(run)
    if isinstance(action, str):
        verb, word = action.split()
        if verb == "is":
            assert handle.status().state == word
        else:
            with pytest.raises(SatchelError):
                getattr(handle, word)()
        return
    ((method, given),) = action.items()
    if method == "edit":
        file, old, new = given
        text = (run / file).read_text()
        assert old in text
        (run / file).write_text(text.replace(old, new, 1))
        return
    positional, named = (given, {}) if isinstance(given, list) else ([], given)
    if named.get("adopt"):
        with pytest.raises(UsageError, match="was opened elsewhere before, and its last process did not close it"):
            getattr(handle, method)(**{**named, "adopt": False})
    getattr(handle, method)(*positional, **named)


def _lines(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines()) if path.exists() else []


def test_on_the_machine_that_left_it_a_killed_run_counts_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There its process is known to have ended, and its old place to be gone: so it continues there unasked."""
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    killed = [name for name, expected in EXPECTED.items() if expected["state"] == "running"]
    assert len(killed) > 10
    for name in killed:
        run = cloned(GOLDEN / name, tmp_path / name) / "run"
        assert satchel.open(run).status().state == "interrupted", name
    handle = satchel.open(tmp_path / "killed-before-a-commit/run")
    assert handle.resume().status == "completed"


def test_the_table_the_index_and_the_maker_know_other_folders() -> None:
    there = {path.name for path in GOLDEN.iterdir() if path.is_dir()}
    indexed = re.findall(r"^\| `([a-z-]+)` \|", (GOLDEN / "README.md").read_text(), re.MULTILINE)
    assert there == {*EXPECTED} and sorted(indexed) == sorted(there)
    assert {name for name in there if _version_of(name) == version()} <= {*MAKER["SCENARIOS"]} <= there


def _version_of(name: str) -> str:
    return str(MAKER["version_of"](GOLDEN / name))


def test_a_golden_folder_names_a_real_machine_or_person() -> None:
    places = re.compile(rf"{re.escape(str(Path.home()))}\b|/(work|tmp|home|root|Users)\b")
    names = {socket.gethostname(), getpass.getuser()}
    for path, data in files(GOLDEN).items():
        text = data.decode()
        assert not places.search(text), path
        assert not [each for each in names if re.search(rf"\b{re.escape(each)}@|@{re.escape(each)}\b", text)], path
        assert {*re.findall(r'"host": ?"([^"]*)"', text)} <= {"laptop", ""}, path


def test_git_leaves_a_golden_folder_out() -> None:
    """Of `.gitignore`, that of the repository and those below it. What is left out would be missing in a clone."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git, or no checkout")
    paths = [f"tests/golden/{path}" for path in files(GOLDEN)]
    command = ["git", "-C", str(ROOT), "check-ignore", "--no-index", "--stdin"]
    found = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, check=False)
    assert found.returncode == 1, f"git ignores {found.stdout}"


def test_a_golden_folder_of_this_version_has_another_format() -> None:
    """Those of earlier versions may have: they must still open, as the first test shows."""
    kinds = set()
    for name in EXPECTED:
        if _version_of(name) != version():
            continue
        for path, found in _formats(GOLDEN / name):
            kind = _kind_of(path)
            kinds.add(kind)
            known = schema(kind)["$defs"]["opened"] if kind == "record" else schema(kind)
            wanted = known["properties"]["format"]["const"]
            assert found == wanted, (
                f"tests/golden/{name}/{path} has format {found}, and this Satchel writes {wanted}. Before the release "
                f"of that format: `python tools/make_golden.py`, and commit what it has written"
            )
    assert kinds == {*_KINDS.values()}, "each kind of file is in some folder"


def _formats(folder: Path) -> Iterator[tuple[str, int]]:
    """The format of each file that names one."""
    for path, data in files(folder).items():
        found = re.search(rb'(?:^|[{,])\s*"?format"?: ?([0-9]+)', data, re.MULTILINE)
        if found is not None and _kind_of(path) is not None:
            yield path, int(found[1])


def _kind_of(path: str) -> str | None:
    """The name of the schema of a file."""
    inside = path.partition("/")[2]
    if inside.startswith(".satchel/schemas/"):
        return None
    return next((kind for pattern, kind in _KINDS.items() if re.fullmatch(pattern, inside)), None)
