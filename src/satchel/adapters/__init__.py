"""Other frameworks over a workspace, one module or package for each, and what they share.

HeldTree      the workspaces below a root that a program holds, each while it is used
folder_name   the name of a folder for any text
held_path     the path in files/ for any path, and `virtual_path`, the way back
ask_about     ask people about a call that a model wants
identity      what identifies a call, the same at every start
require       refuse a framework that is missing or too old

Importing Satchel loads no adapter, because each needs its framework. Importing this loads nothing: `satchel --help`
does it, for the command of an adapter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .held_tree import HeldTree, ask_about, folder_name, held_path, require, virtual_path
    from .identities import identity

__all__ = ["HeldTree", "ask_about", "folder_name", "held_path", "identity", "require", "virtual_path"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "identities" if name == "identity" else "held_tree"  # only frameworks that need pydantic have identities
    return getattr(import_module(f"{__name__}.{home}"), name)
