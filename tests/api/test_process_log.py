"""What the processes of a run have printed, by pages and line by line."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import warm
from cli.conftest import Make, make

import satchel
from satchel import UsageError
from satchel.runtime.status import log
from satchel.runtime.supervision import child
from satchel.runtime.supervision.child import LOG
from satchel.workspace.base import SatchelError
from satchel.workspace.store import DiskStore

__all__ = ["make"]

MARK = "==== a process starts, 2026-11-29T08:00:00.000Z ===="


def logged(folder: Path, text: str | bytes, name: str = LOG) -> satchel.Handle:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return satchel.open(folder)


def texts(handle: satchel.Handle, **how: int) -> list[str]:
    return [each.text for each in handle.history.process_log(**how)]


FAILING = """
from satchel import agent

@agent
async def main(run):
    print("here")
    raise ValueError("no")
"""


def test_no_line_tells_which_start_it_belongs_to(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child.subprocess, "Popen", warm.Popen)
    handle = satchel.open(make(FAILING))
    for resumes in (False, True):
        handle.detach(resume=resumes)
        handle.wait()
    found = [*handle.history.process_log()]
    starts = [at for at, each in enumerate(found) if each.start]
    assert len(starts) == 2 and starts[0] == 0
    assert [each.text for each in found].count("here") == 2 and starts[0] < starts[1]
    opened = [row.record["at"] for row in handle.history.log(type="opened")]
    assert found[starts[0]].start <= opened[0] <= found[starts[1]].start <= opened[1]


def test_a_run_without_a_log_has_an_empty_page(make: Make) -> None:
    handle = satchel.open(make())
    assert handle.history.process_log_page() == log.ProcessLog([], 0, 0, 0)
    handle.run()
    assert texts(handle) == [] and not handle.history.process_log_page().path


def test_pages_leave_out_a_line_or_show_one_twice(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "PAGE_BYTES", 500)
    folder = make()
    logged(folder, "".join(f"old {number}\n" for number in range(100)), f"{LOG}.old")
    handle = logged(
        folder, f"{MARK}\n" + "".join(f"new {number} {'é' * (number % 40)}\n" for number in range(100)) + "x" * 1200
    )
    every = texts(handle)
    assert every[0] == "old 0" and every[100] == MARK and every[-3:-1] == ["x" * 500] * 2
    newest = handle.history.process_log_page()
    assert newest.end == newest.bytes == sum(os.path.getsize(folder / name) for name in (LOG, f"{LOG}.old"))
    back, page = [*newest.lines], newest
    while page.begin:
        page = handle.history.process_log_page(before=page.begin)
        back = [*page.lines, *back]
    assert "".join(each.text for each in back) == "".join(every)
    on, page = list[log.ProcessLine](), handle.history.process_log_page(after=0)
    while page.lines:
        on += page.lines
        page = handle.history.process_log_page(after=page.end)
    assert [each.text for each in on] == every
    assert [each.text for each in back if each.start] == [MARK]


def test_the_last_lines_are_others(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "PAGE_BYTES", 50)
    handle = logged(make(), "".join(f"line {number}\n" for number in range(1000)))
    for count in (0, 1, 30, 5000):
        assert texts(handle, last=count) == [f"line {number}" for number in range(1000)][1000 - min(count, 1000) :]


def test_a_page_of_a_huge_log_reads_all_of_it(make: Make) -> None:
    folder = make()
    handle = logged(folder, "")
    os.truncate(folder / LOG, 1 << 30)  # a hole, and no line
    with open(folder / LOG, "ab") as file:
        file.write(b"\nthe end\n")
    page = handle.history.process_log_page()
    assert page.lines[-1].text == "the end" and page.end - page.begin <= log.PAGE_BYTES
    middle = handle.history.process_log_page(after=1 << 29)
    assert middle.end - middle.begin == log.PAGE_BYTES


def test_a_secret_is_shown(make: Make) -> None:
    folder = make()
    with open(folder / "workspace.yaml", "a") as file:
        file.write("redact:\n  patterns: ['tok-[a-z]+']\n")
    handle = logged(folder, "login with tok-abc\n")
    assert "tok-abc" not in str(handle.history.process_log_page()) + str(texts(handle))


def test_a_log_that_is_a_link_shows_another_file(make: Make, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("of somebody else\n")
    folder = make()
    (folder / ".satchel").mkdir(exist_ok=True)
    (folder / LOG).symlink_to(tmp_path / "private")
    with pytest.raises((SatchelError, OSError)) as raised:
        satchel.open(folder).history.process_log_page()
    assert "of somebody else" not in str(raised.value)


def test_a_follower_misses_a_line(make: Make) -> None:
    folder = make()
    handle = logged(folder, "first\nhalf")
    seen, has_come = list[str](), threading.Event()

    def follow() -> None:
        for each in handle.history.process_log(follow=True):
            seen.append(each.text)
            has_come.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert has_come.wait(60)
    with open(folder / LOG, "a") as file:
        file.write(" a line\nsecond\n")
    satchel.open(folder).run()
    with open(folder / LOG, "a") as file:
        file.write("printed after the end")
    thread.join(60)
    assert not thread.is_alive(), "it ends with the run"
    assert seen == ["first", "half a line", "second", "printed after the end"]


@pytest.mark.parametrize("is_slow", [False, True], ids=["between two looks", "while a page is read"])
def test_a_follower_misses_a_line_when_the_log_is_started_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    monkeypatch.setattr(child, "_LOG_LIMIT", 4000)
    monkeypatch.setattr(log, "_KNOWN", 100)
    folder = make()
    handle = logged(folder, "".join(f"old line {number}\n" for number in range(200)))
    satchel.open(folder).run()
    follower = handle.history.process_log(follow=True)
    seen = [next(follower).text for _ in range(150 if is_slow else 200)]
    for number in range(3):
        with open(folder / LOG, "a") as file:
            file.write("".join(f"line {number}.{each}\n" for each in range(250)))
        child.bound_log(DiskStore(folder))
        more = 250 if number else 450 - len(seen)
        seen += [next(follower).text for _ in range(more)]
    with open(folder / LOG, "a") as file:
        file.write("the end\n")
    seen += [each.text for each in follower]
    old = [f"old line {number}" for number in range(200)]
    assert seen == [*old, *(f"line {number}.{each}" for number in range(3) for each in range(250)), "the end"]


def test_a_follower_says_a_line_twice_that_is_gone_from_the_disk(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_LOG_LIMIT", 100)
    folder = make()
    handle = logged(folder, "first\n")
    satchel.open(folder).run()
    follower = handle.history.process_log(follow=True)
    seen = [next(follower).text]
    for text in ("lost\n" * 100, "x" * 200 + "\n" + "kept\n" * 20):
        with open(folder / LOG, "a") as file:
            file.write(text)
        child.bound_log(DiskStore(folder))
    seen += [each.text for each in follower]
    assert seen == ["first", *["kept"] * 20]


def test_a_wrong_place_is_taken(make: Make) -> None:
    handle = satchel.open(make())
    with pytest.raises(UsageError, match="before"):
        handle.history.process_log_page(before=-1)
    with pytest.raises(UsageError, match="last"):
        handle.history.process_log(last=-1)
