"""A mail server on loopback that speaks real SMTP, and the Maildir that it delivers to."""

from __future__ import annotations

import asyncio
import mailbox
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiosmtpd.handlers import Mailbox
from aiosmtpd.smtp import SMTP
from waits import PATIENCE


@dataclass
class PostOffice:
    """`stored` is called when a mail is in the box and the client has not heard of it yet. `refusals` are answers to
    the next mails in place of taking them."""

    box: Path
    port: int = 0
    stored: Callable[[], None] | None = None
    refusals: deque[str] = field(default_factory=deque)

    def mails(self, address: str = "") -> list[Any]:
        """What has come, to an address or to all."""
        found = list(mailbox.Maildir(self.box, create=False))
        return [mail for mail in found if address in ("", mail["To"])]


@contextmanager
def opened(box: Path) -> Iterator[PostOffice]:
    office = PostOffice(box)
    loop = asyncio.new_event_loop()
    handler = _Handler(office)
    server = loop.run_until_complete(
        loop.create_server(lambda: SMTP(handler, hostname="localhost", loop=loop), "127.0.0.1", 0)
    )
    office.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield office
    finally:
        server.close()
        asyncio.run_coroutine_threadsafe(_end(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


async def _end() -> None:
    """Of clients that were killed, and of those that are being said goodbye to."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Handler(Mailbox):
    def __init__(self, office: PostOffice):
        super().__init__(str(office.box))
        self.office = office

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.office.refusals:
            return self.office.refusals.popleft()
        said = await super().handle_DATA(server, session, envelope)
        if self.office.stored is not None:
            self.office.stored()
        return str(said)
