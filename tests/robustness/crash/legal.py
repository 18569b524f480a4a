"""What a crash may legally leave behind, at any moment of a recording.

    a kill            everything that the calls so far have done; of the last write perhaps only its beginning
    a power failure   what was synced, and of everything else any part:
        names    of each folder the changes since its last sync, each kept or lost; changes of one name stay in order,
                 a rename inside one folder is one change; one between two folders is two, and the old name goes only
                 if the new one has come: file systems with a journal, and those that copy on write, do both at once
        content  of each file the bytes since its last sync: the size anywhere in between, pages and sectors zero

A folder whose own name is lost takes with it what is in it, synced or not.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .memory import ROOT, TOP, Change, File, Folder, Nodes, Step, apply, placed

PAGE, SECTOR = 4096, 512
_RUBBISH = ".satchel/tmp"


class Chain(NamedTuple):
    """Changes of one name, or of names tied by renames, of which a power failure keeps the first few."""

    folder: int
    path: str  # of its first name, for people; relative to ROOT
    changes: tuple[Change, ...]


class Torn(NamedTuple):
    """What is left of a file: its first `size` bytes, with zeros in some ranges."""

    size: int
    zeroed: tuple[tuple[int, int], ...] = ()


Losses = Mapping[Chain | int, int | Torn]
"""Of a chain, how many changes were kept; of an inode, what is left. What isn't named here was kept whole."""


class Crash(NamedTuple):
    """After call `at` of a recording; `cut` bytes of it, a write, were not written. Without losses it is a kill."""

    at: int
    cut: int = 0
    losses: Losses | None = None


def state_after(log: Sequence[Step], crash: Crash) -> Nodes:
    """What is there after `crash`. After a kill the page cache lives on, so it says too what is not durable yet."""
    nodes = log[crash.at].nodes
    if crash.cut and log[crash.at].call.name == "write":  # what is left out to shrink a story moves the others' calls
        nodes = dict(nodes)
        number = log[crash.at].call.node
        file = nodes[number]
        assert isinstance(file, File)
        nodes[number] = file._replace(data=file.data[: len(file.data) - crash.cut])
    return nodes if crash.losses is None else _durable(remains(nodes, crash.losses))


