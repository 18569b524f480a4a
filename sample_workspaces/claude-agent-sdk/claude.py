#!/usr/bin/env python3
"""Replaces Claude Code, so that the sample needs no key. It speaks the protocol of Claude Code.

It asks for the weather in two cities, and books a flight if it may. Its transcript tells it how much was said before.
"""

import json
import os
import sys
import uuid
from pathlib import Path

from claude_agent_sdk import project_key_for_directory


def tell(**message):
    print(json.dumps(message), flush=True)


def note(kind, text):
    """An entry of the transcript, for the session store."""
    entry = {"type": kind, "uuid": str(uuid.uuid4()), "message": {"role": kind, "content": text}}
    tell(type="transcript_mirror", filePath=str(transcript), entries=[entry])


def ask(**request):
    tell(type="control_request", request_id=str(uuid.uuid4()), request=request)
    line = sys.stdin.readline() or sys.exit("the program is gone")
    return json.loads(line)["response"]["response"]


def mcp(method, **params):
    message = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}
    return ask(subtype="mcp_message", server_name="flights", message=message)["mcp_response"]["result"]


def call(name, **arguments):
    return mcp("tools/call", name=name, arguments=arguments)["content"][0]["text"]


def turn():
    mcp("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "claude", "version": "9.9.9"})
    cities = [call("weather", city=city) for city in ("Oslo", "Rome")]
    may = ask(subtype="can_use_tool", tool_name="mcp__flights__book", input={"city": "Rome"}, tool_use_id="book")
    if may["behavior"] != "allow":
        return f"I may not book: {may['message']}"
    return "; ".join([*cities, call("book", **may["updatedInput"])])


if "-v" in sys.argv:
    sys.exit(print("9.9.9 (Claude Code)"))
options = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
session = options.get("resume") or options["session-id"]
transcript = config / "projects" / project_key_for_directory(".") / f"{session}.jsonl"
known = len(transcript.read_text().splitlines()) if transcript.exists() else 0
for line in sys.stdin:
    heard = json.loads(line)
    if heard["type"] == "control_request":  # the SDK introduces itself
        response = {"subtype": "success", "request_id": heard["request_id"], "response": {}}
        tell(type="control_response", response=response)
    else:
        note("user", heard["message"]["content"])
        answer = f"I knew {known} lines. {turn()}"
        note("assistant", answer)
        counts = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
        tell(type="result", subtype="success", is_error=False, session_id=session, result=answer, **counts)
