"""A fleet: runs on the workers of `dask.distributed`, on many machines.

The folders tell what is due, and Dask places it. A run is a task, so runs that wait, sleep or are paused occupy no
worker, and a run whose worker has died is taken over by what the storage tells. `satchel fleet` does it as a command.

dispatcher  `Fleet`: submits what is due below some roots
workers     what happens on a worker; the client of the scheduler, and which workers can have runs
command     `satchel fleet`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dispatcher import Fleet

__all__ = ["Fleet"]


def __getattr__(name: str) -> Any:
    """Dask is slow to import, and `satchel --help` asks the command only."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .dispatcher import Fleet

    return Fleet
