"""The open questions of a run in one form: questions of an agent (`run.ask`), and effects in doubt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ...schemas import short
from ..journal import ApprovalAsked, Doubt, Key
from ..state import DoubtVerdict, Moment, Scope, verdicts

APPROVALS = "approvals"
APPROVE, DENY = "approve", "deny"
"""The choices of a question about a call, unless the agent gives others. Only `approve` may change arguments."""

_NAME = re.compile(r'[(,]"([^"]+)":')
"""A parameter in the words for a call."""


class Question(Struct, frozen=True):
    """One open question. Without `choices` and `schema`, any text is an answer. `schema` is of the `arguments`, if the
    agent has asked with some."""

    id: str
    text: str
    asked: ApprovalAsked | Doubt
    choices: tuple[str, ...] = ()
    schema: dict[str, Any] | bool | None = None
    agent: str = ""
    item: str = ""  # the title of its scope
    asked_at: str = ""  # UTC, ISO 8601
    expires: str = ""
    facts: dict[str, Any] = field(default_factory=dict)  # `context` and `default`, if there are
    verdicts: dict[str, DoubtVerdict] = field(default_factory=dict)  # of a doubt: what each choice means
    arguments: dict[str, Any] | None = None  # those of the call that it is about, if they are on record
    tool: str = ""  # the name of that call, if the agent has given one

    @property
    def path(self) -> str:
        return path_of(self.id)

    @property
    def is_doubt(self) -> bool:
        return isinstance(self.asked, Doubt)

    @property
    def may_change(self) -> bool:
        """Whether a person may approve it with other arguments."""
        return not self.is_doubt and self.arguments is not None

    @property
    def is_unclaimed(self) -> bool:
        """Whether it asks if a call is the same action as an earlier one."""
        return isinstance(self.asked, Doubt) and self.asked.why == "unclaimed"

    def meaning(self, decision: str) -> str:
        """What a decision about an unclaimed call means, for people."""
        outcome, _ = self.verdicts[decision]
        if outcome == "new":
            return "another action: do it; what was done stays done"
        which = f"call {decision.partition('-')[2]}" if "-" in decision else "the earlier call"
        return f"the same as {which}, {'which has happened' if outcome == 'done' else 'and may be done again'}"

    @property
    def is_lost(self) -> bool:
        """Whether it asks if the lost owner of a restored run has done something."""
        return isinstance(self.asked, Doubt) and self.asked.why == "lost"

    def has_happened(self, decision: Any) -> bool:
        """Whether a decision about a doubt says that the effect has happened."""
        return isinstance(decision, str) and decision in self.verdicts and self.verdicts[decision].outcome == "done"

    @property
    def expires_at(self) -> datetime | None:
        """From when on its default counts; None: never, also if a stranger's journal contains an invalid time."""
        try:
            end = datetime.fromisoformat(self.expires)
        except ValueError:
            return None
        return end.replace(tzinfo=end.tzinfo or UTC) if "default" in self.facts else None

    def has_expired(self, at: datetime) -> bool:
        """Whether its default counts at that time."""
        end = self.expires_at
        return end is not None and end <= at

    @property
    def answers(self) -> str:
        """The possible answers, in words."""
        if self.choices:
            return " or ".join(self.choices)
        return "text" if self.schema is None else "what the schema says"


def with_changes(decision: str, changes: Mapping[str, Any] | None) -> str:
    """A decision with the arguments that it changes, for people: `approve with amount: 50`."""
    told = ", ".join(f"{name}: {msgspec.json.encode(value).decode()}" for name, value in (changes or {}).items())
    return f"{decision} with {told}" if told else decision


def path_of(id: str) -> str:
    return f"{APPROVALS}/{id}.yaml"


def open_questions(moment: Moment) -> list[Question]:
    """All of them, in the order they were asked."""
    found = [_of_doubt(doubt, moment) for doubt in moment.doubts.values()]
    found += [_of_approval(asked, moment) for asked in moment.approvals.values()]
    return sorted(found, key=lambda question: question.asked_at)


def find_question(moment: Moment, id: str) -> Question | None:
    if id in moment.doubts:
        return _of_doubt(moment.doubts[id], moment)
    return _of_approval(moment.approvals[id], moment) if id in moment.approvals else None


