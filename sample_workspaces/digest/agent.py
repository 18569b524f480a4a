"""Reads documents and writes a brief of them: one item per document, and one for the brief.

`digest` is called from the top at every start. Finished steps return their recorded results, so the code never asks "is
this a new run or an old one?".
"""

from __future__ import annotations

import sources
from brief import compose
from model import choose
from settings import read_settings
from sources import Document, Listing
from state import State, Summary

from satchel import Item, Partial, Retry, Run, agent, step

SUMMARISE = "Summarise "
WRITE = "Write the brief"


@step
def find(paths: list[str], limit: int, folder: str) -> Listing:
    """A step may be sync: it runs in a thread."""
    return sources.find(paths, limit, folder)


@step
def read(place: str) -> Document:
    """A step, so that a summary begun before a crash is finished from the same text."""
    return sources.read(place)


@step(retry=Retry.model())
async def summarise(out: Partial, run: Run[State], name: str, text: str, by: str) -> str:
    """A parameter annotated `Partial` makes this a streamed step: the text is in partials/ before the next word comes.

    A call is identified by its arguments. `by` is one of them, so that no model continues the answer of another.
    """
    model = choose(read_settings(run.settings))
    async for words in model.stream(name, text, so_far=out.recovered, marker=out.marker):
        await out.write(words)
    return out.text


async def plan(run: Run[State]) -> None:
    settings = read_settings(run.settings)
    found = await find(settings.paths, settings.limit, run.folder)
    run.state.documents, run.state.left_out, run.state.not_read = found.documents, found.left_out, found.not_read
    items = [*(SUMMARISE + name for name in found.documents), WRITE]
    if not run.todo.items:
        await run.plan("Digest", items)
        return
    for text in items:  # below what a person has planned
        await run.todo.add(text)


async def work(run: Run[State], item: Item) -> None:
    """One item of todo.md. When this returns, the state, the tick and the output are committed together."""
    if item.text == WRITE:
        await run.output("brief.md", compose(run.state))
    elif item.text.startswith(SUMMARISE):
        await summarise_item(run, item, item.text.removeprefix(SUMMARISE))
    else:
        item.skip(f"this agent does only `{SUMMARISE}NAME` and `{WRITE}`")


async def summarise_item(run: Run[State], item: Item, name: str) -> None:
    # A name that is not known is an item that a person has added to todo.md: taken as a path.
    place = run.state.documents.setdefault(name, name)
    document = await read(place)
    if document.problem:
        run.state.left_out[name] = document.problem
        item.skip(document.problem)
        return
    by = choose(read_settings(run.settings)).title
    text = await summarise(name, document.text, by)
    run.state.summaries[name] = Summary(text, document.source, by)


@agent(state=State)
async def digest(run: Run[State]) -> None:
    await run.scope("plan", plan, run)
    await run.todo.each(work)
