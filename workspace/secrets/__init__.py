"""What must not be readable in a workspace: texts that are redacted or sealed."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from .redactor import RedactedStream, Redactor, as_recorded, hiding, parsed, redactor_of, scrub, scrubbed
    from .sealing import SEALED_PATTERN, keys_to_hand_on, seal, take_keys, unseal
