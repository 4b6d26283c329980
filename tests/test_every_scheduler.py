"""Every registered scheduler, typed as a user types it: an answer, or one sentence of refusal.

Names come from the catalogue and the registered parts, so that a new one is in it by itself. The
short tests play covering arrays of strength two: every two of order, backfilling, choice, ends,
passing and log meet. The long ones play arrays of strength three, with the command as a further
factor, and every whole scheduler on every log under every command.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import GangwiseError
from gangwise.core.registry import ANY, create, entries, types_of
from gangwise.core.settings import toml_text
from gangwise.jobs import compiled, parts, simulation
from gangwise.sites import slurm_passes

TYPED = {ANY: "fcfs+easy", "gavel": "gavel:seconds=7200"}  # it solves a programme every so often
WHOLE = [TYPED.get(name, name) for name in entries("scheduler") if name != ANY]
ENDS = "", "requested", "learned", "true"
PASSING = "", "queue", "shortest"
JOBS = 60


def drawn() -> Iterator[tuple[int, int, int, int, int]]:
    """Submission, start, run time, tasks and user of some jobs that have to wait now and then."""
    rng, time, free = random.Random(7), 0, [0] * 4
    for j in range(JOBS):
        time += rng.randrange(900)
        tasks, run = rng.choice([1, 1, 2, 4]), rng.randrange(30, 4000)
        free.sort()
        start = max(time, free[tasks - 1])
        free[:tasks] = [start + run] * tasks
        yield time, start, run, tasks, j % 5


def clock(seconds: int, days: str = "2024-01-15") -> str:
    return f"{days}T{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def pool(folder: Path) -> list[str]:
    rows = ["; MaxProcs: 4\n; MaxNodes: 4\n; UnixStartTime: 1700000000"]
    rows += [
        f"{j} {t} {s - t} {r} {n} -1 -1 {n} {2 * r} -1 1 {u + 1} {u % 2 + 1} -1 {u % 2} 1 -1 -1"
        for j, (t, s, r, n, u) in enumerate(drawn(), 1)
    ]
    (folder / "pool.swf").write_text("\n".join(rows) + "\n")
    return [str(folder / "pool.swf")]


def site(folder: Path) -> list[str]:
    rules = "[[pool]]\nname = '0'\n[[pool]]\nname = '1'\n"
    rules += "[[cap]]\nscope = 'user'\nof = 'cpu'\nmost = 3\n"
    (folder / "site.toml").write_text(rules)
    return [*pool(folder), "--set", f"site={folder / 'site.toml'}"]


def sacct(folder: Path) -> list[str]:
    head = "JobID|User|Account|State|Submit|Start|End|Timelimit|AllocTRES|NNodes|NodeList|Partition"
    rows = [head]
    for j, (t, s, r, n, u) in enumerate(drawn(), 100):
        days = [f"2024-01-{15 + at // 86400:02d}" for at in (t, s, s + r)]
        times = "|".join(clock(at, day) for at, day in zip((t, s, s + r), days))
        rows.append(
            f"{j}|u{u}|a{u % 2}|COMPLETED|{times}|02:30:00|cpu={4 * n},node={n}|{n}|n[1-{n}]|main"
        )
    (folder / "sacct.txt").write_text("\n".join(rows) + "\n")
    return [str(folder / "sacct.txt")]


def slurm(folder: Path) -> list[str]:
    """The same, and its rules as Slurm prints them."""
    (folder / "rules").mkdir()
    conf = "SchedulerType=sched/backfill\nSelectType=select/cons_tres\n"
    conf += "SelectTypeParameters=CR_Core\nNodeName=n[1-4] CPUs=4 RealMemory=4000\n"
    conf += "PartitionName=main Nodes=n[1-4] Default=YES MaxTime=12:00:00 State=UP\n"
    (folder / "rules" / "slurm.conf").write_text(conf)
    return [*sacct(folder), "--set", f"site=slurm:{folder / 'rules'}"]


def pods(folder: Path) -> list[str]:
    items: list[Any] = []
    for j, (t, s, r, n, u) in enumerate(drawn()):
        for i in range(n):
            owner = {"kind": "Job", "name": f"j{j}", "controller": True, "apiVersion": "batch/v1"}
            meta = {"name": f"j{j}-{i}", "namespace": f"u{u}", "ownerReferences": [owner]}
            end = {"terminated": {"finishedAt": clock(s + r) + "Z"}}
            status: dict[str, Any] = {"phase": "Succeeded", "startTime": clock(s) + "Z"}
            requests = {"requests": {"cpu": "4", "memory": "1Gi"}}
            items.append(
                {
                    "kind": "Pod",
                    "metadata": meta | {"creationTimestamp": clock(t) + "Z"},
                    "status": status | {"containerStatuses": [{"state": end}]},
                    "spec": {"nodeName": f"n{i}", "containers": [{"resources": requests}]},
                }
            )
    held = {"allocatable": {"cpu": "4", "memory": "64Gi"}, "conditions": []}
    nodes = [{"kind": "Node", "metadata": {"name": f"n{i}"}, "status": held} for i in range(4)]
    for name, of in ("pods", items), ("nodes", nodes):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": of})
        (folder / f"{name}.json").write_text(text)
    return [str(folder)]


def kueue(folder: Path) -> list[str]:
    """The same, and quotas as kubectl prints them."""
    (folder / "rules").mkdir()
    quota = {"name": "cpu", "nominalQuota": 12}
    covered = {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [quota]}]}
    items: list[Any] = [
        {"kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}},
        {
            "kind": "ClusterQueue",
            "metadata": {"name": "all"},
            "spec": {"resourceGroups": [covered]},
        },
    ]
    for user in range(5):
        meta = {"name": "local", "namespace": f"u{user}"}
        items.append({"kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": "all"}})
    for each in items:
        each["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    (folder / "rules" / "queues.json").write_text(json.dumps({"kind": "List", "items": items}))
    return [*pods(folder), "--set", f"site=kueue:{folder / 'rules'}"]


def csv(folder: Path, gpu: str = "gpus", servers: str = "a,6\nb,3\nc,3\n") -> list[str]:
    """Unlike nodes: one of 6 devices, and two of 3."""
    rows = ["id,gpus,submit,begin,stop,tasks,user,asked"]
    rows += [
        f"{j},{1 + j % 3},{t},{s},{s + r},{n},u{u},{2 * r}"
        for j, (t, s, r, n, u) in enumerate(drawn())
    ]
    (folder / "jobs.csv").write_text("\n".join(rows) + "\n")
    (folder / "servers.csv").write_text(f"host,gpus\n{servers}")
    columns = {"name": "id", "gpu": gpu, "created": "submit", "started": "begin"}
    columns |= {"deleted": "stop", "tasks": "tasks", "user": "user", "limit": "asked"}
    mapping = {
        "trace": "csv",
        "jobs": {"file": "jobs.csv", "columns": columns},
        "servers": {"file": "servers.csv", "columns": {"name": "host", "gpu": "gpus"}},
    }
    (folder / "mapping.toml").write_text(toml_text(mapping))
    return [str(folder / "mapping.toml")]


def twin(folder: Path) -> list[str]:
    """Parts of GPUs, on a drawn sample."""
    settings = "--set", f"first={JOBS}", "--set", "nodes=2", "--set", "load=3"
    return ["twin:alibaba-gpu-v2023", *settings]


def world(folder: Path) -> list[str]:
    """Hidden speeds that are drawn; limits are of work."""
    settings = {"world": "unlike", "nodes": 3, "load": 3, "first": JOBS, "limits": "work"}
    pairs = itertools.chain.from_iterable(("--set", f"{k}={v}") for k, v in settings.items())
    return ["twin:alibaba-gpu-v2023", *pairs]


LOGS: dict[str, Callable[[Path], list[str]]] = {
    each.__name__: each for each in (pool, site, sacct, slurm, pods, kueue, csv, twin, world)
}


def composed(order: str, backfilling: str, choice: str, ends: str, passing: str) -> str:
    given = [f"{k}={v}" for k, v in (("ends", ends), ("passing", passing)) if v]
    return f"{order}+{backfilling}+{choice}" + (":" + ",".join(given) if given else "")


def replay(where: list[str], names: Sequence[str], folder: Path) -> list[str]:
    return ["replay", *where, "--policies", ",".join(names), "--no-bound", "--jobs", "1"]


def what_if(where: list[str], names: Sequence[str], folder: Path) -> list[str]:
    changes = itertools.chain.from_iterable(("--change", f"scheduler={name}") for name in names)
    return ["what-if", *where, "--as", "sjf+easy", *changes, "--jobs", "1"]


def forecast(where: list[str], names: Sequence[str], folder: Path) -> list[str]:
    return ["forecast", *where, "--at", "2h", "--scheduler", names[0], "--draws", "10"]


def tune(where: list[str], names: Sequence[str], folder: Path) -> list[str]:
    source, *settings = where
    return [
        *("tune", "replay", names[0], "--set", f"source={source}", *settings, "--trials", "2"),
        *("--set", "overestimate=2", "--seeds", "0,1", "--validation", "2,3"),
        *("--range", _range_of(names[0])),
        *("--out", str(folder / "tuned"), "--jobs", "1"),
    ]


def _range_of(name: str) -> str:
    whole = {"gavel:seconds=7200": "seconds=4000:9000", "las": "thresholds=(9,99)|(100,1000)"}
    return whole.get(name, "interval=10:90" if name == "slurm" else "depth=5:50:int")


def leaderboard(where: list[str], names: Sequence[str], folder: Path) -> list[str]:
    entered = itertools.chain.from_iterable(("--with", name) for name in names)
    return ["leaderboard", str(folder), "--out", str(folder / "board"), *entered, "--jobs", "1"]


COMMANDS = replay, what_if, forecast, tune, leaderboard
"""They take a log, the names of some schedulers, of which forecast and tune take the first."""


class Played:
    """Runs commands; knows whether anything was played, and whether it was answered."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path):
        self.folder, self.count, self.calls = folder, 0, itertools.count()
        for module, name in (compiled, "play_compiled"), (slurm_passes, "play"):
            patch.setattr(module, name, self._counted(getattr(module, name)))
        run = self._counted(simulation.JobSimulation.run)
        patch.setattr(simulation.JobSimulation, "run", lambda *given: run(*given))
        rules = {
            "parts": 1,
            "base": "fcfs+easy",
            "schedulers": [],
            "oracles": [],
            "tuned": ["sjf+easy"],
        }
        log = {"name": "pool", "about": "made", "settings": {"source": "pool.swf"}}
        (folder / "rules.toml").write_text(toml_text({**rules, "logs": [log]}))
        patch.setattr("gangwise.study.replay.RULES", folder / "rules.toml")
        self.where = {}
        for name, make in LOGS.items():
            (folder / name).mkdir()
            self.where[name] = make(folder / name)

    def _counted(self, play: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            self.count += 1
            return play(*given)

        return counted

    def check(self, command: Callable[..., list[str]], log: str, *names: str) -> str:
        """What refuses a command; empty where it ended with an answer."""
        folder = self.folder / f"call-{next(self.calls)}"
        folder.mkdir()
        if command is leaderboard:
            pool(folder)
        self.count = 0
        typed = command(self.where[log], names, folder)
        done = CliRunner().invoke(app, typed)
        if done.exit_code == 0:
            assert done.stdout.strip(), typed
            assert "nan" not in done.stdout.split(), typed
            return ""
        refusal = str(done.exception)
        assert isinstance(done.exception, GangwiseError), (typed, repr(done.exception))
        late = f"refused after something was played: {refusal}"
        assert self.count == 0 or "no job waits" in refusal, (typed, late)
        assert "\n" not in refusal, (typed, refusal)
        assert len(refusal) < 400, (typed, refusal)
        _, _, meant = refusal.partition("did you mean ")
        assert not any(f"named '{name}'" in refusal and name in meant for name in names), refusal
        return refusal

    def check_all(
        self, log: str, names: Sequence[str], command: Callable[..., list[str]] = replay
    ) -> int:
        """Check all names at once, or, where that is refused, halves; how many are refused."""
        if not names or not self.check(command, log, *names):
            return 0
        if len(names) == 1:
            return 1
        middle = len(names) // 2
        return sum(self.check_all(log, of, command) for of in (names[:middle], names[middle:]))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with pytest.MonkeyPatch.context() as patch:
        yield Played(patch, tmp_path_factory.mktemp("logs"))


def covering(strength: int, *factors: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Covering array: every so many values of as many factors meet in a row (greedy, always alike).

    Each row has a combination that had not met yet, and is the best of some that are drawn.
    """
    rng = random.Random(1)
    columns = list(itertools.combinations(range(len(factors)), strength))
    values = [range(len(factor)) for factor in factors]
    unmet = {
        (of, chosen) for of in columns for chosen in itertools.product(*(values[c] for c in of))
    }
    order = sorted(unmet)
    rng.shuffle(order)
    for first, fixed in order:
        if (first, fixed) not in unmet:
            continue
        best: list[int] = []
        covers: set[Any] = set()
        for _ in range(12):
            row = [rng.choice(of) for of in values]
            for c, value in zip(first, fixed):
                row[c] = value
            met = {(of, tuple(row[c] for c in of)) for of in columns} & unmet
            if len(met) > len(covers):
                best, covers = row, met
        unmet -= covers
        yield tuple(factor[value] for factor, value in zip(factors, best))


FACTORS = parts("queue"), parts("backfilling"), parts("choice"), ENDS, PASSING


@functools.cache
def triples() -> list[tuple[Any, ...]]:
    return list(covering(3, *FACTORS, list(LOGS), COMMANDS))


def test_every_two_parts_meet_and_meet_every_log(played: Played) -> None:
    by_log: dict[str, list[str]] = {log: list(WHOLE) for log in LOGS}
    for *of, log in covering(2, *FACTORS, list(LOGS)):
        by_log[log].append(composed(*of))
    refused = sum(played.check_all(log, names) for log, names in by_log.items())
    assert 0 < refused < sum(map(len, by_log.values())) * 2 / 3


def test_every_command_takes_every_kind_of_scheduler_on_every_log(played: Played) -> None:
    kinds = [*WHOLE, "aged+easy+learned", "sjf+conservative+fgd"]
    answers = sum(
        not played.check(command, log, name)
        for command, log, name in covering(2, COMMANDS[1:], list(LOGS), kinds)
    )
    assert answers > 20


OTHER: dict[str, Any] = {
    "depth": 7,
    "limits": "work",
    "restart": 60.0,
    "ends": "learned",
    "passing": "shortest",
    "times": "last-two",
    "correction": "steps",
    "slack": 60.0,
    "objective": "fifo",
    "seconds": 9000.0,
    "thresholds": (100.0, 1000.0),
    "pause": 9.0,
    "order": "sjf",
    "interval": 15.0,
    "resolution": 30.0,
    "window": 3600.0,
    "tested": 5,
    **dict.fromkeys(("per_user", "per_pool", "per_user_pool", "per_account"), 3),
    **dict.fromkeys(("starts", "main_starts", "part_depth"), 3),
    "least_wait": 60.0,
    "least_priority": 5.0,
    "leaf_cores": False,
    "one_each": True,
    "safe": True,
    "security": 30.0,
}
"""A value of every option of every scheduler that is not the default."""


def test_every_option_is_taken_as_typed_and_played(played: Played) -> None:
    typed = []
    for name, entry in entries("scheduler").items():
        for option, of in inspect.signature(entry.load()).parameters.items():
            if option in ("queue", "backfilling", "choice"):  # parts, which have names
                continue
            value = OTHER[option]
            before = TYPED.get(name, name) if option != "seconds" else name
            typed.append(f"{before}{',' if ':' in before else ':'}{option}={value}")
            made = create("scheduler", typed[-1])
            assert getattr(made, option) == value != of.default
    assert "las:thresholds=(100.0, 1000.0)" in typed
    assert played.check_all("pool", typed) == 0
    for wrong in "(1000,100)", "100", "(a,b)", "fast":
        assert "rising numbers" in played.check(replay, "pool", f"las:thresholds={wrong}")


WORDS = {"memory": "window", "g": "loglog", "delta": 0.2, "share": "all", "solver": "fast"}
WORDS |= {
    "score": "least-requested",
    "priority": {},
    "rule": "decay",
    "estimator": "mean",
    "mu": 0.2,
}
WORDS |= {"alpha": 0.2, "gamma": 0.2, "pacing": "even", "rounding": "fresh", "unit": "utility"}
"""Values of options of policies that have no number as a default."""
SMALL = {
    "gain_overhead": "ogasched-default-v1:servers=16,job_types=4",
    "fluctuating_speeds": "esdp-default-v1",
    "approximation_jobs": "opm-default-v1",
    "gain_overhead_gang": "ogasched-gang-small-v1",
    "fluctuating_speeds_gang": "esdp-gang-small-v1",
}
"""A scenario of each family of problems."""


def another(option: inspect.Parameter) -> Any:
    """A value of an option of a policy that is not the default."""
    default = option.default
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float):
        return default + 1 if isinstance(default, int) else 0.9 * default or 0.1
    if "Literal" in str(option.annotation):
        parts = get_args(option.annotation)  # of a Literal, or of one beside None
        choices = [choice for part in parts for choice in get_args(part) or (part,)]
        return next(choice for choice in choices if choice != default)
    return WORDS[option.name]


@pytest.mark.full
@pytest.mark.parametrize("family", SMALL)
def test_every_option_of_a_policy_is_taken_as_typed_and_played(family: str) -> None:
    typed = []
    for name, entry in entries("policy").items():
        if entry.family == family:
            types = types_of(factory) if is_dataclass(factory := entry.load()) else {}
            for option in inspect.signature(factory).parameters.values():
                if option.name not in entry.preset:
                    kind = types.get(option.name, option.annotation)
                    value = another(option.replace(annotation=kind))
                    typed.append(f"{name}:{option.name}={value}")
                    made = create("policy", typed[-1])
                    assert getattr(made, option.name, value) == value, typed[-1]
    few = ["--slots", "6", "--seeds", "1", "--comparators", "none", "--jobs", "1"]
    done = CliRunner().invoke(app, ["compare", SMALL[family], "--policies", ",".join(typed), *few])
    assert done.exit_code == 0, done.exception
    assert "nan" not in done.stdout.split()


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
@pytest.mark.parametrize("log", LOGS)
def test_every_three_parts_meet_on_every_log_under_every_command(
    played: Played, log: str, command: Callable[..., list[str]]
) -> None:
    meet = (of for *of, on, by in triples() if (on, by) == (log, command))
    names = [*WHOLE, *(composed(*of) for of in meet)]
    by_one = command in (forecast, tune)  # these play one name, and many futures of it
    if by_one and "GANGWISE_EXHAUSTIVE" not in os.environ:
        names = names[:: 40 if log in ("kueue", "pods") else 8]
    each = 1 if by_one else 40
    for i in range(0, len(names), each):
        played.check_all(log, names[i : i + each], command)


SHADOWED = [composed(*of, "", "") for of in covering(2, *FACTORS[:3])]


@pytest.mark.full
@pytest.mark.parametrize("part", range(6))
def test_the_live_service_takes_every_scheduler(part: int, tmp_path: Path) -> None:
    for name in [*WHOLE, *SHADOWED][part::6]:
        typed = ["serve", "--engine", "local", "--shadow", "--scheduler", name, "--seconds", ".5"]
        done = CliRunner().invoke(app, [*typed, "--state", str(tmp_path / "state")])
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        if done.exit_code:
            assert isinstance(done.exception, GangwiseError), (name, repr(done.exception))
            reason = str(done.exception)  # a part, or what only a simulation knows
            assert any(word in reason for word in (*re.split("[+:]", name), "true rates")), name
