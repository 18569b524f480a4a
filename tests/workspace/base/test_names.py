"""Names of new files fit every disk and bucket, and so do those that Satchel makes of them."""

from __future__ import annotations

import pytest

from satchel.workspace.base import KEY_BYTES, NAME_BYTES, UsageError, check_new, fitting, is_name


@pytest.mark.parametrize("letter", ["a", "é", "日", "😀"])
def test_a_derived_name_is_longer_than_a_name_can_be(letter: str) -> None:
    size = len(letter.encode())
    for length in (1, 40, NAME_BYTES // size, NAME_BYTES):
        for endings in ([".rejected.md"], [".rejected-12.txt", ".rejected-12.reasons.txt"]):
            stem = fitting(letter * length, *endings)
            names = [stem + end for end in endings]
            assert all(is_name(name) and len(name.encode()) <= NAME_BYTES for name in names)
            fits = length * size + max(map(len, endings)) <= NAME_BYTES
            assert (stem == letter * length) is fits, "only what is too long is cut"


def test_two_long_names_that_begin_alike_become_one() -> None:
    first, second = (fitting("a" * 250 + end, ".rejected.md") for end in "bc")
    assert first != second and first[:200] == second[:200]


def test_a_name_that_no_disk_or_bucket_can_hold_is_taken() -> None:
    for path in ("outputs/a.md", f"outputs/{'a' * NAME_BYTES}", f"outputs/{'日' * 85}", "/".join(["a" * 99] * 8)):
        assert check_new(path) == path
    for path in (f"outputs/{'a' * 256}", f"outputs/{'日' * 86}", f"{'a' * 256}/a.md"):
        with pytest.raises(
            UsageError, match=r"a name is too long: it has \d+ bytes in UTF-8, and may have 255"
        ) as raised:
            check_new(path)
        assert raised.value.remedy and len(str(raised.value)) < 300
    with pytest.raises(UsageError, match="a path is too long"):
        check_new("/".join(["a" * 99] * 9))
    with pytest.raises(UsageError, match="not a path inside"):
        check_new("../a")
    assert len("/".join(["a" * 99] * 8)) < KEY_BYTES
