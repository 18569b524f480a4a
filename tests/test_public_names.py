"""What `satchel`, `satchel.results` and `satchel.errors` give: all that a user may have to name, as it is in a public
signature."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import satchel
from satchel import SatchelError
from satchel.runtime.status import Execution
from satchel.workspace.base import errors


def names_in(annotation: ast.expr) -> Iterator[str]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id


def signatures(node: ast.AST) -> Iterator[str]:
    """The names in the annotations of a function, or of the public fields and methods of a class."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for annotation in [node.returns, *(each.annotation for each in every if each)]:
            yield from names_in(annotation) if annotation else ()
    elif isinstance(node, ast.AnnAssign):
        yield from names_in(node.annotation)
    elif isinstance(node, ast.ClassDef):
        for inner in node.body:
            if not getattr(inner, "name", "").startswith("_"):
                yield from signatures(inner)


def definition(name: str, module: ModuleType) -> Any:
    """What an annotation of `module` means by `name`, also if it is imported for type checking only."""
    if hasattr(module, name):
        return getattr(module, name)
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if isinstance(node, ast.ImportFrom) and name in [each.asname or each.name for each in node.names]:
            base = "." * node.level + (node.module or "")
            return getattr(importlib.import_module(base, module.__package__), name, None)
    return None


def used(public: Any) -> Iterator[Any]:
    """The classes of Satchel in the signatures of a public name."""
    kinds = inspect.getmro(public) if inspect.isclass(public) else (public,)
    for kind in kinds:
        module = sys.modules[getattr(kind, "__module__", "builtins")]
        if not module.__name__.startswith("satchel."):
            continue
        tree = ast.parse(inspect.getsource(module))
        nodes = [node for node in tree.body if getattr(node, "name", "") == kind.__name__]
        for name in {name for node in nodes for name in signatures(node)}:
            found = definition(name, module)
            is_ours = inspect.isclass(found) and found.__module__.startswith("satchel.") and found.__name__[0] != "_"
            if is_ours and found is not Execution:  # which no caller gets: a twin returns the result of one
                yield found


def test_an_import_of_everything_hides_a_builtin() -> None:
    assert not {*satchel.__all__} & {*dir(builtins)} and callable(satchel.open)


CALLED = (
    satchel.Answer,
    satchel.Handle,
    satchel.InboxTask,
    satchel.Item,
    satchel.Outcome,
    satchel.Partial,
    satchel.Resource,
    satchel.Retry,
    satchel.Run,
    satchel.Step,
    satchel.Effect,
    satchel.results.Watch,
)
"""The classes whose methods a user calls or writes. Others are results."""


MODULES = (satchel, satchel.results, satchel.errors)


def test_satchel_has_more_names_than_a_newcomer_reads() -> None:
    assert len(satchel.__all__) <= 40


def test_a_name_has_two_homes_but_for_some_errors() -> None:
    assert not {*satchel.results.__all__} & {*satchel.__all__, *satchel.errors.__all__}


def test_every_type_in_a_public_signature_can_be_imported_from_satchel() -> None:
    public = [getattr(module, name) for module in MODULES for name in module.__all__]
    called = [each for each in public if inspect.isfunction(each)]
    public += vars(satchel.events).values()
    found = {kind: each.__name__ for each in (*called, *CALLED) for kind in used(each)}
    assert len(found) > 20
    classes = tuple(each for each in public if inspect.isclass(each))
    missing = [
        f"{kind.__module__}.{kind.__name__}, in {by}"
        for kind, by in found.items()
        if not any(kind in each.__mro__ for each in classes)
    ]
    assert not missing


def test_every_error_can_be_imported_from_satchel() -> None:
    every = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, SatchelError)]
    assert len(every) > 10
    assert not [each.__name__ for each in every if getattr(satchel.errors, each.__name__, None) is not each]
