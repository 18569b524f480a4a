"""pydantic writes secrets as asterisks, so they can't be arguments, results or state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, PlainSerializer, SecretBytes, SecretStr, field_serializer

from satchel import Run, UsageError, agent, run, step
from satchel.errors import NotSerializable
from satchel.runtime.agent import Codec, encode


class Key(BaseModel):
    text: SecretStr = SecretStr("open sesame")


class Login(BaseModel):
    name: str = "ada"
    keys: dict[str, list[Key | None]] = {}


class Raw(BaseModel):
    data: SecretBytes | None = None


def shown(secret: SecretStr) -> str:
    return secret.get_secret_value()


class Shown(BaseModel):
    one: Annotated[SecretStr, PlainSerializer(shown)] = SecretStr("1")
    two: SecretStr = SecretStr("2")
    three: SecretStr = Field(SecretStr("3"), exclude=True)

    @field_serializer("two")
    def show(self, secret: SecretStr) -> str:
        return secret.get_secret_value()


@pytest.mark.parametrize(("kind", "secret"), [(Key, "SecretStr"), (list[Login], "SecretStr"), (Raw, "SecretBytes")])
def test_a_type_with_a_secret_is_read_back_as_asterisks(kind: Any, secret: str) -> None:
    with pytest.raises(UsageError, match=rf"the state has a type .* pydantic writes a {secret} as asterisks"):
        Codec(kind, "the state")


def test_a_secret_that_its_model_writes_is_refused() -> None:
    text = encode(Shown(one="a", two="b"), "it")  # type: ignore[arg-type]
    assert Codec(Shown, "it").decode(text) == Shown(one="a", two="b")  # type: ignore[arg-type]


def test_a_step_gets_asterisks_for_a_secret(workspace: Path) -> None:
    got: list[Any] = []

    @step
    async def log_in(key: Any) -> None:
        got.append(key)

    @agent
    async def main(run: Run[Any]) -> None:
        await log_in({"of": Login(keys={"a": [Key()]})})

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable) and "writes a SecretStr as asterisks" in str(outcome.error), got
