"""What `make demo` shows: a run is killed in the middle of a streamed answer, and resumed; and then another one, whose
model counts what it is asked for, below a keeper.

Needs the installed package and the standard library. It looks at the run as a user would: with the command line, and by
reading files. It checks all its claims, and exits with 1 if one is wrong.

It is not in the sample's folder, because `satchel new` copies that folder into every new run.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

RUN = Path(".demo", "digest-run")
TALK = Path(".demo", "talk")
SATCHEL = Path(sys.executable).with_name("satchel")
DOCUMENTS = 6
WORDS_PER_SECOND = 40
KILL_IN = 3
"""The document whose summary is cut off, or a later one if that is too short to be caught."""
WORDS = 15
PATIENCE = 60.0

ANSWER = [f"word {number} of what tides come from, " for number in range(1, 81)]
PROMPT_TOKENS = 12
ASKING = """\
import asyncio
import json
import os
from urllib.request import Request, urlopen

from satchel import Partial, Run, agent, step


@step
async def ask(question: str, out: Partial) -> str:
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": question}]}
    address = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with urlopen(Request(address, json.dumps(body).encode())) as answer:
        while line := await asyncio.to_thread(answer.readline):
            data = line.removeprefix(b"data: ").strip()
            if data and data != b"[DONE]":
                for choice in json.loads(data)["choices"]:
                    await out.write(choice["delta"]["content"])
    return out.text


@agent
async def main(run: Run) -> None:
    async def talk() -> None:
        run.state["answer"] = await ask("What do tides come from?")

    await run.scope("talk", talk)
