"""Renders docs/page.png, the picture of `satchel page` in the README, from a real run.

`python tools/page_picture.py [PATH]` runs an agent of its own in this process, in a temporary folder, and stops it in
the middle of a streamed answer for the picture. Needs `satchel[page]`, playwright, and Chromium (`CHROMIUM` is its
program, /usr/bin/chromium by default).
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import uvicorn

import satchel
from satchel import Item, Partial, Run, agent, step
from satchel.runtime.api import Latest, Overview
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
SIZE = {"width": 1120, "height": 780}
PATIENCE = 60.0

LETTERS = {
    "Read the harbour log of 1931": (212, 0.031),
    "Compare the tide tables": (187, 0.027),
    "Find the lost pages": (0, 0.0),
    "Write to the archive": (0, 0.0),
    "Publish the corrected tables": (0, 0.0),
}
TEXT = (
    "The log and the printed tables agree until 3 March. From then on the printed high water is 40 minutes late, which "
    "is the difference between the two clocks of the harbour. Two pages are missing between 11 and 19 March"
)

has_streamed, may_end = threading.Event(), threading.Event()


@step
async def scan(source: str, pages: int) -> int:
    return pages


@step
async def compare(source: str, out: Partial) -> str:
    await out.write(TEXT)
    if source == "Compare the tide tables":
        has_streamed.set()
        await asyncio.to_thread(may_end.wait, PATIENCE)
    return out.text


async def work(run: Run, item: Item) -> None:
    pages, usd = LETTERS[item.text]
    await scan(item.text, pages or 12)
    run.spend(tokens=pages * 90, usd=usd)
    text = await compare(item.text)
    run.state[item.id or ""] = {"pages": pages, "words": len(text.split())}
    await run.output(f"{item.id}.md", text)


@agent
async def tides(run: Run) -> None:
    if not run.todo.items:
        await run.plan("Tide tables", [*LETTERS])
    await run.todo.each(work)


def main(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "runs/research/tide-tables")
        place.mkdir(parents=True)
        (place / "workspace.yaml").write_text(
            "format: 1\nrun_id: tide-tables\nagent: tides.py:tides\nbudget: {usd: 0.2, steps: 20}\n"
        )
        (place / "tides.py").write_text("# tools/page_picture.py has the agent\n")
        handle = satchel.open(place)
        run = threading.Thread(target=handle.run, args=(tides,))
        run.start()
        if not has_streamed.wait(PATIENCE):
            sys.exit("the agent has streamed nothing")
        try:
            latest, deadline = Latest(satchel.open(place)), time.monotonic() + PATIENCE
            while not latest.look().status.streams:
                if time.monotonic() > deadline:
                    sys.exit("the streamed text is not in its file")
                time.sleep(0.05)
            os.chdir(folder)
            draw(Site(Overview("runs"), root="~/runs"), path)
        finally:
            may_end.set()
            run.join()


def draw(site: Site, path: Path) -> None:
    """Write the picture of the run's page."""
    from playwright.sync_api import sync_playwright

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(make_app(site), lifespan="off", log_level="error", timeout_graceful_shutdown=0)
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/run/research/tide-tables")
        page.wait_for_selector(".stream")
        page.screenshot(path=path)
        browser.close()
    server.should_exit = True
    thread.join(PATIENCE)
    listener.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs/page.png").resolve())
