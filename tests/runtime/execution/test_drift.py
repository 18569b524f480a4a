"""Drift: whatever a run works with and has changed is told item by item, or refused."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from satchel import Run, agent, run
from satchel.runtime.agent import code
from satchel.runtime.cli.group import group
from satchel.runtime.execution import preflight
from satchel.workspace.base.errors import Refused
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore

AGENT = """
import helper
from satchel import agent, step

@step(fallback=["small"])
async def ask(model: str = "large"): ...

@agent
async def main(run):
    import faked_module
    await run.scope("once", helper.once)
    if run.attempt < 9:
        raise ValueError("not yet")
"""


@pytest.fixture
def begun(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has failed, of an agent with a module beside it, a package, a prompt, settings and a model."""
    define(workspace)
    (workspace / "agent.py").write_text(AGENT)
    (workspace / "helper.py").write_text("def once(): pass\n")
    (workspace / "prompts").mkdir()
    (workspace / "prompts/sum.md").write_text("Sum up {{name}}")
    site = tmp_path / "site"
    site.mkdir()
    (site / "faked_module.py").write_text("")
    install(site, "1.60")
    monkeypatch.syspath_prepend(site)
    assert run(workspace).status == "failed"
    return workspace


def define(workspace: Path, tone: str = "kind", more: str = "") -> None:
    (workspace / "workspace.yaml").write_text(
        f"format: 1\nrun_id: test-1\nagent: agent.py:main\nsettings: {{tone: {tone}, llm: {{model: large}}}}\n{more}"
    )


def install(site: Path, version: str) -> None:
    for old in site.glob("*.dist-info"):
        (old / "METADATA").unlink()
        (old / "top_level.txt").unlink()
        old.rmdir()
    info = site / f"Faked_Distribution-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Faked-Distribution\nVersion: {version}\n")
    (info / "top_level.txt").write_text("faked_module\n")


def config(workspace: Path) -> dict[str, Any]:
    return look(DiskStore(workspace)).moment.config


def told(workspace: Path) -> list[str]:
    """What a further start tells of drift."""
    outcome = run(workspace)
    return [each.text for each in outcome.report.remarks if each.kind == "found"][1:]


def test_what_a_run_works_with_is_recorded(begun: Path) -> None:
    found = config(begun)
    assert list(found["code"]) == ["agent.py", "helper.py"]
    assert found["packages"] == {"Faked-Distribution": "1.60"}
    assert list(found["prompts"]) == ["sum"]
    assert found["models"] == {"ask.fallback": ["small"], "settings.llm.model": "large"}
    assert found["state_version"] == 1 and found["python"] == sys.version.split()[0]


def test_nothing_is_told_and_recorded_again_when_nothing_has_changed(begun: Path) -> None:
    before = (begun / "journal").stat()
    assert told(begun) == []
    log = CliRunner().invoke(group, ["log", "--type", "configured", str(begun)]).output
    assert len(log.splitlines()) == 1 and before


def test_code_beside_the_agent_is_told(begun: Path) -> None:
    (begun / "helper.py").write_text("def once(): return 1\n")
    (said,) = told(begun)
    assert said.startswith("helper.py has changed (") and " -> " in said
    assert told(begun) == [], "it is told once"


def test_the_agents_own_code_and_a_module_that_is_new_and_gone(begun: Path) -> None:
    (begun / "extra.py").write_text("")
    (begun / "agent.py").write_text(AGENT.replace("import helper", "import helper, extra"))
    first, second = told(begun)
    assert first.startswith("agent.py has changed (") and second == "extra.py is new"
    (begun / "agent.py").write_text(AGENT)
    assert told(begun)[1] == "extra.py " + config_gone()


def config_gone() -> str:
    return f"{code.short(b'')} is missing now".partition(" ")[2]


def test_prompts_are_told(begun: Path) -> None:
    before = config(begun)["prompts"]["sum"]
    (begun / "prompts/sum.md").write_text("Sum {{name}} up")
    (begun / "prompts/new.md").write_text("new")
    first, second = told(begun)
    assert first == "prompt new is new"
    assert second == f"prompt sum was {before[:8]}, is {config(begun)['prompts']['sum'][:8]}"


def test_a_package_with_another_version_is_told(begun: Path, tmp_path: Path) -> None:
    install(tmp_path / "site", "1.70")
    code._provided.cache_clear()
    assert told(begun) == ["Faked-Distribution 1.60 -> 1.70"]


