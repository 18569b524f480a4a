"""The unit and the manifest of docs/operating.md: what they say fits how a stop goes, and the system understands it."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from satchel.runtime.agent.resource import Resource
from satchel.runtime.cli.group import COMMANDS
from satchel.runtime.supervision.child.child import FORCE_AFTER
from satchel.workspace.formats import yamltext
from satchel.workspace.formats.definition import Definition
from satchel.workspace.state import EXIT_CODES

PAGE = (Path(__file__).parent.parent / "docs/operating.md").read_text()
UNITS = ("satchel-serve.service", "satchel-run.service")
LONGEST_STOP = Definition("", "").drain_timeout + FORCE_AFTER
"""Seconds until a process that does not stop is killed, if workspace.yaml says nothing."""


def block(name: str) -> str:
    found = re.search(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


def service(name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block(name))
    return dict(parser["Service"])


def deployment() -> dict[str, Any]:
    claim, deployment = (yamltext.load(text, "satchel.yaml").value for text in block("satchel.yaml").split("---\n"))
    assert claim["kind"] == "PersistentVolumeClaim" and deployment["kind"] == "Deployment"
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    return dict(deployment)


def check_grace(seconds: str | int) -> None:
    to_release = Resource("any", object).timeout
    assert float(seconds) >= LONGEST_STOP + 2 * to_release, "it is killed in the middle of a stop"


@pytest.mark.parametrize("name", UNITS)
def test_systemd_kills_what_a_drain_still_waits_for(name: str) -> None:
    said = service(name)
    check_grace(said["TimeoutStopSec"])
    assert said["KillMode"] == "mixed", "SIGTERM would reach what the agent has started"
    program, command, *_ = said["ExecStart"].split()
    assert program.endswith("/satchel") and command in COMMANDS, "a shell in front would keep the signal"


def test_systemd_starts_again_what_has_come_to_an_end() -> None:
    said = service("satchel-run.service")
    ends = {int(code) for key in ("SuccessExitStatus", "RestartPreventExitStatus") for code in said[key].split()}
    assert said["Restart"] == "on-failure" and ends | {0} == {*EXIT_CODES.values(), 2}
    assert 6 not in ends, "the other process may be gone when it is tried again"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_does_not_understand_the_unit(name: str, tmp_path: Path) -> None:
    text = block(name).replace("/opt/satchel/bin/satchel", f"{Path(sys.executable).parent}/satchel")
    (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)], capture_output=True, text=True, timeout=60
    )
    assert name not in done.stderr and done.returncode == 0, done.stderr


def test_kubernetes_runs_two_at_once_or_kills_one_too_early() -> None:
    spec = deployment()["spec"]
    assert spec["replicas"] == 1 and spec["strategy"] == {"type": "Recreate"}
    pod = spec["template"]["spec"]
    check_grace(pod["terminationGracePeriodSeconds"])
    assert pod["restartPolicy"] == "Always"
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (container,) = pod["containers"]
    program, command, folder = container["command"]
    assert program == "satchel" and command in COMMANDS, "a shell in front would keep the signal"
    assert container["volumeMounts"][0] == {"name": pod["volumes"][0]["name"], "mountPath": folder}
