"""An exception on record is made again as what it was, or as the nearest to that."""

from __future__ import annotations

import pickle
import subprocess
from typing import Any

import pydantic
import pytest
from msgspec import Raw
from msgspec.structs import replace

from satchel import NotDone
from satchel.errors import RecordedError
from satchel.runtime.engine import open_scope, performing
from satchel.workspace.journal import Failure


class Refused(Exception):
    """As an HTTP client raises: more arguments than the class keeps, and one that is no JSON."""

    def __init__(self, status: int, *, body: str, response: object):
        super().__init__(f"{status}: {body}")
        self.status, self.body, self.response = status, body, response


class Strict(ValueError):
    def __init__(self, *, code: int):
        super().__init__()
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


class Unmakeable(ConnectionError):
    def __new__(cls, *args: Any, fields: int = 0) -> Unmakeable:
        if not fields:
            raise TypeError("it needs fields")
        return super().__new__(cls, *args)


class Group(ExceptionGroup[Exception]):
    pass


def once_more(error: Exception) -> Exception:
    open_scope.mark_raised(error, 1, ("f", "0", 0), is_replayed=False)
    return performing.recorded_error(performing.recorded_failure(error))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong", 3, None, {"a": [1.5]}),
        KeyError("a"),
        Exception(),
        Strict(code=3),
        NotDone("no route"),
        FileNotFoundError(2, "No such file", "a.txt"),
        TimeoutError(),
        LookupError("ü\n"),
        subprocess.CalledProcessError(3, ["ls"]),
        Refused(404, body="gone", response=object()),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_comes_back_as_another(error: Exception) -> None:
    found = once_more(error)
    assert type(found) is type(error) and str(found) == str(error) and found.args == error.args
    for name in ("status", "body", "code", "errno", "returncode"):
        assert getattr(found, name, None) == getattr(error, name, None)
    assert not hasattr(found, "response"), "it is no JSON"
    assert pickle.dumps(found), "programs hand it on"


def test_a_group_comes_back_as_another() -> None:
    found = once_more(Group("two", [KeyError("a"), ExceptionGroup("inner", [Strict(code=1)])]))
    assert type(found) is Group and str(found) == "two (2 sub-exceptions)"
    key, inner = found.exceptions
    assert type(key) is KeyError and isinstance(inner, ExceptionGroup) and type(inner.exceptions[0]) is Strict


class Model(pydantic.BaseModel):
    number: int


def test_one_that_cannot_be_made_is_not_of_a_class_above_it() -> None:
    class Local(Strict):
        pass

    try:
        Model.model_validate({"number": "x"})
    except pydantic.ValidationError as error:
        invalid = error
    cases: list[tuple[Exception, type[Exception], str]] = [
        (Local(code=1), Strict, "Local"),
        (Unmakeable("a", fields=1), ConnectionError, "Unmakeable"),
        (invalid, ValueError, "ValidationError"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), ValueError, "UnicodeDecodeError"),
        (ValueError(object), ValueError, "ValueError"),
        (ValueError((1, 2)), ValueError, "ValueError"),
    ]
    for error, above, name in cases:
        found = once_more(error)
        assert isinstance(found, RecordedError) and isinstance(found, above), error
        assert str(found) == str(error) and type(found).__name__ == name
        assert str(pickle.loads(pickle.dumps(found))) == str(error)  # noqa: S301  # our own


@pytest.mark.parametrize(
    "types",
    [
        (),
        ("os:system",),
        ("subprocess:Popen", "builtins:BaseException"),
        ("a:b.c.d",),
        ("",),
        (":",),
        ("builtins:SystemExit",),
        ("satchel_evil:Error",),
        ("builtins:Exception.__class__",),
        ("x\ny:z\0",),
    ],
)
@pytest.mark.parametrize("args", [b"", b"[1]", b"{}", b"nonsense"])
def test_a_forged_record_makes_something_else_of_a_class(types: tuple[str, ...], args: bytes) -> None:
    failure = Failure("E", "said", types=types, args=Raw(args), attributes=Raw(args))
    found = performing.recorded_error(failure)
    assert isinstance(found, RecordedError) and not isinstance(found, OSError) and str(found) == "said"


def test_what_is_long_is_kept() -> None:
    failure = performing.recorded_failure(ValueError("x" * 1_000_000))
    assert len(failure.args) == 0 and len(failure.message) == 100_000
    assert len(str(performing.recorded_error(replace(failure, types=failure.types[:1])))) == 100_000


def test_a_chain_ends_at_the_first_exception_of_a_call() -> None:
    first, second, third = ValueError(1), ValueError(2), ValueError(3)
    third.__cause__, second.__context__ = second, first
    open_scope.mark_raised(first, 7, ("a", "", 0), is_replayed=False)
    open_scope.mark_raised(second, 7, ("b", "", 0), is_replayed=True)
    assert open_scope.raising_calls(third, 7) == {("b", "", 0): True}
    assert open_scope.raising_calls(third, 8) == {}
    group = ExceptionGroup("all", [first, third])
    first.__cause__ = group  # a circle
    assert set(open_scope.raising_calls(group, 7)) == {("a", "", 0), ("b", "", 0)}
