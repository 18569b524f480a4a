"""`@step`: arguments and results of a call, retries, prompts, and streamed answers."""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from . import declared, prompt, round_trip
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
    from .cleaning import clean
    from .codec import (
        ANY,
        Codec,
        canonical,
        check_depth,
        check_numbers,
        encode,
        encode_of_any_depth,
        fill_defaults,
        fingerprint,
        result_codec,
        unchecked,
    )
    from .json_schema import Closed
    from .partial import Partial, recover
    from .parts import ANYTHING, Part
    from .prompt import Prompt
    from .retry import A_DAY, ONCE, Retry, is_mistake
    from .sealed import Sealed
    from .signatures import Given, Given2, GivenThenText, Later, Own, TextFirst, TextSecond
    from .step_decorator import step
    from .unknown_keys import put_aside, put_back
