"""What a run works with, and what has changed since it last ran."""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ...workspace.base import Refused, version
from ...workspace.formats import Definition
from ...workspace.secrets import as_recorded, redactor_of
from ...workspace.state import prompts
from ...workspace.store import Store
from ..agent import Agent, dependencies
from ..steps import Step, canonical

SETTINGS = "the settings have changed"

_MODEL_KEYS = ("model", "models")
_SHOWN = 8
"""How many digits of a hash are shown."""


def config(
    store: Store,
    definition: Definition,
    agent: Agent,
    code: dependencies.Code,
    was: Mapping[str, Any],
    references: Sequence[str] = (),
) -> dict[str, Any]:
    """What the run works with now, in its recorded form, after it has worked with `was`. `code` is `code_of` the agent,
    `references` are those that it has named itself.

    Not seen: code that is imported by a computed name or lies in other folders, what installed packages import, a model
    behind a name, and models that are neither a step's `fallback` nor under `model` or `models` in the settings.
    """
    shelf = prompts.Shelf(store, definition.prompts_folder)
    found: dict[str, Any] = {
        "satchel": version(),
        "python": platform.python_version(),
        "agent": definition.agent,
        "agent_sha256": _sha(code.modules),
        "code": code.modules,
        "packages": code.packages,
        **({"commit": code.commit} if code.commit else {}),
        "settings_sha256": _sha(definition.settings),
        "prompts": {name: prompts.version_of(data) for name, data in shelf.files().items()},
        "models": _models(agent, definition.settings),
        "state_version": agent.version,
        "on_cancel": agent.on_cancel is not None,
    }
    if definition.prompts == "pinned" and (pinned := prompts.pinned(was)) is not None:
        found[prompts.PINNED] = pinned
    found |= {"references": list(references)} if references else {}
    now: dict[str, Any] = as_recorded(
        was, redactor_of(definition).value(found)
    )  # it is compared with what was recorded
    return now


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """The changes between two configurations, one by one, in words. Facts that an older one lacks count as
    unchanged."""
    if not was:
        return ()
    told: list[str] = []
    for key, name in (("satchel", "satchel"), ("python", "python"), ("agent", "agent"), ("state_version", None)):
        if key in was and was[key] != now.get(key):
            told.append(f"{name or 'state version'} {was[key]} -> {now.get(key)}")
    told += _items(was, now, "code", "{}")
    told += _items(was, now, "packages", "{}", is_version=True)
    told += _items(_in_use(was), _in_use(now), "prompts", "prompt {}")
    for key, (before, after) in _changed(was, now, "models"):
        told.append(f"model {key} was {_plain(before)}, is {_plain(after)}")
    if "settings_sha256" in was and was["settings_sha256"] != now["settings_sha256"]:
        told.append(f"{SETTINGS} ({was['settings_sha256'][:_SHOWN]} -> {now['settings_sha256'][:_SHOWN]})")
    return tuple(told)


def _in_use(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration with the prompts that the run uses: it is held to some, whatever their files say."""
    pinned = prompts.pinned(config)
    return config if pinned is None else {**config, "prompts": {**config.get("prompts", {}), **pinned}}


def refuse(found: Sequence[str]) -> None:
    """Raise the error of `on_drift: refuse`."""
    raise Refused(
        "not resuming: `on_drift: refuse` is set and these have changed:\n  " + "\n  ".join(found) + "\n ",
        path="workspace.yaml",
        remedy="undo the changes, or accept them: `satchel resume --accept-drift` "
        "(`resume(accept_drift=True)` in Python)",
    )


def _items(
    was: Mapping[str, Any], now: Mapping[str, Any], section: str, name: str, *, is_version: bool = False
) -> Iterator[str]:
    for key, (before, after) in _changed(was, now, section):
        what = name.format(key)
        if before is None:
            yield f"{what} {after} is new" if is_version else f"{what} is new"
        elif after is None:
            yield f"{what} {before} is missing now" if is_version else f"{what} is missing now"
        elif is_version:
            yield f"{what} {before} -> {after}"
        elif section == "code":
            yield f"{what} has changed ({before[:_SHOWN]} -> {after[:_SHOWN]})"
        else:
            yield f"{what} was {before[:_SHOWN]}, is {after[:_SHOWN]}"


def _changed(was: Mapping[str, Any], now: Mapping[str, Any], section: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if section not in was:
        return
    before, after = was[section], now.get(section, {})
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield key, (before.get(key), after.get(key))


def code_of(agent: Agent) -> dependencies.Code:
    """Empty for an agent that was defined in no file, for example at a prompt, and for Satchel itself, whose version is
    in the record."""
    if agent.function.__module__.startswith(f"{__name__.partition('.')[0]}."):
        return dependencies.Code()
    try:
        file = inspect.getsourcefile(inspect.unwrap(agent.function))
    except TypeError:
        file = None
    return dependencies.of(file) if file and os.path.isfile(file) else dependencies.Code()


def _models(agent: Agent, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The models of the settings, by their place, and the fallbacks of the steps in the agent's module."""
    found = dict(_in_settings("settings", settings))
    for value in list(getattr(agent.function, "__globals__", {}).values()):
        if isinstance(value, Step) and value.fallback:
            found[f"{value.name}.fallback"] = list(value.fallback)
    return dict(sorted(found.items()))


def _in_settings(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key in _MODEL_KEYS:
            yield f"{place}.{key}", inner
        else:
            yield from _in_settings(f"{place}.{key}", inner)


def _plain(value: Any) -> str:
    return "not given" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _sha(value: Any) -> str:
    return hashlib.sha256(canonical(value, "the configuration")).hexdigest()