def kills(log: Sequence[Step], at: int) -> Iterator[Crash]:
    yield Crash(at)
    call = log[at].call
    if call.name == "write":
        size = len(call.data)
        ends = call.data.find(b"\n") + 1, call.data.rfind(b"\n", 0, -1) + 1
        for written in sorted({1, size // 2, size - 1, *ends} - {0, size}):
            if 0 < written < size:
                yield Crash(at, cut=size - written)


def power_failures(nodes: Nodes, rng: random.Random, limit: int) -> Iterator[Losses]:
    """All that a power failure may leave if these are few, otherwise about `limit` of them."""
    found = chains(nodes)
    ways = math.prod(len(_positions(chain)) for chain in found)
    if ways <= limit:
        every = [dict(zip(found, kept, strict=True)) for kept in itertools.product(*map(_positions, found))]
        combined = []
        for names in every:
            files = _dirty(nodes, names)
            options = [_ways_to_tear(nodes, number, rng) for number in files]
            if math.prod(map(len, options)) * len(every) <= limit:
                combined += [names | dict(zip(files, torn, strict=True)) for torn in itertools.product(*options)]
            else:
                share = max(2, limit // len(every))
                combined += [
                    names | {number: rng.choice(ways) for number, ways in zip(files, options, strict=True)}
                    for _ in range(share)
                ]
        yield from combined
        return
    for turn in range(limit):
        names = _sample(found, rng, turn)
        torn = {number: rng.choice(_ways_to_tear(nodes, number, rng)) for number in _dirty(nodes, names)}
        yield names | torn


def harshest(nodes: Nodes) -> Losses:
    """Nothing is left but what was synced."""
    losses: dict[Chain | int, int | Torn] = dict.fromkeys(chains(nodes), 0)
    return losses | {number: Torn(0) for number in _dirty(nodes, losses)}


def chains(nodes: Nodes) -> list[Chain]:
    """All changes of names that are not durable, of folders that may be there after a power failure."""
    found = []
    for number, path in _folders(nodes):
        folder = nodes[number]
        assert isinstance(folder, Folder)
        if path.endswith(_RUBBISH) and folder.pending:
            found.append(Chain(number, f"{_below(path)}/*", folder.pending))  # which of them are left is all the same
            continue
        groups: list[tuple[set[str], list[Change]]] = []
        for change in folder.pending:
            names = {name for name, _ in change.names}
            tied = [group for group in groups if group[0] & names]
            merged = (names.union(*(group[0] for group in tied)), [])
            merged[1].extend(sorted((each for group in tied for each in group[1]), key=lambda each: each.call))
            merged[1].append(change)
            groups = [group for group in groups if group not in tied] + [merged]
        for _, changes in groups:
            name = changes[0].names[0][0]
            found.append(Chain(number, _below(f"{path}/{name}") if path else name, tuple(changes)))
    return found


def survivors(nodes: Nodes, losses: Losses) -> dict[str, bytes]:
    """The files, and as `PATH/` the empty folders, that a power failure has left below ROOT."""
    found = {_below(path): data for path, data in remains(nodes, losses).items() if path.startswith(f"{ROOT[1:]}/")}
    found.pop("", None)
    return found


def remains(nodes: Nodes, losses: Losses) -> dict[str, bytes]:
    """The same in all places: paths are those from the root of the file system."""
    lost = _lost(nodes, losses)
    found: dict[str, bytes] = {}

    def collect(number: int, path: str) -> None:
        node = nodes[number]
        if isinstance(node, File):
            torn = losses.get(number)
            found[path] = _tear(node, torn) if isinstance(torn, Torn) else node.data
            return
        entries = dict(node.durable)
        for change in node.pending:
            if (number, change) not in lost:
                apply(entries, change.names)
        for name, child in entries.items():
            collect(child, f"{path}/{name}" if path else name)
        if not entries and path:
            found[f"{path}/"] = b""

    collect(TOP, "")
    return found


def _lost(nodes: Nodes, losses: Losses) -> set[tuple[int, Change]]:
    """The changes that are lost, each with its folder."""
    lost = {
        (chain.folder, change)
        for chain, kept in losses.items()
        if isinstance(chain, Chain) and isinstance(kept, int)
        for change in chain.changes[kept:]
    }
    not_come = {change.call for _, change in lost if any(child is not None for _, child in change.names)}
    return lost | {
        (number, change)
        for number, node in nodes.items()
        if isinstance(node, Folder)
        for change in node.pending
        if change.call in not_come
    }


def _below(path: str) -> str:
    return path.removeprefix(f"{ROOT[1:]}/")


def _durable(tree: Mapping[str, bytes]) -> Nodes:
    folders = tuple(path[:-1] for path in tree if path.endswith("/"))
    return placed({path: data for path, data in tree.items() if not path.endswith("/")}, folders)


def _folders(nodes: Nodes) -> list[tuple[int, str]]:
    found: dict[int, str] = {TOP: ""}
    waiting = [TOP]
    while waiting:
        number = waiting.pop()
        folder = nodes[number]
        assert isinstance(folder, Folder)
        names = [*folder.durable.items(), *(pair for change in folder.pending for pair in change.names)]
        for name, child in names:
            if child is not None and child not in found and isinstance(nodes[child], Folder):
                found[child] = f"{found[number]}/{name}" if found[number] else name
                waiting.append(child)
    return list(found.items())


def _dirty(nodes: Nodes, names: Losses) -> list[int]:
    """The files that are there after losing `names`, and whose content is not durable."""
    lost = _lost(nodes, names)
    found: set[int] = set()

    def collect(number: int) -> None:
        node = nodes[number]
        if isinstance(node, File):
            if node.synced < len(node.data):
                found.add(number)
            return
        entries = dict(node.durable)
        for change in node.pending:
            if (number, change) not in lost:
                apply(entries, change.names)
        for child in entries.values():
            collect(child)

    collect(TOP)
    return sorted(found)


def _positions(chain: Chain) -> list[int]:
    whole = len(chain.changes)
    return [whole, 0] if f"{_RUBBISH}/" in chain.path else list(range(whole, -1, -1))


def _sample(found: list[Chain], rng: random.Random, turn: int) -> dict[Chain | int, int | Torn]:
    if turn == 0:
        return dict.fromkeys(found, 0)
    # One lost, one kept, or a mixture: the first two are what a wrong order of calls shows up in.
    keeps = rng.choice((0.0, 0.5, 0.8, 1.0))
    kept: dict[Chain | int, int | Torn] = {}
    for chain in found:
        if rng.random() >= keeps:
            kept[chain] = rng.choice((0, rng.randrange(len(chain.changes) + 1)))
    odd = rng.choice(found)
    kept[odd] = len(odd.changes) if keeps < 0.5 else rng.randrange(len(odd.changes))
    return kept


def _ways_to_tear(nodes: Nodes, number: int, rng: random.Random) -> list[Torn]:
    file = nodes[number]
    assert isinstance(file, File)
    start, end = file.synced, len(file.data)
    first_sector, first_page = (start // SECTOR + 1) * SECTOR, (start // PAGE + 1) * PAGE
    sizes = {
        end,
        start,
        (start + end) // 2,
        end - 1,
        *file.writes,
        first_sector,
        end // SECTOR * SECTOR,
        first_page,
        end // PAGE * PAGE,
        rng.randrange(start, end + 1),
    }
    ways = [Torn(size) for size in sorted(sizes, reverse=True) if start <= size <= end]
    pages = _pieces(start, end, PAGE)
    if len(pages) <= 3:
        subsets = [s for count in range(1, len(pages) + 1) for s in itertools.combinations(pages, count)]
    else:
        subsets = [tuple(pages), *((page,) for page in (pages[0], pages[-1], rng.choice(pages)))]
        subsets.append(tuple(page for page in pages if rng.random() < 0.5))
    ways += [Torn(end, subset) for subset in subsets if subset]
    sectors = _pieces(start, end, SECTOR)
    if len(sectors) > 1:
        split = rng.randrange(1, len(sectors))
        ways += [Torn(end, tuple(zeroed)) for zeroed in (sectors[:split], sectors[split:], [rng.choice(sectors)])]
    return ways


def _pieces(start: int, end: int, size: int) -> list[tuple[int, int]]:
    edges = [start, *range((start // size + 1) * size, end, size), end]
    return list(itertools.pairwise(edges))


def _tear(file: File, torn: Torn) -> bytes:
    left = bytearray(file.data[: max(torn.size, file.synced)])
    for start, end in torn.zeroed:
        start, end = max(start, file.synced), min(end, len(left))
        left[start:end] = bytes(max(0, end - start))
    return bytes(left)
