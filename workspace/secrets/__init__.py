"""What must not be readable in a workspace: texts that are redacted or sealed."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from .exceptions import parsed, scrub, scrubbed
    from .redactor import Redactor, as_recorded, hiding, redactor_of
    from .sealing import SEALED_PATTERN, keys_to_hand_on, seal, take_keys, unseal
    from .stream import RedactedStream
