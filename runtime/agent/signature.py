"""What an agent takes besides the run, as its source says. Nothing is imported: a person may ask before its code runs.

An agent of an installed module is not looked up, since that would import its packages, and neither is one that is no
plain function of its file. The types of what a person types are judged where the agent is loaded; here they only say
which field is shown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from ...workspace.base import InvalidFile
from ...workspace.store import Store

ValueKind = Literal["text", "whole", "number", "truth", "choice", "yaml"]
"""How a value is typed: as text, as a number, by a choice, or as YAML."""

_LIMIT = 1 << 20
_KINDS: dict[str, ValueKind] = {"str": "text", "int": "whole", "float": "number", "bool": "truth"}
_LITERALS: dict[type, ValueKind] = {str: "text", int: "whole", float: "number", bool: "truth"}
_OPTIONS = 50


class AgentParameter(Struct, frozen=True):
    """A parameter: its `annotation` and its `default` as they are written (None: an argument is needed), and the
    `value` of a default that is plain. `about`: what its annotation or the docstring says of it."""

    name: str
    kind: ValueKind
    annotation: str = ""
    default: str | None = None
    value: Any | UnsetType = UNSET
    options: tuple[str, ...] = ()
    about: str = ""


class AgentSignature(Struct, frozen=True):
    """An agent: the beginning of its docstring, and its parameters without the run."""

    about: str
    parameters: tuple[AgentParameter, ...]


def signature_of(store: Store, reference: str) -> AgentSignature | None:
    """That of the agent `agent.py:main`. None if its source does not tell."""
    path, _, name = reference.partition(":")
    if not path.endswith(".py"):
        return None
    try:
        tree = ast.parse(store.read(path, limit=_LIMIT).data)
    except (FileNotFoundError, InvalidFile, SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the start says what is wrong
    for node in reversed(tree.body):  # the last one counts
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            said = ast.get_docstring(node) or ""
            return AgentSignature(said.partition("\n\n")[0], tuple(_parameters(node, said))[1:])
    return None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, said: str) -> Iterator[AgentParameter]:
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    for each, default in zip(plain, [*defaults, *given.defaults], strict=True):
        yield _parameter(each, default, said)
    if given.vararg:
        yield AgentParameter(given.vararg.arg, "yaml", f"a list of {_source(given.vararg)}", "[]", [])
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(each, default, said)
    if given.kwarg:
        yield AgentParameter(given.kwarg.arg, "yaml", f"a mapping to {_source(given.kwarg)}", "{}", {})


def _source(argument: ast.arg) -> str:
    return ast.unparse(argument.annotation) if argument.annotation else "values"


def _parameter(argument: ast.arg, default: ast.expr | None, said: str) -> AgentParameter:
    kind, options, note = _kind_of(argument.annotation)
    value: Any = UNSET
    if default is not None:
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = ast.literal_eval(default)
    if argument.annotation is None and value is not UNSET:
        kind = _LITERALS.get(type(value), "yaml")
    return AgentParameter(
        argument.arg,
        kind,
        _told_type(argument.annotation),
        None if default is None else ast.unparse(default),
        value,
        options,
        note or _told(argument.arg, said),
    )


def _told_type(written: ast.expr | None) -> str:
    """An annotation as it is written, without the notes of an `Annotated`."""
    match written:
        case None:
            return ""
        case ast.Subscript(value=ast.Name("Annotated") | ast.Attribute(attr="Annotated"), slice=ast.Tuple(elts=parts)):
            return ast.unparse(parts[0])
        case ast.Constant(value=str(text)):
            return text
    return ast.unparse(written)


def _kind_of(written: ast.expr | None) -> tuple[ValueKind, tuple[str, ...], str]:
    """How a value of an annotation is typed, the options of a choice, and the text of an `Annotated`."""
    match written:
        case ast.Constant(value=str(text)):
            try:
                return _kind_of(ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError, RecursionError):
                return "yaml", (), ""
        case ast.BinOp(op=ast.BitOr(), left=one, right=ast.Constant(value=None)):
            return _kind_of(one)
        case ast.BinOp(op=ast.BitOr(), left=ast.Constant(value=None), right=one):
            return _kind_of(one)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _KINDS.get(name, "yaml"), (), ""
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inside):
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if name == "Optional":
                return _kind_of(inside)
            if name == "Annotated":
                notes = [each.value for each in parts[1:] if isinstance(each, ast.Constant)]
                kind, options, _ = _kind_of(parts[0])
                return kind, options, next((each for each in notes if isinstance(each, str)), "")
            values = [each.value if isinstance(each, ast.Constant) else None for each in parts]
            if name == "Literal" and all(isinstance(each, str) for each in values):
                return "choice", tuple(str(each) for each in values[:_OPTIONS]), ""
    return "yaml", (), ""


def _told(name: str, said: str) -> str:
    """The line of a docstring about a parameter: `name: text`, `name (type): text`, `:param name: text`."""
    found = re.search(rf"^\s*(?::param )?`?{re.escape(name)}`?(?: \([^)\n]*\))?:\s+(\S.*)$", said, re.MULTILINE)
    return found[1].strip() if found else ""
