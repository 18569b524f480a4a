"""What `status --json` and `ls --json` share."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from ..control import Standing
from .render import asked


def as_json(standing: Standing) -> dict[str, Any]:
    moment, definition, problem = standing.moment, standing.definition, standing.problem or standing.mistake
    progress = standing.plan.progress if standing.plan else None
    return {
        "url": standing.url,
        "run_id": definition.run_id if definition else standing.moved.run_id if standing.moved else None,
        "agent": definition.agent if definition else None,
        "code": (moment.code or None) if moment else None,
        "state": standing.state,
        "needs_person": standing.needs_person,
        "moved": msgspec.to_builtins(standing.moved),
        "reason": moment.reason if moment else "",
        "items": progress._asdict() if progress else None,
        "inbox": {"waiting": standing.waiting, "taken": len(moment.tasks) if moment else 0},
        "at": standing.at or None,
        "pause": msgspec.to_builtins(replace(moment.pause, file="")) if moment and moment.pause else None,
        "waiting_edits": list(standing.waiting_edits),
        "being_saved": list(standing.being_saved),
        "uncalled": moment.uncalled if moment else [],
        "questions": asked.as_json(standing.questions),
        "holder": msgspec.to_builtins(standing.holder) if standing.state == "running" else None,
        "heard": standing.heard or None,
        "problem": {"kind": type(problem).__name__, "message": str(problem)} if problem else None,
    }