def test_python_and_satchel_are_told(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.platform, "python_version", lambda: "3.99.1")  # type: ignore[attr-defined]
    monkeypatch.setattr(preflight, "version", lambda: "9.9")
    assert [each.partition(" ")[0] for each in told(begun)] == ["satchel", "python"]


def test_a_changed_setting_is_told_as_the_edit_it_is_and_its_model_apart(begun: Path) -> None:
    define(begun, tone="stern")
    outcome = run(begun)
    texts = [each.text for each in outcome.report.remarks]
    assert 'workspace.yaml: settings.tone is now "stern"' in texts
    assert not any(text.startswith("the settings have changed") for text in texts)
    yaml = begun / "workspace.yaml"
    yaml.write_text(yaml.read_text().replace("model: large", "model: huge"))
    assert "model settings.llm.model was large, is huge" in told(begun)


def test_the_state_version_is_told() -> None:
    assert preflight.compare_configs({"state_version": 1}, {"state_version": 2}) == ("state version 1 -> 2",)


def test_what_an_older_record_does_not_tell_has_not_changed() -> None:
    assert preflight.compare_configs({}, {"python": "3"}) == ()
    now = {"packages": {"a": "1"}, "code": {"a.py": "0"}, "settings_sha256": "1", "python": "3"}
    assert preflight.compare_configs({"python": "3"}, now) == ()


def satchel(folder: Path, *args: str) -> tuple[int, str]:
    done = CliRunner().invoke(group, [args[0], "--in-process", *args[1:], str(folder)])
    return done.exit_code, done.output


def files(folder: Path) -> dict[str, bytes]:
    skip = ("__pycache__", ".satchel")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part in skip for part in path.parts)
    }


def test_refused_drift_calls_nothing_and_leaves_the_workspace_as_it_was(begun: Path) -> None:
    define(begun, more="on_drift: refuse\n")
    assert satchel(begun, "run")[0] == 1, "a change of on_drift itself is not drift"
    (begun / "helper.py").write_text("def once(): return 1\n")
    (begun / "prompts/sum.md").write_text("Sum {{name}} up")
    define(begun, "stern", more="on_drift: refuse\n")
    before = files(begun)
    for command in ("run", "resume"):
        code, said = satchel(begun, command)
        assert code == 2, said
        for part in ("helper.py has changed", "prompt sum was", "the settings have changed", "--accept-drift"):
            assert part in said
    assert files(begun) == before
    code, said = satchel(begun, "resume", "--accept-drift")
    assert code == 1 and "helper.py has changed" in said and "not yet" in said
    assert satchel(begun, "resume")[0] == 1, "what was accepted is what it works with now"


def test_a_finished_run_is_not_refused(workspace: Path) -> None:
    define(workspace, more="on_drift: refuse\n")
    source = workspace / "agent.py"
    source.write_text("from satchel import agent\n@agent\nasync def main(run):\n    pass\n")
    assert run(workspace).status == "completed"
    source.write_text(source.read_text() + "# changed\n")
    assert run(workspace).status == "completed"


def test_a_finished_run_that_an_edit_gives_work_is_refused(workspace: Path, calls: list[str]) -> None:
    define(workspace, more="on_drift: refuse\n")
    source = workspace / "agent.py"
    source.write_text(
        "from satchel import agent\nasync def work(run, item): pass\n@agent\nasync def main(run):\n"
        "    if not run.todo.items:\n        await run.plan(None, ['one'])\n    await run.todo.each(work)\n"
    )
    assert run(workspace).status == "completed"
    source.write_text(source.read_text() + "# changed\n")
    todo = workspace / "todo.md"
    todo.write_text(todo.read_text().replace("[x]", "[ ]"))
    with pytest.raises(Refused, match=r"agent.py has changed"):
        run(workspace)
    assert "- [ ] one" in todo.read_text()
    assert run(workspace, accept_drift=True).status == "completed"


