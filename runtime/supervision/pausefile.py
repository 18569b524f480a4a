"""Whether pause.yaml forbids a start: read with leniency towards its form and none towards what it may mean."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...workspace.errors import SatchelError
from ...workspace.pausefile import PATH
from ...workspace.store import Store

_KEY = re.compile(r"""(?m)^(status|mode):[ \t]*(["']?)([^#"'\r\n]*?)\2[ \t]*(?:#.*)?\r?$""")


@dataclass(frozen=True, slots=True)
class Pause:
    """What a pause.yaml says, as far as it can be understood; empty where it doesn't say."""

    status: str = ""
    mode: str = ""

    @property
    def lets_go_on(self) -> bool:
        return self.status == "resume"

    @property
    def asks_for_emergency(self) -> bool:
        """And nobody has said yet that it was obeyed."""
        return self.mode == "emergency" and self.status in ("", "requested")


def read_pause(store: Store) -> Pause | None:
    """None if there is none. One that can't be read at all is a pause that says nothing: the run stays stopped."""
    try:
        text = store.read(PATH).data.decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except SatchelError:
        return Pause()
    return Pause(**{key: value.strip() for key, _, value in reversed(_KEY.findall(text))})


def is_stopped(store: Store) -> bool:
    """Any pause.yaml forbids a start, whatever state it is in, unless it says `status: resume`."""
    pause = read_pause(store)
    return pause is not None and not pause.lets_go_on
