"""Absence is no instruction: whatever is missing, empty, cut off, half-copied or somebody else's is restored or
refused, never obeyed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from properties import pairs

from satchel.workspace.base.errors import Conflicting, SatchelError

from .folder import Place, world

FILES = [
    "state.json",
    "todo.md",
    "messages.jsonl",
    "agents/bob/state.json",
    "agents/bob/todo.md",
    "agents/bob/steps/1-bob-1/01-read.json",
    "agents/bob/steps/1-bob-1/03-send.json",
    ".satchel/schemas/state.json",
    ".satchel/schemas/data.json",
    ".satchel/schemas/agents/bob/data.json",
]
PROJECTIONS = [path for path in FILES if ".satchel" not in path and "messages" not in path]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stopped in the first item of a sub-agent."""
    world.__init__()  # type: ignore[misc]
    place = Place(tmp_path_factory.mktemp("template") / "w")
    place.run("bob 1")
    place.put(
        "todo.md",
        place.text()
        .replace("- [x] one", "# Title\n\n- [x] one", 1)
        .replace("- [ ] three\n", "- [ ] three\n\n## Notes\n\nfirst\nsecond\n"),
    )
    place.recover()
    assert place.is_at_the_moment() and all((place.folder / path).exists() for path in FILES)
    return place.folder.rename(place.folder.with_name("kept"))  # so that a copy of it is no second one


@pytest.fixture
def whole(template: Path, tmp_path: Path) -> Place:
    shutil.copytree(template, tmp_path / "w")
    return Place(tmp_path / "w")


def is_not_obeyed(place: Place, before: object, path: str, data: bytes | None) -> None:
    """Open it, twice if it is refused, and see that nothing has come of it, and that nothing a person may want is
    lost."""
    try:
        place.recover()
    except Conflicting:
        assert place.get(path) == data and place.there("conflicts/**/*.theirs.*")
        assert place.substance() == before
        return
    except SatchelError as refusal:
        assert refusal.path == path and "emedy" not in str(refusal)
        kept = [place.get(name) for name in place.there("**/*.rejected*") if not name.endswith(".txt")]
        is_there = (place.folder / path).exists() and place.get(path) == data
        assert data in kept or is_there
        if is_there:
            return
        place.recover()
    assert place.substance() == before and not place.edited[1:]
    for name in place.there("**/*.rejected*"):
        (place.folder / name).unlink()
    if path in PROJECTIONS:
        assert place.is_at_the_moment()
    elif "messages" in path:
        assert place.get(path).count(b"\n") == 2


@pytest.mark.parametrize(
    ("path", "data"), pairs(FILES, [None, b"", b"\n", b"\0" * 64, b"\xef\xbb\xbf", b" \r\n"], every=3)
)
def test_a_missing_or_empty_file_is_obeyed(whole: Place, path: str, data: bytes | None) -> None:
    before = whole.substance()
    if data is None:
        (whole.folder / path).unlink()
    else:
        whole.put(path, data)
    is_not_obeyed(whole, before, path, data)


