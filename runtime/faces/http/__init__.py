"""What all servers of Satchel share, and the two for programs: tasks by HTTP and metrics. The page and MCP stand on it.

access       where a server listens, its names, the token that requests have to show, and what slows down those who
             guess it; around what programs ask: who may, what an error looks like, and the thread that answers
listen       `satchel serve --listen`: tasks that arrive by HTTP
metrics      `--metrics`, and on the page: /metrics, /healthz and /readyz
"""

# mypy: implicit-reexport

from ....workspace import deferred

if not deferred(__name__):
    from .access import (
        Address,
        Guesses,
        HttpProblem,
        Names,
        Senders,
        address_of,
        bound,
        given_token,
        is_bearer,
        tokens_of,
    )
    from .listen import listening
    from .metrics import HEALTHY, METRICS, READY, metric_routes
