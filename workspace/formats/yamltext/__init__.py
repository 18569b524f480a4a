"""The one YAML dialect: the 1.2 core schema, with the values of JSON.

`no`, `on`, `22:30` and dates are text. Anchors, tags, merge keys, several documents and keys that are not text are
refused, with the line and the remedy. Satchel changes YAML by position, so comments and order are kept.
"""

# mypy: implicit-reexport

from ...base.lazy import on_first_use

with on_first_use(__name__):  # PyYAML takes a while to import
    from .edit import dump, set_value
    from .parse import LIMIT, Document, load
