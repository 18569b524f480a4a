"""`python -m benchmarks.peers.asking [SUBJECT ...]`: what each subject asks a model for again after a SIGKILL in the
middle of an answer, as the model counts it. Needs no quiet machine.

The body of a step asks a server that answers as OpenAI does, streamed or not. The second of three answers is cut off:
the process and all that it has started are killed, but for what its makers keep apart from it (the keeper of Satchel,
the server of Temporal). Then the same is started again, and runs to its end.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from ..measuring import REPOSITORY
from .pairing import Pairing

TOKENS, PROMPT = 100, 20
_ANSWERS = 3
_PATIENCE = 300  # seconds
SUBJECTS = {
    "satchel.kept": "satchel",
    "satchel.strict": "satchel",
    "langgraph.sync": "langgraph",
    "dbos.steps": "dbos",
    "prefect.tasks": "prefect",
    "temporal.activities": "temporalio",
}
"""With the package that each needs."""

_AGENT = """
from benchmarks.peers.asking import Asking
from satchel import agent, step

@step
async def answer(number: int) -> str:
    return Asking.here().body()

@agent
async def main(run):
    for number in range(Asking.here().total):
        await answer(number)
"""


class Asking(Pairing):
    """The body of a step asks the model. What was asked before is in a file, so a body that is called again asks the
    same."""

    def __init__(self, folder: Path):
        super().__init__(folder, 0, _ANSWERS - 1)
        self._done = folder / "answers"

    @classmethod
    def here(cls) -> Asking:
        return cls(Path(os.environ["ASKING_FOLDER"]))

    def body(self) -> str:
        number = len(self._done.read_text()) if self._done.exists() else 0
        streams = bool(os.environ.get("ASKING_STREAMS"))
        asked = {"model": "m", "stream": streams, "messages": [{"role": "user", "content": f"question {number}"}]}
        address = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
        with urlopen(Request(address, json.dumps(asked).encode())) as answer:
            told = str(len(answer.read()))
        with self._done.open("a") as file:
            file.write(".")
        return told


class Model(ThreadingHTTPServer):
    """Says 100 tokens, one every 20 ms, and counts."""

    def __init__(self) -> None:
        self.asked, self.said = Counter[str](), Counter[str]()
        super().__init__(("127.0.0.1", 0), _Answering)


class _Answering(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        self.server.asked[prompt] += 1
        choices: list[Any] = []
        with suppress(ConnectionError):
            if body["stream"]:
                self._begin("text/event-stream")
            for _ in range(TOKENS):
                self.server.said[prompt] += 1
                time.sleep(0.02)
                if body["stream"]:
                    choices = [{"index": 0, "delta": {"content": "word "}}]
                    self.wfile.write(f"data: {json.dumps({'model': 'm', 'choices': choices})}\n\n".encode())
            if body["stream"]:
                self.wfile.write(b"data: [DONE]\n\n")
            else:
                choices = [{"index": 0, "message": {"role": "assistant", "content": "word " * TOKENS}}]
                self._begin("application/json")
                self.wfile.write(json.dumps({"model": "m", "choices": choices}).encode())

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


def run(subject: str, folder: Path) -> None:
    module, _, function = subject.partition(".")
    getattr(importlib.import_module(f".with_{module}", __package__), function)(folder, Asking(folder))


def again(subject: str, *, streams: bool) -> tuple[int, int]:
    """The requests that were made twice, and the tokens that were paid twice."""
    with tempfile.TemporaryDirectory() as name, _model() as model:
        folder = Path(name)
        environ = {**os.environ, "OPENAI_BASE_URL": f"http://127.0.0.1:{model.server_port}/v1", "ASKING_FOLDER": name}
        environ |= {"ASKING_STREAMS": "1" if streams else "", "PYTHONPATH": str(REPOSITORY)}
        command = [sys.executable, "-m", "benchmarks.peers.asking", "--in", subject, name]
        with _beside(subject, folder, environ):
            if subject == "satchel.kept":
                workspace = folder / "run"
                workspace.mkdir()
                (workspace / "workspace.yaml").write_text(
                    "format: 1\nrun_id: asking\nagent: agent.py:main\nkeeper: true\n"
                )
                (workspace / "agent.py").write_text(_AGENT)
                command = [sys.executable, "-m", "satchel", "run", "--quiet", str(workspace)]
            with _started(command, environ) as process:
                _wait(lambda: model.said["question 1"] >= TOKENS // 4 or process.poll() is not None)
                if process.poll() is not None:
                    raise SystemExit(f"{subject} ended before it was killed")
                for lease in folder.glob("*/.satchel/lease.json"):  # the agent has a process group of its own
                    os.kill(json.loads(lease.read_text())["pid"], signal.SIGKILL)
            with _started(command, environ) as process:
                if process.wait(_PATIENCE) != 0:
                    raise SystemExit(f"{subject} ended with {process.returncode}")
        paid = sum(model.said.values()) + PROMPT * model.asked.total()
        return model.asked.total() - _ANSWERS, paid - _ANSWERS * (PROMPT + TOKENS)


@contextmanager
def _model() -> Iterator[Model]:
    with Model() as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        yield model
        model.shutdown()


@contextmanager
def _started(command: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Ends with all of its group."""
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environ, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _beside(subject: str, folder: Path, environ: dict[str, str]) -> Iterator[None]:
    """What runs apart from the process that is killed."""
    if not subject.startswith("temporal."):
        yield
        return
    from .with_temporal import serving

    with serving(folder, environ):
        yield


def _wait(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit("it has never come to that")
        time.sleep(0.01)


def main() -> None:
    if sys.argv[1:2] == ["--in"]:
        run(sys.argv[2], Path(sys.argv[3]))
        return
    for subject in sys.argv[1:] or SUBJECTS:
        if importlib.util.find_spec(SUBJECTS[subject]) is None:
            print(f"{subject}: left out, {SUBJECTS[subject]} is not installed", flush=True)
            continue
        for streams in (True, False):
            requests, tokens = again(subject, streams=streams)
            how = "streamed" if streams else "not streamed"
            print(f"{subject}, {how}: {requests} requests again, {tokens} tokens paid twice", flush=True)


if __name__ == "__main__":
    main()
