"""Programs for a shell to find, `satchel` and others, that run in warm processes: a page types them by the dozen."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import warm

_CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    data = json.dumps([{words!r} + sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(connection, [len(data).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(data)
    sys.exit(int(connection.recv(8)))
"""


@contextmanager
def found_in(folder: Path, programs: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Puts them into `folder`: their names, and what Python is to run for each."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        for name, words in programs.items():
            text = _CLIENT.format(python=sys.executable, address=listener.getsockname(), words=[*words])
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        thread = threading.Thread(target=_accept, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # it is shut down
            return
        threading.Thread(target=_run, args=(connection,), daemon=True).start()


def _run(connection: socket.socket) -> None:
    with connection:
        (words, folder, environment), descriptors = warm.receive(connection)
        stdin, stdout, stderr = descriptors
        try:
            process = warm.Popen(
                [sys.executable, *words], cwd=folder, env=environment, stdin=stdin, stdout=stdout, stderr=stderr
            )
        finally:
            for fd in descriptors:
                os.close(fd)
        connection.sendall(str(process.wait()).encode())
