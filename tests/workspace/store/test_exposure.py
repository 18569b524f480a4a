"""Who can read a bucket or a folder, and whether objects stay, is told as the server has it, or as not told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from between import Answer, Request, between
from places import on_disk
from servers import BUCKET, Server

from satchel.workspace.store import DiskStore, Exposure, open_store
from satchel.workspace.store.bucket import is_public, removing_rules
from satchel.workspace.store.disk_store import of_folder

__all__ = ["on_disk"]

PUBLIC_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::open-to-all/*"}
    ],
}


def bucket(moto: Server, name: str) -> Any:
    moto.client.create_bucket(Bucket=name)
    return open_store(f"s3://{name}/runs/trip", moto.storage_options())


def test_a_bucket_is_not_told_as_it_is(moto: Server) -> None:
    store = bucket(moto, "plain-bucket")
    assert store.exposure()._replace(public=None) == Exposure(
        encrypted=store.exposure().encrypted, versioned=False, removing=[]
    )
    client = moto.client
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "alias/runs"}}
    client.put_bucket_encryption(Bucket="plain-bucket", ServerSideEncryptionConfiguration={"Rules": [rule]})
    client.put_bucket_versioning(Bucket="plain-bucket", VersioningConfiguration={"Status": "Enabled"})
    everything = {"BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"}
    client.put_public_access_block(
        Bucket="plain-bucket", PublicAccessBlockConfiguration=dict.fromkeys(everything, True)
    )
    rules = [
        {"ID": "old runs", "Status": "Enabled", "Filter": {"Prefix": "runs/"}, "Expiration": {"Days": 30}},
        {"ID": "others", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 1}},
    ]
    client.put_bucket_lifecycle_configuration(Bucket="plain-bucket", LifecycleConfiguration={"Rules": rules})
    assert store.exposure() == Exposure("aws:kms", False, None, True, ["old runs removes objects"])


def test_a_bucket_that_is_open_to_all_is_not_called_public(moto: Server) -> None:
    store = bucket(moto, "open-to-all")
    moto.client.put_bucket_acl(Bucket="open-to-all", ACL="public-read")
    assert store.exposure().public is True


def test_what_a_server_refuses_or_does_not_know_is_guessed(seaweedfs: Server) -> None:
    def refuse(request: Request) -> Answer | None:
        return None if "list-type" in request.path else Answer(403, body="<Error><Code>AccessDenied</Code></Error>")

    with between(seaweedfs.endpoint, refuse) as way:
        store = open_store(seaweedfs.place(), seaweedfs.storage_options(way.endpoint))
        assert store.exposure() == Exposure()
    assert open_store("memory://exposure").exposure() == Exposure()


def test_the_encryption_that_the_options_ask_for_is_not_counted(seaweedfs: Server) -> None:
    options = seaweedfs.storage_options() | {"s3_additional_kwargs": {"ServerSideEncryption": "aws:kms"}}
    assert open_store(f"s3://{BUCKET}/x", options).exposure().encrypted == "aws:kms"


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"Prefix": "runs/trip/journal", "Expiration": {"Date": "2027-01-01"}}, ["number 1 removes objects"]),
        ({"Prefix": "", "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}, ["number 1 archives objects"]),
        ({"Filter": {"And": {"Prefix": "runs/", "Tags": []}}, "Expiration": {"Days": 1}}, ["number 1 removes objects"]),
        ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}, "Expiration": {"Days": 1}}, []),
        ({"Prefix": "runs/", "Transitions": [{"Days": 1, "StorageClass": "STANDARD_IA"}]}, []),
        ({"Prefix": "runs/", "Expiration": {"ExpiredObjectDeleteMarker": True}}, []),
        ({"Prefix": "runs/", "NoncurrentVersionExpiration": {"NoncurrentDays": 3}}, []),
        ({"Status": "Disabled", "Prefix": "", "Expiration": {"Days": 1}}, []),
    ],
)
def test_a_rule_that_harms_a_run_is_confused_with_one_that_does_not(rule: dict[str, Any], says: list[str]) -> None:
    assert [*removing_rules({"Rules": [{"Status": "Enabled"} | rule]}, "runs/trip/")] == says


def test_a_block_of_public_access_does_not_outweigh_a_policy() -> None:
    strangers = {"Grants": [{"Grantee": {"URI": "http://acs.amazonaws.com/groups/global/AllUsers"}}]}
    block = {"PublicAccessBlockConfiguration": {"RestrictPublicBuckets": True, "IgnorePublicAcls": True}}
    policy = {"PolicyStatus": {"IsPublic": True}}
    assert is_public(block, policy, strangers) is False
    assert is_public({}, policy, {}) is True and is_public({}, {}, strangers) is True
    assert is_public({}, {}, {}) is False and is_public(None, None, {}) is None


def test_a_folder_that_others_can_enter_passes_for_a_closed_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for mode, others, group in ((0o700, False, False), (0o750, False, True), (0o755, True, True)):
        (folder := tmp_path / f"{mode:o}").mkdir()
        folder.chmod(mode)
        found = DiskStore(folder).exposure()
        assert (found.public, found.group) == (others, group)
    tmp_path.chmod(0o700)
    assert of_folder(os.fspath(tmp_path / "755")).public is False
