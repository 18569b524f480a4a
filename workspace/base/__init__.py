"""What every room uses: errors, names, URLs, text, times, the stamp, the version."""

# mypy: implicit-reexport

from .lazy import on_first_use

with on_first_use(__name__):
    from . import arguments, stamp, textfile, times, urls
    from .distribution import version
    from .errors import (
        AgentError,
        Conflicting,
        Damaged,
        DoesNotFit,
        InvalidFile,
        KeyReused,
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
    from .names import (
        DEFINITION,
        ID,
        KEY_BYTES,
        NAME_BYTES,
        OF_A_RUN,
        SCHEMAS,
        check_new,
        check_path,
        fitting,
        is_name,
        shown,
        slug,
    )
    from .pauses import SIGNAL, Mode, Resume
    from .person import myself
    from .stamp import Copy, Stamp, Stamped, read_json, read_markdown
    from .textfile import UNSAFE, decode, lines, place, visible
    from .times import moment_of, time_text
    from .typed import decoder
    from .words import counted, cut, duration, in_force, one_line, since, size
