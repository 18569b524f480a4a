"""`@step`: arguments and results of a call, retries, prompts, and streamed answers."""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import declared, prompt
    from .calls import MODEL, Key, RunParameter, Step, current_scope, key_parameter, run_parameter, runs_going, step
    from .codec import (
        ANY,
        Codec,
        canonical,
        check_depth,
        check_numbers,
        encode,
        encode_of_any_depth,
        fingerprint,
        result_codec,
        unchecked,
    )
    from .partial import Partial, recover
    from .prompt import FOLDER, Prompt
    from .retry import A_DAY, ONCE, Retry, is_mistake
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "calls": (
                "Key",
                "MODEL",
                "RunParameter",
                "Step",
                "current_scope",
                "key_parameter",
                "run_parameter",
                "runs_going",
                "step",
            ),
            "codec": (
                "ANY",
                "Codec",
                "canonical",
                "check_depth",
                "check_numbers",
                "encode",
                "encode_of_any_depth",
                "fingerprint",
                "result_codec",
                "unchecked",
            ),
            "declared": ("declared",),
            "partial": ("Partial", "recover"),
            "prompt": ("FOLDER", "Prompt", "prompt"),
            "retry": ("A_DAY", "ONCE", "Retry", "is_mistake"),
        },
    )

__all__ = [
    "ANY",
    "A_DAY",
    "FOLDER",
    "MODEL",
    "ONCE",
    "Codec",
    "Key",
    "Partial",
    "Prompt",
    "Retry",
    "RunParameter",
    "Step",
    "canonical",
    "check_depth",
    "check_numbers",
    "current_scope",
    "declared",
    "encode",
    "encode_of_any_depth",
    "fingerprint",
    "is_mistake",
    "key_parameter",
    "prompt",
    "recover",
    "result_codec",
    "run_parameter",
    "runs_going",
    "step",
    "unchecked",
]
