"""A call does not begin if a person has revoked the standing approval that it was told of."""

from __future__ import annotations

from .open_scope import Call
from .stopping import Suspended


def check(call: Call) -> None:
    """Look for a revocation, also where that is a request. If the question about this call is open again, the run stops
    to wait for a person. Quick on a disk; called on the event loop, so that nothing comes between it and the intent."""
    scope, context, tool = call.scope, call.scope.context, call.key[0]
    moment, place = context.moment, (scope.agent.path, scope.key, tool)
    if moment.stands_for(scope.agent.path, tool) is not None:
        found = context.workspace.desk.look_for_revocations(context.journal, is_fresh=True)
        context.tally.noticed += [each.text for each in found]
    id = moment.overtaken_by(scope.agent.path, scope.key, call.key)
    if id is not None:  # it has begun before: this would be another time
        context.workspace.desk.revoke(context.journal, id, moment.overtaken[id].by)
    if moment.is_taken_back(*place):
        context.stopping.wait_for_person()
        raise Suspended
