"""The units, images and manifests of docs/deploying.md and docs/scaling.md: what they say fits how a stop goes and what
an exit code means, and the system understands them."""

from __future__ import annotations

import configparser
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm
from supervision.supervised import wait_until
from waits import PATIENCE

from satchel.results import Census
from satchel.runtime.agent.resource import Resource
from satchel.runtime.cli.group import COMMANDS
from satchel.runtime.faces.http import HEALTHY, READY
from satchel.runtime.faces.http.metrics import families
from satchel.runtime.supervision import FORCE_AFTER, roots
from satchel.workspace.formats import yamltext
from satchel.workspace.formats.definition import Definition
from satchel.workspace.inspect import lease
from satchel.workspace.state import EXIT_CODES
from satchel.workspace.store import DiskStore

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "deploying.md").read_text()
NAPPING = """
import asyncio
from pathlib import Path
from satchel import agent, step

@step
async def nap(i: int) -> int:
    with Path(__file__).with_name("naps").open("a") as file:
        file.write(f"{i}\\n")
    await asyncio.sleep(0.3)
    return i

@agent
async def main(run):
    return [await nap(i) for i in range(5)]
"""
UNITS = ("satchel-serve.service", "satchel-run.service")
LONGEST_STOP = Definition("", "").drain_timeout + FORCE_AFTER
"""Seconds until a process that does not stop is killed, if workspace.yaml says nothing."""


