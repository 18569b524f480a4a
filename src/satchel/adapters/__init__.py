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
    from .file_names import folder_name, held_path, virtual_path
    from .held_tree import HeldTree, ask_about, require
    from .identities import identity

__all__ = ["HeldTree", "ask_about", "folder_name", "held_path", "identity", "require", "virtual_path"]

_HOMES = {
    "folder_name": "file_names",
    "held_path": "file_names",
    "virtual_path": "file_names",
    "identity": "identities",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'held_tree')}"), name)
