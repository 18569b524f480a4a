"""What an author declares: an agent, with its code, its resources and its migrations; and its steps, with arguments,
results, attempts, prompts and sealed texts.
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import code, round_trip, type_hints
    from .attempts import A_DAY, ONCE, OnPartial, Partial, Retry, is_limited, is_mistake, recover, retry_after
    from .calls import (
        MODEL,
        Formerly,
        Key,
        OwnStep,
        P,
        R,
        RunParameter,
        S,
        Step,
        awaited,
        current_scope,
        key_parameter,
        run_parameter,
        runs_going,
    )
    from .code import Code, brief, describe, of_storage, place, said, where
    from .codec import (
        ANY,
        Codec,
        canonical,
        check_depth,
        check_numbers,
        clean,
        encode,
        encode_of_any_depth,
        fingerprint,
        result_codec,
        unchecked,
    )
    from .declaration import (
        Agent,
        Migration,
        Parameters,
        agent,
        check_known,
        check_migrated,
        dropped,
        file_of,
        load,
        migrate,
        migration,
    )
    from .resource import (
        TIERS,
        DaemonExecutor,
        HeldResource,
        Resource,
        ResourceOutcome,
        Tier,
        of_a_future,
        runs_on_loop,
        takes_run,
        unhindered,
    )
    from .round_trip import ANYTHING, Part
    from .texts import Prompt, Sealed, keys_to_hand_on, take_keys
    from .type_hints import Closed, put_aside, put_back
