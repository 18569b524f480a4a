"""Changes to the files of a workspace, drawn from a seed: of bytes, of values, of whole files; sealed again or not."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import yaml

from satchel.workspace.base import stamp

from . import values
from .bases import RUN, Files
from .values import dumped, scalar

_CRC = re.compile(rb',"crc":"[0-9a-f]{8}"\}\Z')
_HEX = re.compile(rb"[0-9a-f]{8}")
_PREV = re.compile(rb'(\{"seq":\d+,"prev":")[0-9a-f]{8}"')
_POSITION = re.compile(rb'"seq":(\d+),"epoch":\d+,"crc":"[0-9a-f]{8}"')
_SHA = re.compile(rb',"sha256":"[0-9a-f]{64}"\}\n?\Z')
_CHECKPOINT = re.compile(r"checkpoints/[^/]*\.json")
_UNREADABLE = (ValueError, OverflowError, RecursionError, yaml.YAMLError)
_STAMP = re.compile(rb'"sha": ?"[0-9a-f]{8}"')


def mutate(files: Files, random: Random) -> list[str]:
    """Change `files` in one to three places. Returns what was done, in words."""
    return [_mutate_one(files, random) for _ in range(random.choice((1, 1, 1, 2, 3)))]


def _mutate_one(files: Files, random: Random) -> str:
    if random.random() < 0.1:
        return _bring(files, random)
    path = random.choice([*files])
    if path.startswith("journal/") or random.random() < 0.25:  # they come in few files, and decide the most
        path = random.choice([each for each in files if each.startswith(("journal/", "checkpoints/"))] or [*files])
    how = _change_bytes if random.random() < 0.2 else _way_for(path)
    before = files[path]
    try:
        files[path] = how(before, random)
    except (*_UNREADABLE, TypeError, LookupError):  # an earlier change has left too little
        files[path] = _change_bytes(before, random)
    if random.random() < 0.6:
        files[path] = _seal(path, files[path])
        if path.startswith("journal/"):
            _link(files)
    return f"{how.__name__.lstrip('_')} {path}"


def _way_for(path: str) -> Callable[[bytes, Random], bytes]:
    if path.endswith(".jsonl"):
        return _change_line
    if path.startswith(".satchel/schemas/"):
        return _change_schema
    if path.endswith(".json"):
        return _change_json
    if path.endswith(".yaml"):
        return _change_yaml
    if path.startswith(("partials/", "recovered/")):
        return _change_front
    return _change_text


# Values


def _change_tree(tree: Any, random: Random) -> Any:
    """One value somewhere in it is another one, is gone, or is new."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, each in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            places.append((node, key))
            walk(each)

    walk(tree)
    if not places or random.random() < 0.02:
        return scalar(random)
    node, key = random.choice(places)
    match random.randrange(10):
        case 0:
            del node[key]
        case 1 if isinstance(node, dict):
            node[random.choice([*values.TEXTS, key])] = scalar(random)
        case 1:
            node.insert(key, scalar(random))
        case 2:
            other, where = random.choice(places)
            node[key] = other[where] if other is not node else scalar(random)  # a value of another kind
        case 3 if isinstance(node, dict):
            node[random.choice(values.TEXTS)] = node.pop(key)
        case 4:
            node[key] = [node[key]] * random.choice((0, 1, 2, 300))
        case 5 if isinstance(node[key], str):
            node[key] += random.choice(values.TEXTS)
        case _:
            node[key] = scalar(random)
    return tree


def _change_line(data: bytes, random: Random) -> bytes:
    """One record of a journal, or one message."""
    rows = data.splitlines(keepends=True)
    at = random.randrange(len(rows))
    match random.randrange(8):
        case 0:
            del rows[at]
        case 1:
            rows.insert(at, random.choice(rows))
        case 2:
            other = random.randrange(len(rows))
            rows[at], rows[other] = rows[other], rows[at]
        case _:
            rows[at] = dumped(_change_tree(json.loads(rows[at]), random)).encode(errors="surrogatepass") + b"\n"
    return b"".join(rows)


