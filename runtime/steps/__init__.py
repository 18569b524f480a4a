"""A step: arguments and results of its calls, retries, prompts, sealed texts, and streamed answers."""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from . import declared, round_trip
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
    from .codec import (
        ANY,
        Codec,
        canonical,
        check_depth,
        check_numbers,
        clean,
        encode,
        encode_of_any_depth,
        fill_defaults,
        fingerprint,
        result_codec,
        unchecked,
    )
    from .declared import Closed, put_aside, put_back
    from .round_trip import ANYTHING, Part
    from .texts import Prompt, Sealed, keys_to_hand_on, take_keys
