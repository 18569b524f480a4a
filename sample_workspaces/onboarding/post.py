"""Mail: sends by SMTP, and looks into the mailbox to see whether a mail has arrived."""

from __future__ import annotations

import mailbox
import os
import smtplib
import socket
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

from settings import Mail, read_settings

from satchel import Key, NotDone, Run, effect

_PATIENCE = 10.0  # seconds for each word of the server


@dataclass(frozen=True)
class Post:
    """The resource `mail`. It connects when it sends, because a server does not keep a connection for days."""

    settings: Mail
    folder: str

    def connect(self) -> smtplib.SMTP:
        """ConnectionError if no mail server answers."""
        host, port = self.settings.host, self.settings.port
        try:
            return smtplib.SMTP(host, port, local_hostname=socket.gethostname(), timeout=_PATIENCE)
        except OSError as error:
            raise ConnectionError(
                f"no mail server answers at {host}:{port} ({error}). Start one (README.md says how), "
                "or name yours under `mail` in workspace.yaml"
            ) from None

    def find(self, message_id: str) -> bool:
        """Whether the mailbox has it. LookupError if there is no mailbox to look into."""
        if not self.settings.mailbox:
            raise LookupError("`mail: mailbox` in workspace.yaml is empty: who reads that mail has to say if it came")
        path = os.path.join(self.folder, os.path.expanduser(self.settings.mailbox))
        if not os.path.isdir(path):
            raise LookupError(f"there is no mailbox at {path}, and who reads that mail has to say if it came")
        return any(message["Message-ID"] == message_id for message in mailbox.Maildir(path, create=False))


def open_post(run: Run[Any]) -> Post:
    return Post(read_settings(run.settings).mail, run.folder)


def is_reachable(post: Post) -> bool:
    with post.connect() as server:
        return server.noop()[0] == 250


def message_id(key: str) -> str:
    """Made from the idempotency key, so it is the same at every attempt, and a mail server may drop a second one."""
    return f"<{key}@onboarding.satchel>"


def was_sent(address: str, subject: str, text: str, key: str, run: Run[Any]) -> None:
    """After a crash: ask the mailbox."""
    if not run.resources["mail"].find(message_id(key)):
        raise NotDone("the mailbox does not have it")


@effect(
    verify=was_sent,
    # What a server refuses, it has not delivered. All else, a line that breaks for example, is a doubt.
    not_done=(smtplib.SMTPSenderRefused, smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError),
)
def send(key: Key, run: Run[Any], address: str, subject: str, text: str) -> None:
    post: Post = run.resources["mail"]
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = post.settings.sender, address, subject
    message["Date"], message["Message-ID"] = formatdate(), message_id(key)
    message.set_content(text)
    try:
        server = post.connect()
    except ConnectionError as error:
        raise NotDone(str(error)) from None
    with server:
        server.send_message(message)
