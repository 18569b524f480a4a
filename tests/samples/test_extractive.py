"""Sentences out of documents, and which of them make a summary."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import growth
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Load = Callable[[str], ModuleType]


@pytest.fixture
def prose(module: Load) -> Any:
    return module("prose")


@pytest.fixture
def extractive(module: Load) -> Any:
    return module("extractive")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One is here. Two is there! Is three? Yes.", ["One is here.", "Two is there!", "Is three?", "Yes."]),
        ("It is, e.g. here, by J. Smith of v1.2.3 fame.", ["It is, e.g. here, by J. Smith of v1.2.3 fame."]),
        ('He said "no." Then he left (at last). So be it.', ['He said "no."', "Then he left (at last).", "So be it."]),
        ("Wait... what? Go on.", ["Wait... what?", "Go on."]),
        ("Two lines\nare one.\n\nA paragraph ends one", ["Two lines are one.", "A paragraph ends one"]),
        ("一つ。二つ。", ["一つ。", "二つ。"]),
    ],
)
def test_sentences_end_where_they_end(prose: Any, text: str, sentences: list[str]) -> None:
    assert prose.sentences(text) == sentences


@pytest.mark.parametrize(
    "noise",
    [
        "# A heading",
        "A heading\n=========",
        "Pygments\n~~~~~~~~",
        "```py\nx = 'Code.'\n```",
        "~~~\nCode.\n~~~",
        "    indented = 'Code.'",
        "| a | table |\n| - | - |",
        "<!-- A comment.\nOf two lines. -->",
        ".. image:: x.png\n   :alt: A picture.",
        ".. _link: https://example.com",
        "[link]: https://example.com",
        "[![badge](https://example.com/a.svg)](https://example.com)",
        "https://example.com/",
        ">>> code()",
        "* * *",
    ],
)
def test_what_is_not_prose_is_left_out(prose: Any, noise: str) -> None:
    assert prose.sentences(f"Before it.\n\n{noise}\n\nAfter it.") == ["Before it.", "After it."]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("**bold** and *slanted* and _so_", "bold and slanted and so"),
        ("`code` and ``code``", "code and code"),
        ("[a link](https://example.com) and [one][ref]", "a link and one"),
        ("`a link <https://x.org>`_", "a link"),
        (":func:`~os.path` and Trio_.", "os.path and Trio."),
        ("See ![a picture](x.png) this", "See this"),
        ("<b>bold</b>", "bold"),
        ("snake_case_name and 2 * 3 * 4", "snake_case_name and 2 * 3 * 4"),
        ("__init__ a\\*b", "init a*b"),
    ],
)
def test_markup_is_taken_off(prose: Any, marked: str, plain: str) -> None:
    assert list(prose.paragraphs(marked)) == [plain]


def test_items_of_a_list_are_apart_and_their_second_lines_are_not_code(prose: Any) -> None:
    assert prose.sentences("- One item\n  of two lines.\n- Another.\n\n    And its second paragraph.") == [
        "One item of two lines.",
        "Another.",
        "And its second paragraph.",
    ]


def test_a_literal_block_is_code(prose: Any) -> None:
    assert prose.sentences("Like this::\n\n  code = 'Code.'\n\nAfter it.") == ["Like this.", "After it."]


TEXT = (
    "Weather is what people talk about. The harbour was built for ships, and the ships brought grain to the harbour. "
    "My aunt prefers tea to coffee. Without ships, the harbour has neither grain nor visitors today."
)


def test_the_sentences_with_the_words_of_the_text_are_chosen_in_its_order(extractive: Any) -> None:
    assert extractive.summarise(TEXT, 2) == (
        "The harbour was built for ships, and the ships brought grain to the harbour. "
        "Without ships, the harbour has neither grain nor visitors today."
    )


def test_a_sentence_is_not_said_twice(extractive: Any) -> None:
    assert extractive.summarise("The same words come again. " * 3, 3) == "The same words come again."


@pytest.mark.parametrize("text", ["Title", "```\nx\n```", "1 2 3", "| a |", "- https://example.com"])
def test_a_text_without_sentences_has_a_summary_too(extractive: Any, text: str) -> None:
    assert extractive.summarise(text, 3).strip()


ONE_THING = [
    "[",
    "![",
    "<a",
    "<",
    "`",
    "``",
    "**a ",
    "*a ",
    "_a",
    "e.g. ",
    "...",
    "a. ",
    "> ",
    "- \n",
    "~~~\n",
    "```\n",
]
MORE = ["::\n\n", "\n", " ", ".. \n", "<!--", "|a", ":a", "* *", "1. ", "((", "\\", "Aa. ", ".. a\n  ", "a", "_"]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("piece", [*ONE_THING, *MORE])
def test_a_file_of_one_thing_takes_no_longer_than_prose(extractive: Any, piece: str) -> None:
    """A pattern that looks ahead to the end from every place takes the square of a file's length."""
    growth.stays_linear(lambda size: partial(extractive.summarise, "Word. " + piece * (size // len(piece)), 3), 4_000)


@given(st.text(min_size=1).filter(str.strip), st.integers(1, 4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_has_one_summary(extractive: Any, text: str, count: int) -> None:
    summary = extractive.summarise(text, count)
    assert summary.strip()
    assert summary == extractive.summarise(text, count)
    assert len(summary.splitlines()) == 1
