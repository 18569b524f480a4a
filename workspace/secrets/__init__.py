"""What must not be readable in a workspace, and is redacted."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from .redactor import RedactedStream, Redactor, as_recorded, hide, hiding, parsed, redactor_of, scrub, scrubbed
