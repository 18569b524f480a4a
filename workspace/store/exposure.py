"""Who can read what is stored, and whether it stays there. Only for people: no decision depends on it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
_EVERYBODY = ("AllUsers", "AuthenticatedUsers")


class Exposure(NamedTuple):
    """None: the storage does not tell, or does not have it."""

    encrypted: str | None = None  # at rest: the algorithm; empty if it is not
    public: bool | None = None  # strangers can read it; on a disk, other users of the machine can look into the folder
    group: bool | None = None  # on a disk: so can the group of the folder
    versioned: bool | None = None
    removing: list[str] | None = None  # the rules of a lifecycle that remove or archive objects of this place


def of_folder(folder: str) -> Exposure:
    """By the mode bits of the folder and of the folders above it."""
    mode = os.stat(folder).st_mode
    above, entered = os.path.realpath(folder), True
    while (parent := os.path.dirname(above)) != above:
        above = parent
        entered &= bool(os.stat(above).st_mode & stat.S_IXOTH)
    return Exposure(public=entered and bool(mode & stat.S_IRWXO), group=bool(mode & stat.S_IRWXG))


def public(
    block: Mapping[str, Any] | None, policy: Mapping[str, Any] | None, acl: Mapping[str, Any] | None
) -> bool | None:
    """By the answers of S3 to GetPublicAccessBlock, GetBucketPolicyStatus and GetBucketAcl. Empty: there is none."""
    blocked = (block or {}).get("PublicAccessBlockConfiguration", {})
    grants = [each.get("Grantee", {}).get("URI", "") for each in (acl or {}).get("Grants", ())]
    by_policy = None if policy is None else bool(policy.get("PolicyStatus", {}).get("IsPublic"))
    by_acl = None if acl is None else any(grant.endswith(_EVERYBODY) for grant in grants)
    if blocked.get("RestrictPublicBuckets"):
        by_policy = False
    if blocked.get("IgnorePublicAcls"):
        by_acl = False
    if by_policy or by_acl:
        return True
    return None if None in (by_policy, by_acl) else False


def removing(lifecycle: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The rules of a lifecycle that remove or archive current objects below `prefix`, in words."""
    for number, rule in enumerate(lifecycle.get("Rules", ()), 1):
        scope = rule.get("Filter") or {}
        scope = scope.get("And") or scope
        start = scope.get("Prefix") or rule.get("Prefix") or ""
        is_ours = start.startswith(prefix) or prefix.startswith(start)
        if rule.get("Status") != "Enabled" or not is_ours or scope.get("Tag") or scope.get("Tags"):
            continue
        name = rule.get("ID") or f"number {number}"
        expiration = rule.get("Expiration") or {}
        if expiration.get("Days") or expiration.get("Date"):
            yield f"{name} removes objects"
        elif any(each.get("StorageClass") in _ARCHIVES for each in rule.get("Transitions") or ()):
            yield f"{name} archives objects"
