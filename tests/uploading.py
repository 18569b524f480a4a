"""`aws s3 cp SRC DST` as the pages use it: one file, down or up, by boto3. `-` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config


def main(words: list[str]) -> None:
    service, verb, source, target = words
    if (service, verb) != ("s3", "cp"):
        raise SystemExit(f"not taught to do this: {words}")
    client = boto3.session.Session().client("s3", config=Config(s3={"addressing_style": "path"}))
    if source.startswith("s3://"):
        bucket, key = _split(source)
        path = Path(target, key.rpartition("/")[2]) if Path(target).is_dir() else Path(target)
        path.write_bytes(client.get_object(Bucket=bucket, Key=key)["Body"].read())
    else:
        bucket, key = _split(target)
        body: Any = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        client.put_object(Bucket=bucket, Key=key, Body=body)


def _split(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key


if __name__ == "__main__":
    main(sys.argv[1:])