"""
"""Asks as an SDK of OpenAI does, which the demo does not need."""

BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


class Wrong(Exception):
    """A claim of the demo is wrong."""


def main() -> None:
    say("A Satchel run is a folder, and it survives kill -9. You can watch that here; it takes some twenty seconds.")

    title("Make a run from the sample `digest`")
    say("Its agent summarises documents, here the descriptions of Python packages, and writes a brief of them.")
    say("No key is needed: a small summariser chooses sentences, and writes them as fast as a model would.")
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.parent.mkdir(exist_ok=True)
    pace = f"words_per_second={WORDS_PER_SECOND}"
    satchel("new", "digest", RUN, "--set", f"limit={DOCUMENTS}", "--set", pace)

    title("Start it, in a process of its own")
    cut_off = start_and_kill(RUN, environment(), first=KILL_IN)

    title("What is left in the folder")
    say("The plan says what is finished [x] and what was begun [/]:")
    show(RUN / "todo.md")
    say("The summary that was being written is there up to the kill, with a few lines on whose it is:")
    show(cut_off.path)
    before = journal()
    satchel("status", RUN, expect=None)

    title("Resume it")
    satchel("resume", RUN)

    title("The brief")
    show(RUN / "outputs" / "brief.md", lines=12)

    title("What was not done again")
    say(check(cut_off, before))

    title("The same kill, where each token costs money")
    say("A small server answers as OpenAI does, and counts what it is asked for. The run has `keeper: true`.")
    with counting() as model:
        pay_once(model)


def pay_once(model: Model) -> None:
    """Kill a run while the model answers it, and start it again."""
    shutil.rmtree(TALK, ignore_errors=True)
    TALK.mkdir(parents=True)
    (TALK / "workspace.yaml").write_text("format: 1\nrun_id: talk-1\nagent: agent.py:main\nkeeper: true\n")
    (TALK / "agent.py").write_text(ASKING)
    asks = {**environment(), "OPENAI_BASE_URL": f"http://127.0.0.1:{model.server_port}/v1"}
    start_and_kill(TALK, asks)
    say("The keeper is a process of its own, and reads the answer to its end.")
    satchel("run", TALK, given=asks)
    told = json.loads(text_of(TALK / "state.json"))["data"]["answer"]
    if told != "".join(ANSWER):
        raise Wrong(f"the answer is not what the model has said: {told}")
    twice = model.paid - PROMPT_TOKENS - len(ANSWER)
    if model.asked != 1 or twice:
        raise Wrong(f"the model was asked {model.asked} times, for {model.paid} tokens")
    say(f"{BOLD}The model was asked once, for {model.paid} tokens. Tokens paid twice: {twice}.{PLAIN}")


class Model(ThreadingHTTPServer):
    """Answers each request with the same words, as OpenAI streams them."""

    def __init__(self) -> None:
        self.asked = self.paid = 0
        super().__init__(("127.0.0.1", 0), Answering)


class Answering(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        self.server.paid += PROMPT_TOKENS
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in ANSWER:
            self.server.paid += 1
            self.say(choices=[{"index": 0, "delta": {"content": word}}])
            time.sleep(1 / WORDS_PER_SECOND)
        tokens = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(ANSWER)}
        self.say(choices=[], usage={**tokens, "total_tokens": PROMPT_TOKENS + len(ANSWER)})
        self.wfile.write(b"data: [DONE]\n\n")

    def say(self, **chunk: object) -> None:
        self.wfile.write(f"data: {json.dumps({'model': 'demo', **chunk})}\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def counting() -> Iterator[Model]:
    with Model() as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        yield model
        model.shutdown()


class CutOff(NamedTuple):
    path: Path
    item: str
    text: str


def start_and_kill(run: Path, given: Mapping[str, str], first: int = 0) -> CutOff:
    """Start a run, and kill it while it writes the answer of an item, the `first` or a later one."""
    print(f"{DIM}$ satchel run {run} &{PLAIN}", flush=True)
    # Run and supervisor are killed as one, so that nothing of it can tidy up or start it again.
    # What it says goes to a file: a progress bar that is killed leaves a terminal without its cursor.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [SATCHEL, "run", run], env=given, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            partial = wait_for_partial(run, process, first)
        finally:
            killed = kill(run, process)
            said.seek(0)
            print(said.read().decode(errors="replace"))
    if process.returncode != -signal.SIGKILL or not partial.exists():
        raise Wrong("the process was to be killed in the middle of an answer, and it was not")
    what = f"summary {item_of(partial)}" if first else "the answer"
    say(f"In the middle of {what}: kill -9 {' '.join(map(str, killed))}")
    return CutOff(partial, item_of(partial), body_of(partial))


def kill(run: Path, supervisor: subprocess.Popen[bytes]) -> list[int]:
    """Kill the process that runs the agent, and its supervisor. Returns their numbers."""
    supervisor.send_signal(signal.SIGSTOP)  # it must not even notice
    try:
        agent = int(json.loads(text_of(run / ".satchel" / "lease.json"))["pid"])
        os.kill(agent, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        raise Wrong("the run had ended before it could be killed") from None
    finally:
        supervisor.kill()
        supervisor.wait()
    return [agent, supervisor.pid]


def wait_for_partial(run: Path, process: subprocess.Popen[bytes], first: int) -> Path:
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        # Files give no notice of what becomes of them, so this looks again and again.
        for name in glob.glob(f"{run}/partials/*/*.md"):  # pathlib's stumbles over a folder that goes meanwhile
            path = Path(name)
            if (not first or int(item_of(path)) >= first) and len(body_of(path).split()) >= WORDS:
                return path
        time.sleep(0.002)
    raise Wrong(f"no answer came to {WORDS} words (`satchel run` ended with {process.poll()})")


def check(cut_off: CutOff, before: list[dict[str, Any]]) -> str:
    """The line that says what was not done again. Raises Wrong if it is not true."""
    after = journal()
    times = Counter(call_of(record) for record in after if record["type"] == "step.completed")
    calls = {call_of(record) for record in before if record["type"] == "step.completed"}
    if after[: len(before)] != before or not calls <= times.keys():
        raise Wrong("something that was recorded before the kill is not in the journal any more")
    if repeated := [call for call, count in times.items() if count > 1]:
        raise Wrong(f"done twice: {repeated}")
    promoted = [record for record in after if record["type"] == "partial.promoted"]
    if [(record["scope"], record["characters"]) for record in promoted] != [(cut_off.item, len(cut_off.text))]:
        raise Wrong(f"the journal knows of other cut-off summaries: {promoted}")
    data = json.loads(text_of(RUN / "state.json"))["data"]
    summaries = [summary["text"] for summary in data["summaries"].values()]
    brief = text_of(RUN / "outputs" / "brief.md")
    if len(summaries) != DOCUMENTS or any(summary.strip() not in brief for summary in summaries):
        raise Wrong("a summary is missing in the brief")
    if sum(summary.startswith(cut_off.text) for summary in summaries) != 1:
        raise Wrong("no summary goes on from what the kill had left")
    if len(re.findall(r"^- \[x\]", text_of(RUN / "todo.md"), flags=re.MULTILINE)) != DOCUMENTS + 1:
        raise Wrong("todo.md is not ticked to its end")
    finished = sum(record["type"] == "step.completed" and record["step"] == "summarise" for record in before)
    return (
        f"{BOLD}Not done again: {finished} finished summaries, and the first {len(cut_off.text)} characters "
        f"of the one that was cut off. The journal has {len(times)} results, each of them once.{PLAIN}"
    )


# The files of a run


def journal() -> list[dict[str, Any]]:
    """All whole records; a kill may leave half a line at the end."""
    found = []
    for path in sorted(RUN.glob("journal/*.jsonl")):
        found += [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return found


def call_of(record: dict[str, Any]) -> tuple[Any, ...]:
    return record["scope"], record["step"], record["args"], record["n"]


def item_of(partial: Path) -> str:
    return partial.parent.name.partition("-")[0]


def body_of(partial: Path) -> str:
    """The text so far, without the front matter. Nothing if the result is just replacing it."""
    try:
        text = text_of(partial)
    except FileNotFoundError:
        return ""
    return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# Showing it


def satchel(*words: str | Path, expect: int | None = 0, given: Mapping[str, str] | None = None) -> None:
    line = " ".join(str(word) for word in ("satchel", *words))
    print(f"{DIM}$ {line}{PLAIN}", flush=True)
    env = given or environment()
    done = subprocess.run([SATCHEL, *words], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    if expect is not None and done.returncode != expect:
        raise Wrong(f"`{line}` ended with {done.returncode}")
    print()


def environment() -> dict[str, str]:
    """Without what would make the sample ask a model that costs money."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}


def show(path: Path, lines: int = 40) -> None:
    print(f"{DIM}$ cat {path}{PLAIN}")
    text = text_of(path).splitlines()
    for line in folded(text[:lines]):
        print(f"    {line}")
    if len(text) > lines:
        print(f"    {DIM}... {len(text) - lines} more lines{PLAIN}")
    print()


def folded(lines: list[str]) -> Iterator[str]:
    width = shutil.get_terminal_size((110, 24)).columns - 6
    for line in lines:
        while len(line) > width:
            cut = line.rfind(" ", 20, width) + 1 or width
            yield line[:cut].rstrip()
            line = line[cut:]
        yield line


_number = 0


def title(text: str) -> None:
    global _number
    _number += 1
    print(f"\n{BOLD}{_number}. {text}{PLAIN}\n", flush=True)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"The demo failed: {wrong}")
    except KeyboardInterrupt:
        sys.exit(130)