def block(name: str, page: str = PAGE) -> str:
    found = re.search(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


def naps(folder: Path) -> list[str]:
    path = folder / "naps"
    return path.read_text().split() if path.exists() else []


def service(name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block(name))
    return dict(parser["Service"])


def documents(name: str) -> list[dict[str, Any]]:
    return [dict(yamltext.load(text, name).value) for text in block(name).split("---\n")]


def deployment() -> dict[str, Any]:
    claim, deployment = documents("satchel.yaml")
    assert claim["kind"] == "PersistentVolumeClaim" and deployment["kind"] == "Deployment"
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    return deployment


def check_probes(container: dict[str, Any]) -> None:
    """They ask for what the command serves, where it serves it."""
    (port,) = container["ports"]
    assert container["command"][-2:] == ["--metrics", f"0.0.0.0:{port['containerPort']}"]
    for name, path in {"livenessProbe": HEALTHY, "readinessProbe": READY}.items():
        assert container[name]["httpGet"] == {"path": path, "port": port["name"]}
    assert container["env"][0]["name"] == "SATCHEL_METRICS_TOKEN", "it would refuse to serve other machines"


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
    serves = service("satchel-serve.service")
    assert serves["Restart"] == "on-failure" and "SuccessExitStatus" not in serves
    assert serves["RestartPreventExitStatus"].split() == ["2"], "an upgrade would end it"
    assert serves["ReadWritePaths"] in serves["ExecStart"], "it could not write its runs"


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
    program, command, folder, *_ = container["command"]
    check_probes(container)
    assert program == "satchel" and command in COMMANDS, "a shell in front would keep the signal"
    assert container["volumeMounts"][0] == {"name": pod["volumes"][0]["name"], "mountPath": folder}


def test_a_fleet_of_kubernetes_has_no_second_dispatcher_or_scales_something_else() -> None:
    service, *deployments = documents("fleet.yaml")
    specs = {each["metadata"]["name"]: each["spec"] for each in deployments}
    containers: dict[str, dict[str, Any]] = {}
    for name, spec in specs.items():
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels == {"app": name}
        (containers[name],) = spec["template"]["spec"]["containers"]
    scheduler, worker, dispatcher = containers.values()
    assert service["spec"]["selector"] == {"app": "satchel-scheduler"}
    address = f"tcp://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert address in worker["command"] and address in dispatcher["command"]
    assert address.endswith(scheduler["command"][-1])
    assert specs["satchel-dispatcher"]["replicas"] == 2 and dispatcher["command"][:2] == ["satchel", "fleet"]
    assert worker["envFrom"] == dispatcher["envFrom"], "only one of them could reach the bucket"
    check_probes(dispatcher)
    check_grace(specs["satchel-worker"]["template"]["spec"]["terminationGracePeriodSeconds"])
    (scaled,) = documents("scale.yaml")
    assert scaled["spec"]["scaleTargetRef"]["name"] == "satchel-worker"
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["threshold"] == worker["command"][worker["command"].index("--nthreads") + 1]
    gauges = {each.name for each in families(Census().numbers()) if each.type == "gauge"}
    assert {*re.findall(r"satchel_\w+", trigger["metadata"]["query"])} <= gauges


def test_an_image_does_not_hold_or_may_not_write_what_is_started_in_it() -> None:
    lines = block("Dockerfile").splitlines()
    words = [line.split(maxsplit=1)[0] for line in lines]
    assert words == ["FROM", "RUN", "RUN", "COPY", "USER", "CMD"]
    program, command, folder = json.loads(lines[-1].removeprefix("CMD "))
    assert program == "satchel" and command in COMMANDS and f"install -d -o satchel {folder}" in lines[2]
    _, copied, to = lines[3].split()
    assert block(copied) and f"[python, {to}," in block("fleet.yaml")
    assert "--uid 1000 " in lines[2], "the volume is of another group"
    assert deployment()["spec"]["template"]["spec"]["securityContext"] == {"fsGroup": 1000}
    (composed,) = documents("compose.yaml")
    serves = composed["services"]["satchel"]
    assert serves["command"][:3] == [program, command, folder]
    assert serves["volumes"] == [f"{next(iter(composed['volumes']))}:{folder}"]
    check_grace(serves["stop_grace_period"].removesuffix("s"))
    compile(serves["healthcheck"]["test"][-1], "healthcheck", "exec")
    assert READY in serves["healthcheck"]["test"][-1]


@pytest.mark.skipif(sys.platform != "linux", reason="only there another process than the first collects orphans")
def test_the_container_of_a_worker_ends_before_its_runs(tmp_path: Path) -> None:
    """In place of `dask` a program that leaves a process behind at SIGTERM, as a run that drains."""
    run = "import sys; from pathlib import Path; print('runs', flush=True); sys.stdin.read(); Path('drained').touch()"
    worker = f"""#!{sys.executable}
import signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
subprocess.Popen([sys.executable, "-c", {run!r}])
signal.sigwait([signal.SIGTERM])
print("gone", flush=True)
sys.exit(3)
"""
    (tmp_path / "worker.py").write_text(block("worker.py"))
    (tmp_path / "dask").write_text(worker)
    (tmp_path / "dask").chmod(0o755)
    first = subprocess.Popen(
        [sys.executable, "worker.py", "tcp://127.0.0.1:1"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(36, 1, 0, 0, 0),  # PR_SET_CHILD_SUBREAPER
    )
    assert first.stdin and first.stdout
    with first:
        assert first.stdout.readline() == "runs\n"
        first.send_signal(signal.SIGTERM)
        assert first.stdout.readline() == "gone\n"
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.3)
        first.stdin.close()
        assert first.wait(PATIENCE) == 3 and (tmp_path / "drained").exists()


def job() -> dict[str, Any]:
    return dict(yamltext.load(block("job.yaml", (DOCS / "scaling.md").read_text()), "job.yaml").value)


def after(code: int, *, was_evicted: bool = False) -> str:
    """What Kubernetes does with the Job once its pod has ended so: by the first rule that fits."""
    for rule in job()["spec"]["podFailurePolicy"]["rules"]:
        on_codes, on_conditions = rule.get("onExitCodes"), rule.get("onPodConditions", [])
        if code and on_codes and on_codes["operator"] == "In" and code in on_codes["values"]:
            return str(rule["action"])
        if code and was_evicted and any(each["type"] == "DisruptionTarget" for each in on_conditions):
            return str(rule["action"])
    return "Count" if code else "Complete"


def test_a_job_repeats_what_a_person_has_to_look_at() -> None:
    repeated = {6, 8, 130, 137, 143}
    for code in {*EXIT_CODES.values(), 2, *repeated}:
        assert after(code) == ("Complete" if code == 0 else "Count" if code in repeated else "FailJob"), code
    assert after(EXIT_CODES["paused"], was_evicted=True) == "Ignore", "the end of a node is no failure of the run"
    pod = job()["spec"]["template"]["spec"]
    check_grace(pod["terminationGracePeriodSeconds"])
    assert pod["restartPolicy"] == "Never", "a policy for failed pods needs it"
    (container,) = pod["containers"]
    assert container["command"][:2] == ["satchel", "run"], "a shell in front would keep the signal"
    (rule,) = (rule for rule in job()["spec"]["podFailurePolicy"]["rules"] if "onExitCodes" in rule)
    assert rule["onExitCodes"]["containerName"] == container["name"]


def test_the_plan_of_a_million_runs_says_something_else_than_its_calculation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (DOCS / "scaling.md").read_text()
    found = re.search(r"^```python\n(from math import ceil\n.*?)^```$\n\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    assert found
    names: dict[str, Any] = {"__name__": "plan"}
    exec(found[1], names)  # noqa: S102
    assert {*found[2].splitlines()[2:]} < {*capsys.readouterr().out.splitlines()}
    assert names["waiting"](1).found_within == roots._A_PAGE


@pytest.mark.parametrize("name", ["satchel.yaml", "fleet.yaml", "job.yaml"])
def test_kubernetes_does_not_understand_the_manifest(name: str) -> None:
    validating = pytest.importorskip("kubernetes_validate", reason="its schemas are not installed")
    text = block(name, PAGE + (DOCS / "scaling.md").read_text())
    for part in text.replace("KEY", "0" * 32).split("---\n"):
        validating.validate(yamltext.load(part, name).value, validating.latest_version(), strict=True)


def test_a_job_whose_pods_are_killed_does_not_end(tmp_path: Path) -> None:
    """Each pod is a process here: the first is killed, the node of the second goes away."""
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: job-1\nagent: agent.py:main\n")
    (tmp_path / "agent.py").write_text(NAPPING)
    command = [sys.executable, "-m", "satchel", *job()["spec"]["template"]["spec"]["containers"][0]["command"][1:-1]]
    endings: list[tuple[signal.Signals | None, bool]] = [(signal.SIGKILL, False), (signal.SIGTERM, True), (None, False)]
    came = []
    for number, was_evicted in endings:
        begun = len(naps(tmp_path))
        pod = warm.Popen([*command, str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number is not None:
            wait_until(lambda begun=begun: len(naps(tmp_path)) > begun, pod)
            pod.send_signal(number)
        code = pod.wait(PATIENCE)
        wait_until(lambda: lease.holder(DiskStore(tmp_path)) is None)  # nothing of a pod outlives it
        came.append(after(128 - code if code < 0 else code, was_evicted=was_evicted))
    assert came == ["Count", "Ignore", "Complete"]
