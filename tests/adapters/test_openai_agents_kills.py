"""SIGKILL at any moment of an agent of the OpenAI Agents SDK: at most one call more of what was under way, every result
in its place, every effect once, and a streamed answer continued."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing import explore
from properties import ROUNDS, seed


@pytest.mark.long
def test_a_killed_agent_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    explore("sdk", tmp_path, "seeded", seed(), 2, needs="pydantic_ai, satchel.adapters.openai_agents")


@pytest.mark.long
@pytest.mark.slow
def test_an_agent_killed_at_many_moments_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    explore("sdk", tmp_path, "seeded", seed(), 5 * ROUNDS, needs="pydantic_ai, satchel.adapters.openai_agents")


def test_a_session_of_a_killed_agent_has_each_prompt_once(tmp_path: Path) -> None:
    explore("sdk_session", tmp_path, "seeded", seed(), 2, needs="satchel.adapters.openai_agents")


@pytest.mark.soak
def test_a_session_of_an_agent_killed_200_times_has_each_prompt_once(tmp_path: Path) -> None:
    explore("sdk_session", tmp_path, "seeded", seed(), 150, needs="satchel.adapters.openai_agents")
