"""Lazy faces of rooms: the imports of a package that wait until a name is first used."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from types import ModuleType
from typing import Any

_LOCK = RLock()
"""Protects `builtins.__import__`, which all threads share, while a face replaces it."""


@contextmanager
def on_first_use(face: str) -> Iterator[None]:
    """`from .module import name` in this block imports nothing yet: the name is loaded when it is first used.

    For the package `face` only, and for relative imports without `as`. Type checkers see plain imports. The package
    keeps nothing: if a test replaces a name in its module, the package returns the replacement.
    """
    homes: dict[str, str] = {}

    def note(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if not level or not fromlist or globals is None or globals["__name__"] != face:
            return builtin(name, globals, locals, fromlist, level)
        package = face.rsplit(".", level - 1)[0]
        homes.update({each: f"{package}.{name or each}" for each in fromlist})
        stand_in = ModuleType(name)
        vars(stand_in).update(dict.fromkeys(fromlist))
        return stand_in

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {face!r} has no attribute {name!r}")
        home = homes[name]
        __import__(home)  # `python -X importtime` shows this import, but not one by importlib.import_module
        module = sys.modules[home]
        return module if home == f"{face}.{name}" else getattr(module, name)

    with _LOCK:
        builtin, builtins.__import__ = builtins.__import__, note
        try:
            yield
        finally:
            builtins.__import__ = builtin
    package = vars(sys.modules[face])
    for name in homes:
        del package[name]
    package.update(__getattr__=get, __dir__=lambda: sorted(homes))
