"""Names that strangers chose, in every command: text on the terminal, and nothing but text."""

from __future__ import annotations

import ast
import io
import json
import os
import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gangwise
from gangwise.cli import app
from gangwise.cli.options import screen, table
from gangwise.core.errors import GangwiseError
from gangwise.core.files import Folder
from gangwise.core.terminal import json_shown, one_line, shown
from gangwise.engines.engine import EngineNode
from gangwise.service.loop import Service
from tests.service.pretend import Pretend

ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
NAMES = ["work=[/b]", "see [/ticket] 5", "[/red]x", "[link=http://x]y", "[bold", "a\\[b]", "{0}%s"]
NAMES += ["red\x1b[31m", "clear\x1b[2J\x1b]0;title\x07", "c1\x9b2J", "over\u202ewritten", ":boom:"]
NAMES += ["back\x08\x08\x08", "return\rover", "del\x7f"]


def said(*words: object) -> str:
    """What a command writes; it may refuse, in one line, and never fail inside."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    error = done.exception
    if error is not None and not isinstance(error, SystemExit | GangwiseError):
        raise AssertionError(f"{words}: {error!r}") from error
    text = done.output + shown(str(error or ""))
    assert not ACTS.search(text), (words, ACTS.search(text), text)
    return text


def test_text_is_shown_and_json_says_the_same():
    for name in [*NAMES, "half\udc9b", "two\nlines"]:
        assert not ACTS.search(shown(name))
        assert "\n" not in one_line({name: [name]})
        text = json_shown(json.dumps(name, ensure_ascii=False))
        assert json.loads(text) == name
        assert not ACTS.search(text)
    assert shown("Zoë, 中文, 🙂\tand\n") == "Zoë, 中文, 🙂\tand\n"


def test_the_commands_print_in_one_way():
    """No command prints by itself: echo, say and screen show what strangers wrote as text."""
    for path in sorted(Path(gangwise.__file__).parent.glob("cli/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                prints = node.func.id in ("print", "Console")
                assert not prints or path.name == "options.py", (path, node.lineno)


@pytest.mark.parametrize("name", NAMES)
def test_a_terminal_gets_no_command_of_a_strangers(name, monkeypatch):
    """On a terminal as well, where Rich writes control characters of its own: colours, no more."""
    monkeypatch.setenv("TERM", "xterm-256color")
    console, wrote = screen(), io.StringIO()
    console.file, console._force_terminal = wrote, True
    console.print(f"node {name} is down")
    console.print(table(["job", name], [[name, f"why: {name}"]]))
    text = re.sub(r"\x1b\[[0-9;]*m", "", wrote.getvalue())
    assert not ACTS.search(text), text
    whole = shown(name)
    assert f"node {whole} is down" in text
    assert text.count(whole) == 4


def test_a_live_cluster_of_strangers(tmp_path):
    nodes = [
        EngineNode(f"n{i} {name}", {"gpu": 2000}, {"model": name}, i > 2, name * (i <= 2))
        for i, name in enumerate(NAMES)
    ]
    engine = Pretend(nodes)
    for i, name in enumerate(NAMES):
        engine.submit(f"{i}{name}", tasks=1 + 40 * (i % 2))
        row = engine.table[f"{i}{name}"]
        object.__setattr__(row.job, "user", name)
        object.__setattr__(row.job, "job_type", name)
    for i, name in enumerate(NAMES):
        engine.quarantine.put("node", name, f"because {name}")
        engine.quarantine.put("job", f"x{i}{name}", ValueError(name))
    service = Service(engine, tmp_path, "fcfs+easy+best-fit", act=True)
    for _ in range(3):
        service.tick(0.0)
    service.close()
    top = said("top", "--state", tmp_path)
    assert "[/ticket] 5" in top
    json.loads(said("top", "--json", "--state", tmp_path))
    for i, name in enumerate(NAMES):
        said("explain", f"{i}{name}", "--state", tmp_path)
        said("explain", f"not there {name}", "--state", tmp_path)
    for words in (["account"], ["account", "--json"]):
        said(*words, "--state", tmp_path)
    for words in (["forecast"], ["verify"], ["replay"], ["forecast", "--json"]):
        said(words[0], tmp_path, *words[1:])


def log(folder: Path, names: list[str]) -> Path:
    """A log of one's own with such users, types, states and nodes, and a mapping for it."""
    rng, rows, hostile = random.Random(7), [], [n.replace("\r", "") for n in names]
    for i in range(60):
        name = rng.choice(hostile)
        rows.append(f"{i} {name};{name};{60 * i};{rng.randint(10, 900)};{rng.randint(1, 4)};{name}")
    (folder / "jobs.csv").write_text("id;user;submit;run;nodes;queue\n" + "\n".join(rows) + "\n")
    servers = "".join(f"n{i} {name},4,{name}\n" for i, name in enumerate(hostile))
    (folder / "servers.csv").write_text("host,cores,model\n" + servers)
    (folder / "mapping.toml").write_text(
        'trace = "csv"\n[jobs]\nfile = "jobs.csv"\nseparator = ";"\n[jobs.columns]\n'
        'name = "id"\ncpu = 1\nmem = 0\ngpu = 0\ncreated = "submit"\nduration = "run"\n'
        'tasks = "nodes"\nuser = "user"\npartition = "queue"\ntype = "queue"\n'
        '[servers]\nfile = "servers.csv"\n[servers.columns]\nname = "host"\ncpu = "cores"\n'
        'mem = { value = 64 }\nmodel = "model"\n'
    )
    return folder / "mapping.toml"


def test_a_log_of_strangers(tmp_path):
    mapping = log(tmp_path, NAMES)
    assert "60" in said("jobs", mapping)
    for words in (["jobs", "--type", "user"], ["trace", "inspect"], ["nodes"], ["jobs", "--json"]):
        at = 1 + (words[0] == "trace")
        said(*words[:at], mapping, *words[at:])
    said("forecast", mapping, "--at", "900", "--draws", "2")
    said("trace", "inspect", tmp_path)
    out = tmp_path / "out"
    said("replay", mapping, "--policies", "fcfs+easy", "--no-bound", "--jobs", "1", "--out", out)
    said("explain", out, "--job", f"3 {NAMES[0]}")
    said("report", out, "--out", tmp_path / "page.html")
    said("verify", out)


def test_files_and_columns_of_strangers(tmp_path):
    for name in [*random.sample(NAMES, 3), "two\nlines", os.fsdecode(b"\xff\xfe")]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        Folder(folder).write("summary.json", "{}")
        for file in (name.replace("/", "|"), f"{name.replace('/', '|')}.csv"):
            heading = name.replace("\n", " ").encode(errors="surrogateescape")
            (folder / file).write_bytes(heading + b",submit,nodes\n1,2,3\n4,5,6\n")
        for words in (["verify"], ["clean", "--json"], ["trace", "inspect"], ["report"]):
            at = 1 + (words[0] == "trace")
            said(*words[:at], folder, *words[at:])
        assert said("trace", "guess", folder / file)  # a draft, or one line that refuses
        said("trace", "inspect", folder / file)
        said("replay", folder / f"not there {name.replace('/', '|')}")
        said("run", f"ogasched-default-v1:{name}=1", name)
        said("show", name)
        said("list", "--family", name)
