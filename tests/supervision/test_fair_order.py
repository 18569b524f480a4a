"""The order of starts, as a rule without files and clocks: groups are bounded, priorities count, and nobody starves."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from satchel import UsageError
from satchel.runtime.supervision.lookout import EACH, SHARE, FairOrder


class Waiting(NamedTuple):
    since: float
    folder: str
    group: str = ""
    priority: int = 0


GROUPS = ["", "a", "b", "c"]
LIMITS = st.fixed_dictionaries({}, optional={"a": st.integers(1, 3), "b": st.integers(1, 3), EACH: st.integers(1, 3)})
WAITING = st.lists(
    st.builds(
        Waiting, st.floats(0, 100), st.text("xyz", min_size=1, max_size=4), st.sampled_from(GROUPS), st.integers(-2, 2)
    ),
    max_size=30,
    unique_by=lambda each: each.folder,
)
RUNNING = st.lists(st.sampled_from(GROUPS), max_size=6)


def limit_of(group: str, limits: dict[str, int]) -> float:
    return limits.get(group, limits.get(EACH, float("inf"))) if group else float("inf")


@given(LIMITS, WAITING, RUNNING, st.integers(0, 10))
def test_more_of_a_group_run_than_may_or_a_place_stays_free(
    limits: dict[str, int], waiting: list[Waiting], running: list[str], places: int
) -> None:
    chosen = FairOrder(limits).choose(waiting, running, places)
    assert len(set(chosen)) == len(chosen) <= places
    at_work = Counter(running) + Counter(each.group for each in chosen)
    assert all(at_work[group] <= max(Counter(running)[group], limit_of(group, limits)) for group in GROUPS)
    left = [each for each in waiting if each not in chosen]
    assert len(chosen) == places or all(at_work[each.group] >= limit_of(each.group, limits) for each in left)


@given(WAITING)
def test_of_one_priority_a_later_one_comes_first(waiting: list[Waiting]) -> None:
    equal = [each._replace(priority=1, group="") for each in waiting]
    assert FairOrder().choose(equal, [], 100) == sorted(equal)


@given(WAITING)
def test_a_lower_priority_comes_first_or_more_often_than_its_share(waiting: list[Waiting]) -> None:
    """All at once, and one after the other, which is the same."""
    order, one_by_one = FairOrder(), FairOrder()
    waiting = [each._replace(group="") for each in waiting]
    left, passed = {*waiting}, 0
    for each in order.choose(waiting, [], 100):
        assert one_by_one.choose(left, [], 1) == [each]
        oldest = min(left)
        highest = min(left, key=lambda each: (-each.priority, each.since, each.folder))
        assert each == (oldest if passed == SHARE - 1 else highest)
        passed = 0 if each == oldest else passed + 1
        left.remove(each)
    assert not left


def starve(draw: random.Random, limits: dict[str, int], group: str) -> None:
    """A run of the lowest priority is due, and some are older. From then on more of any priority come than there are
    places. It starts after a number of starts that only those that are older count for: of starts while its group has
    a free place, and in a bounded group of its group's."""
    order, places, now = FairOrder(limits), draw.randint(1, 4), 0.0
    older = [
        Waiting(-float(n), f"older {n}", draw.choice(GROUPS), draw.randint(-1, 5)) for n in range(draw.randint(0, 6))
    ]
    waiting = {each.folder: each for each in (*older, Waiting(0.5, "last", group, -5))}
    running: dict[str, tuple[str, float]] = {}
    starts = starts_in_group = 0
    most_in_group = SHARE * (sum(each.group == group for each in older) + 1)
    most = SHARE * (len(older) + most_in_group + places)
    while "last" in waiting:
        now += 1.0
        for _ in range(draw.randint(0, 3)):
            new = Waiting(now, f"new {now} {draw.random()}", draw.choice(GROUPS), draw.randint(0, 9))
            waiting[new.folder] = new
        for name in [name for name, (_, until) in running.items() if until <= now]:
            del running[name]
        at_work = [each for each, _ in running.values()]
        is_open = at_work.count(group) < limit_of(group, limits)
        for each in order.choose(waiting.values(), at_work, places - len(running)):
            del waiting[each.folder]
            running[each.folder] = (each.group, now + draw.choice((1, 1, 2, 7)))
            starts += is_open
            starts_in_group += each.group == group
            if each.folder == "last":  # what starts after it, in the same choice, does not count
                break
        assert starts <= most
        assert starts_in_group <= most_in_group or limit_of(group, limits) == float("inf")


@pytest.mark.parametrize("group", GROUPS)
@examples(80)
@given(LIMITS, st.randoms(use_true_random=False))
def test_a_run_of_low_priority_starves(group: str, limits: dict[str, int], draw: random.Random) -> None:
    starve(draw, limits, group)


def test_a_run_starves_since_its_group_is_full_whenever_the_share_comes_to_it() -> None:
    """A group of one place: whenever that is free, a run of a higher priority is there."""
    order, started = FairOrder({"a": 1}), list[Any]()
    for number in range(2 * SHARE):
        waiting = [Waiting(0.0, "low", "a", 0), Waiting(number + 1.0, f"high {number}", "a", 9)]
        started += order.choose(waiting, [], 1)
        for _ in range(SHARE - 1):  # the place of the group is taken at the share of all
            other = Waiting(number + 1.5, f"other {number}", "", 5)
            assert order.choose([*waiting, other], ["a"], 1) == [other]
        if "low" in [each.folder for each in started]:
            return
    raise AssertionError(started)


@pytest.mark.parametrize("word", ["customer-a", "customer-a=0", "=3", "a=b", "0", "-1", "", "a=1.5"])
def test_a_wrong_limit_is_taken(word: str) -> None:
    assert FairOrder.limits_of(["a=1", "3", "a=b=2", "a=4"]) == {"a": 4, EACH: 3, "a=b": 2}
    with pytest.raises(UsageError, match=re.escape(f"a group limit can't be {word!r}")):
        FairOrder.limits_of(["a=1", word])


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, "2"])
def test_a_limit_that_is_no_number_is_taken(limit: Any) -> None:
    with pytest.raises(UsageError, match="the group 'a'"):
        FairOrder({"a": limit})


def test_groups_without_a_limit_or_runs_without_a_group_are_bounded() -> None:
    waiting = [Waiting(float(n), f"{group}{n}", group) for n in range(3) for group in ("", "a", "b")]

    def chosen(limits: dict[str, int], running: list[str]) -> list[str]:
        return sorted(each.folder for each in FairOrder(limits).choose(waiting, running, 100))

    assert chosen({"a": 2}, ["a"]) == ["0", "1", "2", "a0", "b0", "b1", "b2"]
    assert chosen({"a": 2, EACH: 1}, []) == ["0", "1", "2", "a0", "a1", "b0"]
