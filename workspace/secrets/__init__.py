"""What must not be readable in a workspace: texts that are redacted."""

# mypy: implicit-reexport

from ..base.lazy import on_first_use

with on_first_use(__name__):
    from .redactor import Redactor, redactor_of
