"""Read an offer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from satchel import step

_OFFER = re.compile(r"(\d+) chairs at ([\d.]+), .* (\w+) years of guarantee")
_NUMBERS = {"two": 2, "five": 5}


@dataclass
class Offer:
    pieces: int
    price: float
    guarantee: int

    @property
    def total(self) -> float:
        return self.pieces * self.price


@step
async def read(supplier: str, text: str) -> Offer:
    match = _OFFER.search(text)
    if match is None:
        raise ValueError(f"the offer of {supplier} is not one that this sample understands")
    return Offer(int(match[1]), float(match[2]), _NUMBERS[match[3]])


@step
async def add_up(offers: dict[str, Offer]) -> dict[str, float]:
    return {supplier: offer.total for supplier, offer in offers.items()}
