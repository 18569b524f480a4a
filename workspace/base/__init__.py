"""What every room uses: errors, names, URLs, text, times, the stamp, the version."""

from typing import TYPE_CHECKING

from .lazy import lazily

if TYPE_CHECKING:
    from . import arguments, stamp, textfile, times, urls
    from .distribution import version
    from .errors import (
        AgentError,
        Conflicting,
        Damaged,
        DoesNotFit,
        InvalidFile,
        LeaseHeld,
        NewerFormat,
        NotDone,
        NotSerializable,
        Refused,
        SatchelError,
        StorageFailed,
        UsageError,
        taken_over,
    )
    from .names import DEFINITION, ID, OF_A_RUN, SCHEMAS, check_path, is_name, shown, slug
    from .pauses import SIGNAL, Mode, Resume
    from .stamp import Stamp, Stamped, read_json, read_markdown
    from .textfile import UNSAFE, decode, lines, place, visible
    from .times import time_text
    from .typed import decoder
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "arguments": ("arguments",),
            "distribution": ("version",),
            "errors": (
                "AgentError",
                "Conflicting",
                "Damaged",
                "DoesNotFit",
                "InvalidFile",
                "LeaseHeld",
                "NewerFormat",
                "NotDone",
                "NotSerializable",
                "Refused",
                "SatchelError",
                "StorageFailed",
                "UsageError",
                "arguments",
                "taken_over",
            ),
            "names": ("DEFINITION", "ID", "OF_A_RUN", "SCHEMAS", "check_path", "is_name", "shown", "slug"),
            "pauses": ("Mode", "Resume", "SIGNAL"),
            "stamp": ("Stamp", "Stamped", "read_json", "read_markdown", "stamp"),
            "textfile": ("UNSAFE", "decode", "lines", "place", "textfile", "visible"),
            "times": ("time_text", "times"),
            "typed": ("decoder",),
            "urls": ("urls",),
        },
    )

__all__ = [
    "DEFINITION",
    "ID",
    "OF_A_RUN",
    "SCHEMAS",
    "SIGNAL",
    "UNSAFE",
    "AgentError",
    "Conflicting",
    "Damaged",
    "DoesNotFit",
    "InvalidFile",
    "LeaseHeld",
    "Mode",
    "NewerFormat",
    "NotDone",
    "NotSerializable",
    "Refused",
    "Resume",
    "SatchelError",
    "Stamp",
    "Stamped",
    "StorageFailed",
    "UsageError",
    "arguments",
    "check_path",
    "decode",
    "decoder",
    "is_name",
    "lines",
    "place",
    "read_json",
    "read_markdown",
    "shown",
    "slug",
    "stamp",
    "taken_over",
    "textfile",
    "time_text",
    "times",
    "urls",
    "version",
    "visible",
]