def test_refusing_needs_something_to_compare_with(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None: ...

    define(workspace, more="on_drift: refuse\n")
    assert run(workspace, main).status == "completed"


def test_all_drifts_are_in_the_error() -> None:
    with pytest.raises(Refused) as raised:
        preflight.refuse(["a 1 -> 2", "b.py is new"])
    assert "a 1 -> 2" in str(raised.value) and "b.py is new" in str(raised.value)


def test_a_package_of_the_agents_own_is_followed_and_its_neighbours_are_not(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    (package / "inner").mkdir(parents=True)
    for name, source in {
        "__init__.py": "",
        "main.py": "from . import near\nfrom mine.inner import deep\nimport neighbour\n",
        "near.py": "from .inner.deep import x",
        "inner/__init__.py": "",
        "inner/deep.py": "from ..far import y",
        "far.py": "",
        "unused.py": "",
    }.items():
        (package / name).write_text(source)
    (tmp_path / "neighbour.py").write_text("")
    found = code.of(str(package / "main.py"))
    own = ["__init__.py", "far.py", "inner/__init__.py", "inner/deep.py", "main.py", "near.py"]
    assert list(found.modules) == [f"mine/{name}" for name in own]
    assert found.packages == {}


def test_code_that_can_not_be_parsed_is_still_known_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_bytes(b"import other\n")
    (tmp_path / "other.py").write_bytes(b"def (\n")
    assert list(code.of(str(tmp_path / "agent.py")).modules) == ["agent.py", "other.py"]


def test_another_thread_parses_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython then says now and then that it has miscounted."""
    agent = tmp_path / "agent.py"
    agent.write_text("import other\nMISCOUNTED = 1\n")
    (tmp_path / "other.py").write_text("")
    parse, failing = ast.parse, iter([True, True])

    def miscounts(source: bytes) -> ast.AST:
        if next(failing, False):
            raise SystemError("AST constructor recursion depth mismatch (before=189, after=243)")
        return parse(source)

    monkeypatch.setattr(ast, "parse", miscounts)
    assert list(code.of(str(agent)).modules) == ["agent.py", "other.py"]


def test_of_the_distributions_only_those_that_contain_a_module_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "full"
    site.mkdir()
    for number in range(20):
        info = site / f"dist{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dist{number}\nVersion: 1.0\n")
        files = [f"package{number}/part{part}.py,sha256=,1" for part in range(20)]
        (info / "RECORD").write_text("\n".join([*files, f"single{number}.cpython-311.so,,", "common/a.py,,"]))
    for module in ("package3", "common", "pack"):
        (site / module).mkdir()
    (site / "single4.py").write_text("")
    monkeypatch.syspath_prepend(str(site))
    read: list[str] = []
    kind = type(metadata.distribution("pytest"))  # of importlib_metadata, if another test has loaded that
    whole = kind.read_text

    def reading(self: metadata.PathDistribution, filename: Any) -> str | None:
        read.append(str(filename))
        return whole(self, filename)

    monkeypatch.setattr(kind, "read_text", reading)
    assert code._providers("package3") == ["dist3"] and read.count("METADATA") == 1
    assert code._providers("single4") == ["dist4"]
    assert len(code._providers("common")) == 20
    assert code._providers("pack") == []


def test_a_drift_that_asks_is_taken_for_accepted(begun: Path) -> None:
    define(begun, more="on_drift: ask\n")
    assert satchel(begun, "run")[0] == 1
    (begun / "helper.py").write_text("def once(): return 1\n")
    code, said = satchel(begun, "run")[:2]
    assert code == 3 and "helper.py has changed" in said, said
    assert "helper.py has changed" in (begun / "pause.yaml").read_text()
    assert satchel(begun, "run")[0] == 3, "it stays paused"
    assert satchel(begun, "resume")[0] == 1, "the person has said yes"
    assert satchel(begun, "run")[0] == 1, "and is not asked again"


def test_the_code_of_a_run_is_unknown(tmp_path: Path) -> None:
    """In a checkout, a work tree and one with packed references."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    define(tmp_path)
    (tmp_path / "agent.py").write_text("from satchel import agent\n@agent\nasync def main(run): ...\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["worktree", "add", "-q", "tree"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    for folder in (tmp_path, tmp_path / "tree"):
        assert code.of(str(folder / "agent.py")).commit == commit[:12]
    subprocess.run([*git, "pack-refs", "--all"], check=True)
    assert code.of(str(tmp_path / "agent.py")).commit == commit[:12]
    subprocess.run([*git, "checkout", "-q", "--detach"], check=True)
    assert code.of(str(tmp_path / "agent.py")).commit == commit[:12]
    satchel(tmp_path, "run")
    told = {words: CliRunner().invoke(group, [*words, str(tmp_path)]).output for words in (("status",), ("log",))}
    assert f"code {commit[:12]} (" in told["status",] and f"agent {commit[:12]} (" in told["log",]
    assert commit[:12] in CliRunner().invoke(group, ["ls", "--code", str(tmp_path)]).output
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe nonsense")
    assert code.of(str(tmp_path / "agent.py")).commit == ""
