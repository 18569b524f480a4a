"""What every room uses: errors, names, URLs, text and times, the stamp."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import arguments, stamp, urls
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
        NoWorkspace,
        RecordedError,
        Refused,
        SatchelError,
        StorageFailed,
        UsageError,
        taken_over,
    )
    from .names import (
        ANSWERS,
        DEFINITION,
        DRIFTED,
        ID,
        KEEPER,
        KEY_BYTES,
        NAME_BYTES,
        OF_A_RUN,
        SCHEMAS,
        SIGNAL,
        Mode,
        Resume,
        check_new,
        check_path,
        fitting,
        fresh_run_id,
        is_name,
        myself,
        shown,
        slug,
        version,
    )
    from .stamp import Copy, Stamp, Stamped, read_json, read_markdown
    from .text import (
        UNSAFE,
        counted,
        cut,
        decode,
        duration,
        in_force,
        is_blank,
        lines,
        moment_after,
        moment_before,
        moment_of,
        one_line,
        place,
        seconds_of,
        since,
        size,
        time_text,
        usd,
        visible,
    )
