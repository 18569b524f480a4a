"""A small extractive summariser: it chooses a document's own sentences by term frequency. Not a language model.

The value of a sentence is the frequency of its words, without stop words, divided by its length. The best are returned
in the order of the document. The same text gives the same summary.
"""

from __future__ import annotations

import re
from collections import Counter

from prose import sentences

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_ADDRESS = re.compile(r"\b\w+://\S+")
_STOP_WORDS = frozenset(
    _WORD.findall("""
    a about above after again all also am an and any are aren't as at be because been before being below between both
    but by can can't could couldn't did didn't do does doesn't doing don't down during each either etc even ever every
    few for from further get got had has have haven't having he her here hers him his how however if in into is isn't
    it it's its itself just let's like made make many may me might more most much must my no nor not now of off often
    on once one only or other our out over own per rather same see she should since so some such than that the their
    them then there these they this those through thus to too under until up upon us use used uses using very via was
    we well were what when where whether which while who whom whose why will with within without won't would you
    you're your
    """)
)
_SHORTEST, _LONGEST = 5, 45
"""Words of a sentence for a summary. Shorter ones say little, longer ones are mostly lists."""


def summarise(text: str, count: int) -> str:
    """The `count` sentences of `text` with the highest value, in its order; never empty."""
    found = list(dict.fromkeys(sentences(text)))
    candidates = [sentence for sentence in found if _is_whole(sentence)]
    if len(candidates) < count:
        candidates = [sentence for sentence in found if _is_long_enough(sentence)]
    if not candidates:
        candidates = [sentence for sentence in found if _terms(sentence)]
    if not candidates:
        return _beginning(text)
    frequencies = Counter(term for sentence in found for term in _terms(sentence))
    best = sorted(range(len(candidates)), key=lambda at: (-_worth(candidates[at], frequencies), at))[:count]
    return " ".join(candidates[at] for at in sorted(best))


def _worth(sentence: str, frequencies: Counter[str]) -> float:
    terms = _terms(sentence)
    return sum(frequencies[term] for term in set(terms)) / len(terms) ** 0.5 if terms else 0.0


def _terms(sentence: str) -> list[str]:
    words = (word.casefold() for word in _WORD.findall(_ADDRESS.sub("", sentence)))
    return [word for word in words if len(word) > 1 and word not in _STOP_WORDS]


def _is_whole(sentence: str) -> bool:
    return _is_long_enough(sentence) and sentence.rstrip("\"'”’)]」』")[-1:] in ".!?…。！？"


def _is_long_enough(sentence: str) -> bool:
    words = [word for word in sentence.split() if "://" not in word]
    # A language without blanks has sentences of one word.
    return _SHORTEST <= len(words) <= _LONGEST or (not sentence.isascii() and len(sentence) >= 20)


def _beginning(text: str) -> str:
    words = text.split()
    return " ".join(words[:40]) + (" …" if len(words) > 40 else "")
