"""`@agent`: the agent's function, its code, its resources and its migrations."""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import dependencies, download
    from .daemon_thread import Apart, of_a_future
    from .declaration import Agent, agent, load
    from .dependencies import Code
    from .failure import brief, describe, of_storage, place, said
    from .migrations import Migration, check_migrated, migrate, migration
    from .resource import TIERS, Event, Held, Resource, Tier, runs_on_loop, takes_run, unhindered
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "daemon_thread": ("Apart", "of_a_future"),
            "declaration": ("Agent", "agent", "load"),
            "dependencies": ("Code", "dependencies"),
            "download": ("download",),
            "failure": ("brief", "describe", "of_storage", "place", "said"),
            "migrations": ("Migration", "check_migrated", "migrate", "migration"),
            "resource": ("Event", "Held", "Resource", "TIERS", "Tier", "runs_on_loop", "takes_run", "unhindered"),
        },
    )

__all__ = [
    "TIERS",
    "Agent",
    "Apart",
    "Code",
    "Event",
    "Held",
    "Migration",
    "Resource",
    "Tier",
    "agent",
    "brief",
    "check_migrated",
    "dependencies",
    "describe",
    "download",
    "load",
    "migrate",
    "migration",
    "of_a_future",
    "of_storage",
    "place",
    "runs_on_loop",
    "said",
    "takes_run",
    "unhindered",
]
