"""Stands in for Claude Code: speaks its protocol on standard input and output, writes its transcript on the disk, and
mirrors it. At each prompt it asks whether it may use `Bash`, and notes in `done.txt` what it was allowed to do. At the
prompt `Send` it calls the tool `send` of the server `mail`, which is in the program. Imports nothing slow: each turn
starts it twice."""

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any


def tell(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def hear() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)  # type: ignore[no-any-return]


def note(kind: str, text: str) -> None:
    message = {"role": kind, "content": [{"type": "text", "text": text}]}
    lines = transcript.read_text().splitlines() if transcript.exists() else []
    entry = {"type": kind, "uuid": str(uuid.uuid4()), "timestamp": "2026-01-01T00:00:00.000Z", "message": message}
    entry["parentUuid"] = json.loads(lines[-1])["uuid"] if lines else None
    with transcript.open("a") as file:
        file.write(json.dumps(entry) + "\n")
    if "--session-mirror" in sys.argv:
        tell(type="transcript_mirror", filePath=str(transcript), entries=[entry])


def ask(**request: Any) -> dict[str, Any]:
    tell(type="control_request", request_id=str(uuid.uuid4()), request=request)
    response = hear()["response"]
    return response.get("response") or {"behavior": "error", "message": response.get("error")}


def call(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return ask(subtype="mcp_message", server_name="mail", message=message)["mcp_response"]  # type: ignore[no-any-return]


if "-v" in sys.argv:
    sys.exit(print("9.9.9 (Claude Code)"))
options = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
session = options.get("resume") or options.get("session-id") or str(uuid.uuid4())
config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
transcript = config / "projects" / os.environ["FAKE_CLAUDE_PROJECT"] / f"{session}.jsonl"
transcript.parent.mkdir(parents=True, exist_ok=True)
while True:
    heard = hear()
    if heard["type"] == "control_request":
        tell(
            type="control_response", response={"subtype": "success", "request_id": heard["request_id"], "response": {}}
        )
        continue
    before = len(transcript.read_text().splitlines()) if transcript.exists() else 0
    note("user", str(heard["message"]["content"]))
    if heard["message"]["content"] == "Send":
        client = {"name": "claude", "version": "9"}
        call(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        answer = call(2, "tools/call", {"name": "send", "arguments": {"to": "ann"}})["result"]["content"][0]["text"]
    else:
        said = ask(subtype="can_use_tool", tool_name="Bash", input={"command": "make clean"}, tool_use_id="t1")
        if said["behavior"] == "allow":
            with open("done.txt", "a") as done:
                done.write(said["updatedInput"]["command"] + "\n")
        answer = f"{before} lines before; {said['behavior']} {said.get('message', '')}".strip()
    note("assistant", answer)
    times = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
    tell(type="result", subtype="success", is_error=False, session_id=session, result=answer, **times)
