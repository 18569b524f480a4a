"""The one YAML dialect: the 1.2 core schema, JSON's values only, and nothing that does more than say what it says.

`no`, `on`, `22:30` and dates are text; anchors, tags, merge keys, several documents and keys that are not text are
refused, with the line and the way out. The runtime changes YAML by position, so comments and order survive.
"""

from ...base import decode
from .edit import dump, set_value
from .parse import Document, load

__all__ = ["Document", "decode", "dump", "load", "set_value"]
