"""Files: names, formats, storage, journal, plan, state, readable files. Runs nothing.

And how the faces of all rooms are made: their imports wait until a name is first used (`deferred`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any


def deferred(face: str) -> bool:
    """True, after the package or module `face` got a `__getattr__` and a `__dir__` (PEP 562).

    So `if not deferred(__name__):` imports nothing, and each name of its `from .module import name` is imported when it
    is first used.

    For relative imports without `as`. Type checkers see plain imports. The package keeps nothing: if a test replaces a
    name in its module, the package returns the replacement.
    """
    caller = sys._getframe(1)
    code = caller.f_code  # not from the loader: that of pytest, for plugins, does not hand it out
    above = str(caller.f_globals["__package__"])

    @cache
    def homes() -> dict[str, str]:
        """The module of each name. The compiled face runs once more, with an `__import__` of its own that only notes,
        so that no list of names has to agree with the imports."""
        found: dict[str, str] = {}

        def note(
            name: str,
            globals: Mapping[str, object] | None = None,
            locals: Mapping[str, object] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> object:
            if not level or not fromlist:
                return __import__(name, globals, locals, fromlist, level)
            package = above.rsplit(".", level - 1)[0]
            found.update({each: f"{package}.{name or each}" for each in fromlist})
            return SimpleNamespace(**dict.fromkeys(fromlist, lambda _: False))

        exec(code, {"__name__": face, "__builtins__": {"__import__": note}})  # noqa: S102
        del found[deferred.__name__]
        return found

    def get(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module {face!r} has no attribute {name!r}")
        home = homes()[name]
        __import__(home)  # `python -X importtime` shows this import, but not one by importlib.import_module
        module = sys.modules[home]
        return module if home == f"{face}.{name}" else getattr(module, name)

    vars(sys.modules[face]).update(__getattr__=get, __dir__=lambda: sorted(homes()))
    return True
