"""`@agent`: the agent's function, its code, its resources and its migrations."""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from . import code
    from .code import Code, brief, describe, of_storage, place, said, where
    from .declaration import (
        Agent,
        Migration,
        Parameters,
        agent,
        check_known,
        check_migrated,
        dropped,
        file_of,
        load,
        migrate,
        migration,
    )
    from .resource import (
        TIERS,
        DaemonExecutor,
        HeldResource,
        Resource,
        ResourceOutcome,
        Tier,
        of_a_future,
        runs_on_loop,
        takes_run,
        unhindered,
    )
