"""deepagents: a file is written in each step, by its own backend for a folder and by that of Satchel's adapter."""

from __future__ import annotations

from pathlib import Path

from deepagents.backends import FilesystemBackend
from deepagents.backends.protocol import BackendProtocol

from .pairing import Pairing


def own(folder: Path, pairing: Pairing) -> None:
    (folder / "files").mkdir(exist_ok=True)
    _write(FilesystemBackend(root_dir=folder / "files", virtual_mode=True), pairing)


def satchel(folder: Path, pairing: Pairing) -> None:
    from satchel.adapters.deepagents import SatchelBackend

    backend = SatchelBackend(folder / "files")
    _write(backend, pairing)
    backend.close()


def _write(backend: BackendProtocol, pairing: Pairing) -> None:
    done = len(backend.glob("*.txt", "/").matches or ())
    for number in range(done, pairing.total):
        if error := backend.write(f"/{number}.txt", pairing.body()).error:
            raise RuntimeError(error)
