"""Lazy faces of rooms: a name is loaded from its module when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazily(room: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the package `room`. Importing the package then imports none of its modules.

    `homes` says which names each module has. A module's own name among them means the module. The package keeps
    nothing: if a test replaces a name in its module, the package returns the replacement.
    """
    places = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        home = f"{room}.{places[name]}"
        __import__(home)  # `python -X importtime` shows this import, but not one by importlib.import_module
        module = sys.modules[home]
        return module if home.rpartition(".")[2] == name else getattr(module, name)

    return get, lambda: sorted(places)
