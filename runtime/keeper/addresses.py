"""Where a keeper is reached, and whom it asks. The address of a run holds the place of its folder, signed by the secret
of the keeper: who has not seen it can't ask, and one keeper serves any number of runs without being told of them. Each
start of a run has an address of its own, so that a process which has lost the run gets nothing more.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping

from msgspec import Struct

from ...workspace.base import KEEPER
from ...workspace.formats import decoder

CALL = "satchel-call"
"""The header with what a request belongs to (`ModelCall`). It goes no further than the keeper."""


class Provider(Struct, frozen=True):
    """`variables`: those that SDKs read the address of the provider from, and `keys` those of its key. With one of
    `keys` and none of `variables` the address is the `default`."""

    variables: tuple[str, ...]
    keys: tuple[str, ...] = ()
    default: str = ""


PROVIDERS = {
    "openai": Provider(("OPENAI_BASE_URL", "OPENAI_API_BASE"), ("OPENAI_API_KEY",), "https://api.openai.com/v1"),
    "anthropic": Provider(
        ("ANTHROPIC_BASE_URL",), ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "https://api.anthropic.com"
    ),
    "google": Provider(
        ("GOOGLE_GEMINI_BASE_URL",), ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "https://generativelanguage.googleapis.com"
    ),
    "groq": Provider(("GROQ_BASE_URL",), ("GROQ_API_KEY",), "https://api.groq.com"),
    "azure": Provider(("AZURE_OPENAI_ENDPOINT",)),
}


def real(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The addresses of the providers, by name, that the environment of this process names: an agent may take a variable
    with an address as the sign that there is a model to ask."""
    found = {}
    for name, provider in PROVIDERS.items():
        default = provider.default if any(environ.get(each) for each in provider.keys) else ""
        given = next((environ[each] for each in provider.variables if environ.get(each)), default)
        if given:
            found[name] = given.rstrip("/")
    return found


def environment(
    base: str, secret: bytes, url: str, providers: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables that lead the SDKs of one start to the keeper at `base`, for the run at `url`. If SDKs go by a
    proxy, which can't reach that, also those that except it."""
    address = f"{base}/{token(secret, url)}"
    named = {each: f"{address}/{name}" for name in providers for each in PROVIDERS[name].variables}
    if any(environ.get(each) for name in _PROXIES for each in (name, name.lower())):
        known = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
        named |= dict.fromkeys(("NO_PROXY", "no_proxy"), f"{known},127.0.0.1".lstrip(","))
    return {KEEPER: address, **named}


_PROXIES = ("HTTP_PROXY", "ALL_PROXY")


def token(secret: bytes, url: str) -> str:
    """The first part of every path of a start of a run."""
    place, start = base64.urlsafe_b64encode(url.encode()).rstrip(b"=").decode(), os.urandom(6).hex()
    return f"{place}.{start}.{_signed(secret, f'{place}.{start}')}"


def place(token: str) -> str:
    """The place of the run that a token is for, also with a wrong signature. Empty if it names none."""
    encoded = token.partition(".")[0]
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return ""


def is_valid(token: str, secret: bytes) -> bool:
    what, _, signature = token.rpartition(".")
    return hmac.compare_digest(signature.encode(), _signed(secret, what).encode())


def _signed(secret: bytes, what: str) -> str:
    return hmac.new(secret, what.encode(), hashlib.sha256).hexdigest()[:40]


class ModelCall(Struct, frozen=True):
    """What a request belongs to: a step of one opening of a run. `private`: its answer must not be written."""

    run_id: str
    epoch: int
    step: str
    words: str
    private: bool = False


class Paid(Struct, frozen=True, omit_defaults=True):
    """A call to a provider that was answered. `id` tells it from all others, `words` are its step for people. Seconds;
    0 if they are not known. `unused`: this opening of the run has not asked for it."""

    id: str
    words: str = ""
    model: str = ""
    tokens: int = 0
    output: int = 0
    cached: int = 0
    usd: float = 0.0
    first: float = 0.0  # until the first byte of the answer
    took: float = 0.0
    unused: bool = False


class StepAnswer(Struct, frozen=True):
    """What the keeper has for a step when a run is opened: an answer, or the `text` of one that is torn. `grown`: the
    opening before has waited for it, and it has come further."""

    step: str
    text: str = ""
    torn: bool = False
    grown: bool = False


class Opening(Struct, frozen=True):
    """An opening of a run. `anew_since`: the epoch from which on answers count; 0: all do."""

    run_id: str
    epoch: int
    anew_since: int = 0


class ModelStep(Struct, frozen=True):
    """A step, as its run tells the keeper of it: its digest, when it began, and when the oldest of the others that are
    under way did (time.monotonic, which processes of one machine share). `is_alone`: none ran next to it. `given_up`:
    it has ended without a result."""

    step: str
    epoch: int
    began: float
    oldest: float
    is_alone: bool
    given_up: bool = False


# Made when this module is imported: see `decoder`.
decode_call, decode_opening, decode_step = (decoder(each).decode for each in (ModelCall, Opening, ModelStep))
decode_kept, decode_paid, decode_bool = (decoder(each).decode for each in (list[StepAnswer], list[Paid], bool))
