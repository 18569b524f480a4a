from __future__ import annotations

from places import on_disk

__all__ = ["on_disk"]