@pytest.mark.parametrize("folder", ["steps", "agents/bob/steps", "agents/bob", "agents", ".satchel", "partials"])
def test_a_missing_folder_is_obeyed(whole: Place, folder: str) -> None:
    before = whole.substance()
    shutil.rmtree(whole.folder / folder, ignore_errors=True)
    whole.recover()
    assert whole.substance() == before and whole.is_at_the_moment()


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", [path for path in FILES if ".satchel" not in path and "send" not in path])
def test_a_file_cut_off_anywhere_is_obeyed(whole: Place, path: str, every: int) -> None:
    data, before = whole.get(path), whole.substance()
    for length in range(0, len(data), every):
        whole.put(path, data[:length])
        noticed = whole.look()
        assert not noticed.edits and not noticed.plans, (length, data[:length], [e.record.says for e in noticed.edits])
        assert path in noticed.handled or path in noticed.versions or "messages" in path, length
    for length in {0, 1, len(data) // 3, len(data) // 2, len(data) - 30, len(data) - 1}:
        whole.put(path, data[:length])
        is_not_obeyed(whole, before, path, data[:length])
        whole.put(path, data)
        whole.recover()
        data = whole.get(path)


@pytest.mark.parametrize(("path", "share"), pairs(PROJECTIONS, [0.1, 0.5, 0.9], every=3))
def test_a_half_copied_file_with_a_hole_is_obeyed(whole: Place, path: str, share: float) -> None:
    data, before = whole.get(path), whole.substance()
    half = int(len(data) * share)
    for hole in (data[:half] + b"\0" * (len(data) - half), b"\0" * half + data[half:]):
        whole.put(path, hole)
        is_not_obeyed(whole, before, path, hole)
        whole.recover()


@pytest.mark.parametrize("path", PROJECTIONS)
def test_a_file_from_a_later_moment_is_obeyed(whole: Place, tmp_path: Path, path: str) -> None:
    kept = shutil.copytree(whole.folder, tmp_path / "kept")
    for _ in range(3):
        whole.run("bob 1")
    later = Place(whole.folder.rename(tmp_path / "later"))
    kept.rename(whole.folder)
    assert later.moment.seq > whole.moment.seq
    later.put("agents/bob/todo.md", later.get("agents/bob/todo.md"))
    data = later.get(path)
    before = whole.substance()
    if data == whole.get(path):
        return  # a step's file says when it was made
    whole.put(path, data)
    with pytest.raises(SatchelError, match="is newer") as refusal:
        whole.run()
    assert refusal.value.path == path and refusal.value.remedy and whole.get(path) == data
    assert whole.substance() == before


@pytest.mark.parametrize("path", PROJECTIONS)
def test_a_file_of_another_run_is_obeyed(whole: Place, tmp_path: Path, path: str) -> None:
    other = Place(tmp_path / "other", "run-2")
    other.run("bob 1")
    other.put("agents/bob/todo.md", other.get("agents/bob/todo.md").replace(b"ask carol", b"ask carol\n- [ ] more"))
    other.recover()
    before, data = whole.substance(), other.get(path)
    whole.recover()  # further than the other run has come
    whole.put(path, data)
    with pytest.raises(SatchelError, match="does not belong to this run"):
        whole.run()
    assert whole.substance() == before and whole.is_at_the_moment() == ("steps" not in path)
    assert data in [whole.get(name) for name in whole.there("**/*.rejected*")]


Mix = Callable[[bytes], bytes]
EDITS: dict[str, Mix] = {
    "as it was written": lambda data: data,
    "edited": lambda data: data.replace(b"[x]", b"[ ]").replace(b"BOB 1", b"B1").replace(b'"n": 0', b'"n": 7'),
    "without its stamp": lambda data: data[: data.rindex(b"\n<!--")] + b"\n" if b"<!--" in data else data,
}


STRAYED = [
    ("agents/bob/state.json", "state.json"),
    ("state.json", "agents/bob/state.json"),
    ("agents/bob/todo.md", "todo.md"),
    ("todo.md", "agents/bob/todo.md"),
    ("agents/bob/steps/1-bob-1/01-read.json", "steps/3-ask-bob/01-read.json"),
]


@pytest.mark.parametrize(("strayed", "edit"), pairs(STRAYED, EDITS, every=2))
def test_a_file_of_another_agent_of_the_tree_is_obeyed(whole: Place, strayed: tuple[str, str], edit: str) -> None:
    source, target = strayed
    before = whole.substance()
    data = EDITS[edit](whole.get(source))
    whole.put(target, data)
    is_not_obeyed(whole, before, target, data)


def test_a_link_out_of_the_workspace_is_followed(whole: Place) -> None:
    for path in PROJECTIONS:
        data = whole.get(path)
        (whole.folder / path).unlink()
        (whole.folder / path).symlink_to("/etc/passwd")
        with pytest.raises(SatchelError):
            whole.run()
        assert (whole.folder / path).is_symlink()
        (whole.folder / path).unlink()
        whole.put(path, data)


# A plan that a person wrote before the run


TODOS = [b"- [ ] a\n", b"# T\r\n\r\n- [ ] a\r\n", b"\xef\xbb\xbf- [ ] a", b"", b"only prose", "- [ ] ünï 漢".encode()]


@pytest.mark.parametrize("todo", TODOS)
def test_a_plan_that_was_there_first_is_not_taken_byte_for_byte(place: Place, todo: bytes) -> None:
    place.put("todo.md", todo)
    place.recover()
    assert place.get("todo.md").startswith(todo) and place.root.plan.text.encode() == todo
    place.recover()
    assert place.is_at_the_moment()


@pytest.mark.parametrize("todo", [b"- [ ] a\n", b"- [ ] same\n- [ ] same\n"])
def test_a_crash_before_an_adopted_plan_is_stamped_makes_an_edit(place: Place, todo: bytes) -> None:
    place.put("todo.md", todo)
    place.recover()
    place.put("todo.md", todo)  # the rename was lost in a power failure, the record was not
    place.recover()
    assert place.is_at_the_moment() and not place.edited


def test_a_state_that_was_there_first_is_taken(place: Place) -> None:
    place.put("todo.md", "- [ ] a\n")
    place.put("state.json", '{"data": {"a": 1}}')
    with pytest.raises(SatchelError, match="before the first run"):
        place.run()
    assert place.text("state.json") == '{"data": {"a": 1}}'


def test_a_lagging_file_is_reported_as_an_edit(whole: Place) -> None:
    old = {path: whole.get(path) for path in PROJECTIONS}
    whole.recover()
    for path, data in old.items():
        whole.put(path, data)
    said = whole.recover()
    assert whole.is_at_the_moment() and len(whole.edited) == 1
    assert sum("Satchel updates it" in text for text in said) == 4


@pytest.mark.parametrize("path", PROJECTIONS)
def test_a_reformatted_file_is_an_edit(whole: Place, path: str) -> None:
    if path.endswith(".json"):
        whole.put(path, json.dumps(json.loads(whole.get(path)), indent=7, sort_keys=True))
    else:
        whole.put(path, whole.get(path).replace(b"\n", b"\r\n"))
    before = whole.moment.agents["bob"].data, whole.root.data
    whole.recover()
    assert len(whole.edited) <= 2 and (whole.moment.agents["bob"].data, whole.root.data) == before
    assert whole.is_at_the_moment()


@pytest.mark.parametrize("path", PROJECTIONS)
def test_a_file_that_has_lost_its_stamp_and_says_the_same_is_an_edit(whole: Place, path: str) -> None:
    whole.put(path, whole.without_stamp(path))
    before = whole.substance()
    whole.recover()
    assert whole.substance() == before and whole.is_at_the_moment() and len(whole.edited) == 1


@pytest.mark.parametrize("path", ["state.json", "todo.md"])
def test_an_edit_that_was_merged_comes_back_in_place_of_a_file_that_was_removed(finished: Place, path: str) -> None:
    """What was merged is displaced by what the run writes, and stays there if the process is killed."""
    changes = {"state.json": ('"n": 3', '"n": 6'), "todo.md": ("three", "three!")}
    finished.edit(path, changes[path])
    merged = finished.get(path)
    finished.recover()
    finished.put(f".satchel/displaced/1-1-{path}", merged)
    edited = len(finished.edited)
    (finished.folder / path).unlink()
    assert f"{path} was missing; it is restored" in finished.recover()
    assert len(finished.edited) == edited and finished.is_at_the_moment()