def _change_json(data: bytes, random: Random) -> bytes:
    tree = json.loads(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        tree = _change_tree(tree, random)
    text = dumped(tree)
    return re.sub(r'("at":)', r"\1 ", text).encode(errors="surrogatepass") if b'"at": {' in data else text.encode()


def _change_schema(data: bytes, random: Random) -> bytes:
    return json.dumps(random.choice(values.SCHEMAS)).encode() if random.random() < 0.9 else _change_json(data, random)


def _change_yaml(data: bytes, random: Random) -> bytes:
    if random.random() < 0.5:
        return dumped(_change_tree(yaml.safe_load(data), random)).encode(errors="surrogatepass")
    rows = data.decode().splitlines(keepends=True)
    at = random.randrange(len(rows))
    key, colon, _ = rows[at].partition(": ")
    new = random.choice([*values.YAML, *values.TEXTS, *values.TIMES, *values.NUMBERS])
    rows[at] = f"{key}{colon}{new}\n" if colon and random.random() < 0.8 else f"{new}\n"
    return "".join(rows).encode(errors="surrogatepass")


def _change_front(data: bytes, random: Random) -> bytes:
    """A line of the front matter of a partial, or its text."""
    rows = data.split(b"\n")
    at = random.randrange(len(rows))
    key, colon, _ = rows[at].partition(b": ")
    value = dumped(scalar(random)).encode(errors="surrogatepass")
    rows[at] = key + colon + value if colon else value
    return b"\n".join(rows)


def _change_text(data: bytes, random: Random) -> bytes:
    """Markdown, or whatever else has lines."""
    rows = data.split(b"\n")
    at = random.randrange(len(rows))
    new = random.choice([*values.MARKDOWN, *values.TEXTS]).encode(errors="surrogatepass")
    match random.randrange(5):
        case 0:
            rows[at] += new
        case 1:
            rows[at] = rows[at].replace(b"[ ]", random.choice((b"[x]", b"[-]", b"[/]", b"[]", b"[ x]", b"[X]")))
        case 2:
            del rows[at]
        case 3:
            rows[at : at + 1] = [rows[at]] * random.choice((2, 3, 500))
        case _:
            rows.insert(at, new)
    return b"\n".join(rows)


# Bytes


def _change_bytes(data: bytes, random: Random) -> bytes:
    at, size = random.randrange(len(data) + 1), random.choice((1, 1, 4, 100, 5000))
    match random.randrange(7):
        case 0:
            return random.choice(values.JUNK)
        case 1:
            return data[:at]
        case 2:
            return data[:at] + data[at + size :]
        case 3:
            return data[:at] + random.randbytes(min(size, 100)) + data[at:]
        case 4:
            return data[:at] + random.choice(values.JUNK) + data[at + size :]
        case 5:
            return data[:at] + data[at : at + size] * random.choice((2, 3, 200)) + data[at + size :]
        case _:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


# Whole files


def _bring(files: Files, random: Random) -> str:
    """A file that was not there, one that is not there any more, or one in another's place."""
    path = random.choice([*files])
    match random.randrange(6):
        case 0:
            del files[path]
            return f"remove {path}"
        case 1:
            other = random.choice([*files])
            files[other] = files[path]
            return f"copy {path} over {other}"
        case 2:
            new = random.choice([*values.STRANGE])
            files[new] = random.choice([*values.JUNK, files[path]])
            return f"bring {new}"
        case 3:
            gone = [each for each in files if each.startswith(random.choice(("journal/", "checkpoints/", ".satchel/")))]
            for each in gone:
                del files[each]
            return f"remove {len(gone)} files"
        case _:
            folder, name = random.choice(values.FOLDERS), os.fsdecode(random.choice(values.NAMES))
            files[f"{folder}/{name}".lstrip("/").replace("../", "")] = files[path]
            return f"copy {path} to {folder}/{name!r}"


def spoil(folder: Path, random: Random) -> str:
    """Put something that is no file where one was, or may be: a link, a folder, a FIFO, a huge file."""
    paths = [path for path in sorted(folder.rglob("*")) if not path.is_symlink()]
    path = random.choice([*paths, *(folder / each for each in values.STRANGE)])
    aside = folder.parent / "aside"
    if path.exists():
        path.rename(aside)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = random.choice(("out", "secret", "folder", "fifo", "endless", "huge", "self", "nowhere", "date"))
    outside = folder.parent / "outside"
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "huge":
            path.touch()
            os.truncate(path, 1 << 40)
        case "date":
            if aside.exists():
                aside.rename(path)
            else:
                path.touch()
            seconds = random.choice((-(10**12), -1, 0, 10**11, 10**12, 2**62))
            with suppress(OverflowError, OSError):  # this file system can't have it either
                os.utime(path, (seconds, seconds))
        case _:
            to: dict[str, str | Path] = {
                "out": outside,
                "secret": outside / "secret.txt",
                "endless": "/dev/zero",
                "self": path.name,
            }
            path.symlink_to(to.get(kind, "/nowhere/at/all"))
    return f"{kind} at {path.relative_to(folder)}"


# Seals, so that what is behind them is reached


def _seal(path: str, data: bytes) -> bytes:
    if path.startswith("journal/"):
        rows = [b"00000000xx\n"]
        for row in data.splitlines(keepends=True):
            rows.append(_seal_line(row, rows[-1][-11:-3]))
        return b"".join(rows[1:])
    if _CHECKPOINT.fullmatch(path):
        body = re.sub(rb'(,"sha256":"[^"]*")?\}\n?\Z', b"", data)
        return b'%s,"sha256":"%s"}\n' % (body, hashlib.sha256(body).hexdigest().encode())
    if path.endswith("state.json") and (found := _STAMP.search(data)):
        blank = data[: found.start()] + b'"sha": "00000000"' + data[found.end() :]
        try:
            return stamp.sign_json(blank)
        except AssertionError:
            return data
    if path.endswith("todo.md"):
        found_stamp, body, _ = stamp.read_markdown(data)
        if found_stamp is not None:
            of = f"{RUN}/{'helper' if path.startswith('agents/') else ''}"
            return stamp.sign_markdown(body, found_stamp.seq, found_stamp.epoch, of)
    return data


def _seal_line(row: bytes, before: bytes) -> bytes:
    row = row.removesuffix(b"\n")
    if not row.endswith(b"}"):
        return row + b"\n"
    body = re.sub(rb',"crc":"[^"]*"\}\Z', b"}", row)
    start = 0 if _PREV.match(row) or not _HEX.fullmatch(before) else int(before, 16)
    return b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body, start))


def _link(files: Files) -> None:
    """Let every record follow from the one before it, and every checkpoint name the checksum of its own."""
    crcs: dict[int, bytes] = {}
    crc = b"00000000"
    for path in sorted(path for path in files if path.startswith("journal/")):
        rows = files[path].splitlines(keepends=True)
        for at, row in enumerate(rows):
            if _CRC.search(row.removesuffix(b"\n")):
                rows[at] = _seal_line(_PREV.sub(rb'\g<1>%s"' % crc, row, count=1), crc)
                crc = rows[at][-11:-3]
                if seq := re.match(rb'\{"seq":(\d{1,12}),', rows[at]):
                    crcs[int(seq[1])] = crc
        files[path] = b"".join(rows)
    for path in files:
        found = _POSITION.search(files[path]) if _CHECKPOINT.fullmatch(path) else None
        if found and int(found[1]) in crcs:
            linked = files[path][: found.end() - 9] + crcs[int(found[1])] + files[path][found.end() - 1 :]
            files[path] = _seal(path, linked)