def closed(asked: ApprovalAsked | Doubt, at: str, moment: Moment) -> Question:
    """A question that was asked then and is no longer open."""
    found = _of_doubt(asked, moment) if isinstance(asked, Doubt) else _of_approval(asked, moment)
    return replace(found, asked_at=at)


def _of_approval(asked: ApprovalAsked, moment: Moment) -> Question:
    raw = {"context": asked.context, "default": asked.default}
    return Question(
        asked.id,
        asked.question,
        asked,
        asked.choices,
        asked.answer_schema,
        asked.agent,
        _scope(asked, moment).title,
        moment.asked_at.get(asked.id, ""),
        asked.expires,
        {key: msgspec.json.decode(value) for key, value in raw.items() if len(value)},
        arguments=msgspec.json.decode(asked.arguments) if len(asked.arguments) else None,
        tool=asked.tool,
    )


def _of_doubt(doubt: Doubt, moment: Moment) -> Question:
    scope = _scope(doubt, moment)
    meant = verdicts(doubt, scope.numbers)
    began = scope.started.get(doubt.key)
    return Question(
        doubt.id,
        _doubtful(doubt, scope),
        doubt,
        tuple(meant),
        None,
        doubt.agent,
        scope.title,
        moment.asked_at.get(doubt.id, ""),
        verdicts=meant,
        arguments=msgspec.json.decode(began.arguments) if began and len(began.arguments) else None,
    )


def _scope(asked: ApprovalAsked | Doubt, moment: Moment) -> Scope:
    return moment.agents[asked.agent].scopes.get(asked.scope) or Scope()


def _doubtful(doubt: Doubt, scope: Scope) -> str:
    title = scope.title
    place = f" of {title!r}" if title else ""
    place += f" of the agent {doubt.agent}" if doubt.agent else ""
    what = f"{doubt.step}{doubt.call}{place}"
    if doubt.why == "unclaimed":
        earlier = [_earlier(key, scope) for key in doubt.others]
        known = (
            earlier[0]
            if len(earlier) == 1
            else "; ".join(
                f"{scope.numbers.get(key, 0)}. {each}" for key, each in zip(doubt.others, earlier, strict=True)
            )
        )
        cause = f"{doubt.cause.rstrip('.')}. " if doubt.cause else ""
        return (
            f"{what} would begin, but an earlier attempt has called {known}. "
            f"Is it {'one of these actions' if len(earlier) > 1 else 'the same action'}? {cause}{_hint(doubt, scope)}"
        )
    if doubt.why == "unreached":
        return f"{what} began in an earlier attempt and was not called again. Has it happened?"
    if doubt.why == "lost":
        cause = f" ({doubt.cause})" if doubt.cause else ""
        return (
            f"{what} would begin. The run was restored from a backup, and its lost owner went on for an unknown time "
            f"after the last record there{cause}. Has it done this, perhaps with other arguments?"
        )
    if doubt.why == "uncalled":
        done = scope.done.get(doubt.key)
        returned = "" if done is None or done.blob else f" and returned {short(msgspec.json.decode(done.result))}"
        return f"{what} was done by an earlier attempt{returned}. The code no longer calls it. Does it stay done?"
    return f"{what} began, and its outcome is unknown ({doubt.cause or 'a crash'}). Has it happened?"


def _hint(doubt: Doubt, scope: Scope) -> str:
    """How the code avoids the question."""
    others = {key[0] for key in doubt.others}
    if doubt.step in others:
        now = {*_NAME.findall(doubt.call)}
        for key in doubt.others:
            known = scope.started.get(key) or scope.done.get(key)
            before = {*_NAME.findall(known.call)} if known is not None else now
            old, new = before - now, now - before
            if len(old) == len(new) == 1:
                formerly = dict(zip(old, new, strict=True))
                return f"If the code has a new name for its parameter, say so there: @effect(formerly={formerly})"
        return f"If its arguments differ at every start, give it a name: {doubt.step}.named(...)"
    return f"If the code has a new name for it, say so there: @effect(formerly={min(others)!r})"


def _earlier(key: Key, scope: Scope) -> str:
    """A call that may be the same action, for people."""
    if key in scope.started:
        return f"{key[0]}{scope.started[key].call}, and its outcome is unknown"
    done = scope.done.get(key)
    if done is None:
        return key[0]
    result = "a long result" if done.blob else short(msgspec.json.decode(done.result))
    return f"{key[0]}{done.call}, which returned {result}"
