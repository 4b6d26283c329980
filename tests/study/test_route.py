"""Routes between clusters, against simulations of each cluster by itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import GangwiseError, ScenarioError
from gangwise.core.registry import create
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.report.answers import route_sheet
from gangwise.study.replay_scenario import only_jobs
from gangwise.study.route import (
    Clusters,
    Emptiest,
    FirstToStart,
    Forecast,
    Home,
    Route,
    merged,
    play_routes,
)
from gangwise.study.statistics import estimate_text


def logs(seed: int, largest: int = 6, count: int = 60) -> list[tuple[Jobs, Nodes]]:
    rng, drawn = np.random.default_rng(seed), []
    for cores in (8, 6):
        run = np.round(rng.lognormal(5, 1, count)) + 1.0
        jobs = Jobs.of(
            submit=np.sort(rng.integers(0, 6000, count)).astype(float),
            run=run,
            tasks=rng.integers(1, largest + 1, count),
            limit=run * rng.integers(1, 4, count),
            user=[f"u{u}" for u in rng.integers(0, 4, count)],
        )
        drawn.append((jobs, Nodes.pool(cores)))
    return drawn


def clusters_of(seed: int, scheduler: str = "fcfs+easy", speeds: Any = (), **more: Any) -> Clusters:
    drawn = logs(seed, **more)
    jobs, home = merged(drawn)
    return Clusters(jobs, home, [nodes for _, nodes in drawn], scheduler, speeds)


def test_a_choice_by_topology_is_refused() -> None:
    with pytest.raises(ScenarioError, match="tas-required"):
        clusters_of(0, "fcfs+easy+tas-required")


class Odd(Route):
    """Of one's own: every other job goes elsewhere, if it can."""

    def choose(self, job: int, view: Any) -> int:
        wanted = job % 2
        return wanted if view.able[wanted] else int(view.able.argmax())


@pytest.mark.parametrize("route", [Home(), Emptiest(), Odd(), Forecast(), Forecast("requested")])
@pytest.mark.parametrize("scheduler", ["fcfs+easy", "sjf+easy"])
def test_each_cluster_plays_its_jobs_as_if_by_itself(route: Route, scheduler: str) -> None:
    speeds = 1.0, 1.6
    for seed in range(3):
        clusters = clusters_of(seed, scheduler, speeds, largest=8)
        places = clusters.play(route)
        assert places.min() >= 0
        waited, taken = clusters.times(places)
        assert waited.max() > 0
        for c, speed in enumerate(speeds):
            jobs, mine = clusters.jobs, places == c
            own = only_jobs(replace(jobs, run=jobs.run / speed, limit=jobs.limit / speed), mine)
            alone = simulate_jobs(own, clusters.tables[c].nodes, scheduler, engine="plain")
            np.testing.assert_allclose(alone.start - own.submit, waited[mine], atol=1e-6)
            np.testing.assert_allclose(alone.end - own.submit, taken[mine], atol=1e-6)


class Asks(Route):
    """Notes what is foreseen, and sends jobs by turns."""

    def __init__(self, level: Any) -> None:
        self.level, self.found, self.places = level, {}, {}

    def choose(self, job: int, view: Any) -> int:
        start, length = view.foresee(self.level)
        self.found[job] = start.copy(), length.copy()
        self.places[job] = Odd().choose(job, view)
        return self.places[job]


@pytest.mark.parametrize("level", ["true", "requested"])
def test_a_forecast_is_the_start_if_no_other_job_comes(level: str) -> None:
    """Against a simulation of the jobs sent there before, in which the rest does not come."""
    clusters = clusters_of(7, "fcfs+easy")
    route, jobs = Asks(level), clusters.jobs
    places = clusters.play(route)
    played, checked = clusters.times(places)[1] + jobs.submit, 0
    for j, (start, length) in route.found.items():
        for c in range(2):
            if not clusters.able[c, j]:
                assert start[c] == np.inf
                continue
            rows = np.arange(len(jobs))
            before = (rows == j) | ((rows < j) & (places == c))
            run = jobs.run if level == "true" else jobs.limit
            assert length[c] == pytest.approx(run[j])
            # What has ended by then has ended as it did, not as was asked for.
            ended = played <= jobs.submit[j]
            known = only_jobs(replace(jobs, run=np.where(ended, jobs.run, run)), before)
            alone = simulate_jobs(known, clusters.tables[c].nodes, "fcfs+easy", engine="plain")
            assert start[c] == pytest.approx(alone.start[-1])
            checked += start[c] > jobs.submit[j]
    assert checked > 20


def test_the_first_to_start_is_one_queue_where_any_core_will_do() -> None:
    """Jobs of one task, first come, first served: two clusters are one of all cores."""
    clusters = clusters_of(3, "fcfs+none", largest=1, count=150)
    places = clusters.play(FirstToStart())
    waited, _ = clusters.times(places)
    one = simulate_jobs(clusters.jobs, Nodes.pool(14), "fcfs+none", engine="plain")
    np.testing.assert_allclose(waited, one.start - clusters.jobs.submit)
    assert {*places.tolist()} == {0, 1}
    assert waited.max() > 0


def test_emptiest_and_forecast_by_hand() -> None:
    jobs = Jobs.of(submit=[0, 1, 2, 3], run=[100, 50, 10, 10], tasks=[2, 2, 2, 1], id=[*"abcd"])
    idle = Jobs.of(submit=[0], run=[1], tasks=[1], id=["x"])
    both, home = merged([(jobs, Nodes.pool(2)), (idle, Nodes.pool(2))])
    clusters = Clusters(both, home, [Nodes.pool(2), Nodes.pool(2)], "fcfs+none")
    order = [str(name) for name in clusters.jobs.id]
    found = dict(zip(order, clusters.play(Forecast("true")).tolist()))
    # x ends before b comes; c waits less behind b, which ends at 51, and so does d.
    assert (found["0:a"], found["0:b"], found["0:c"], found["0:d"]) == (0, 1, 1, 1)
    found = dict(zip(order, clusters.play(Emptiest()).tolist()))
    assert (found["0:a"], found["0:b"], found["0:c"]) == (0, 1, 0)


def swf(path: Path, seed: int, cores: int) -> str:
    rng, lines = np.random.default_rng(seed), [f"; MaxProcs: {cores}"]
    submit = np.sort(rng.integers(0, 4 * 7 * 86400, 300))
    for j, s in enumerate(submit.tolist(), 1):
        run, tasks = int(rng.lognormal(9, 1.5)) + 1, int(rng.integers(1, cores + 1))
        lines.append(
            f"{j} {s} -1 {run} {tasks} -1 -1 {tasks} {2 * run} -1 1 {j % 5} 1 -1 -1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_results_have_every_route_and_hindsight_is_best(tmp_path: Path) -> None:
    sources = swf(tmp_path / "a.swf", 1, 16), swf(tmp_path / "b.swf", 2, 8)
    found = play_routes(sources, (), "sjf+easy", (), 5, parts=2)
    best = found.numbers["hindsight"][:, 0]
    assert best.shape == (2,)
    assert {"forecast", "p90", "home", "emptiest", "first-to-start"} < set(found.numbers)
    assert all((table[:, 0] >= best - 1e-12).all() for table in found.numbers.values())
    assert found.numbers["home"][:, 2].max() < found.numbers["forecast"][:, 2].max()
    shown = dict(route_sheet(found, ["a.swf", "b.swf"]).rows)
    home = found.numbers["home"].mean(axis=0)
    at_home = [cell.value for cell in shown["home"]]
    del at_home[2]  # above hindsight
    assert np.allclose(at_home, [*home[:2], 100 * home[2], *home[3:]])
    assert shown["hindsight"][2].value == 0
    assert found.as_dict()["routes"]["home"]["regret"]["mean"] >= 0


@pytest.mark.parametrize(
    ("name", "message"),
    [("nearest", "no route"), ("forecast:level=2.5", "between 0 and 1"), ("home:x=1", "home")],
)
def test_a_wrong_route_is_refused(name: str, message: str) -> None:
    with pytest.raises(GangwiseError, match=message):
        create("route", name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--route", "home"], "give two logs or more"),
        (["B"], "give two logs or more and the routes"),
        (["B", "--route", "home", "--seeds", "2"], "drop --as, --seeds"),
        (["B", "--route", "home", "--world", "unlike"], "drop world"),
        (["B", "--route", "home", "--set", "speeds=(1,-1)"], "a positive one for each"),
        (["B", "--route", "home", "--policies", "fcfs,sjf"], "one scheduler"),
        (["B", "--route", "home", "--policies", "fcfs+easy+learned"], "take fcfs+easy"),
        (["B", "--route", "nearest"], "no route named 'nearest'"),
    ],
)
def test_what_cannot_be_played_is_said(words: list[str], message: str, tmp_path: Path) -> None:
    logs = {"B": swf(tmp_path / "b.swf", 2, 8)}
    first = swf(tmp_path / "a.swf", 1, 16)
    done = CliRunner().invoke(app, ["replay", first, *(logs.get(word, word) for word in words)])
    assert done.exit_code != 0
    assert message in " ".join(f"{done.output} {done.exception}".split())


def test_the_command_prints_a_table_with_the_jobs_of_each_log(tmp_path: Path) -> None:
    sources = swf(tmp_path / "a.swf", 1, 16), swf(tmp_path / "b.swf", 2, 8)
    settings = ["--route", "home,forecast", "--set", "tries=1", "--set", "first=80"]
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["replay", *sources, *settings, "--out", str(out)])
    assert done.exit_code == 0, done.output
    routes = json.loads((out / "routes.json").read_text(encoding="utf-8"))["routes"]
    home, ahead = (routes[name]["completion"][0] for name in ("home", "forecast"))
    text = " ".join(re.sub(r"<[^>]*>", " ", (out / "routes.html").read_text("utf-8")).split())
    change = 100 * (ahead / home - 1)
    better = f"Route forecast finishes jobs {-change:.1f} % sooner than home, which may be chance"
    assert (better if change < 0 else "No route finishes jobs sooner") in text
    for word in ("hindsight", "forecast", "jobs of", "b.swf", "data are everywhere"):
        assert word in " ".join(done.output.split())


@pytest.mark.full
@pytest.mark.parametrize(("speeds", "column"), [((), 1), ((1.0, 0.7), 3)])
def test_the_table_of_the_page_is_what_is_played(
    speeds: tuple[float, ...], column: int, traces: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/route.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.split("|")[1:]] for line in page.splitlines()]
    # All of them: the best choice in hindsight is looked for from the best that was played.
    rows = {row[0].strip("`"): row[column] for row in cells if len(row) == 5 and "±" in row[1]}
    logs = [traces / "swf" / name for name in ("KTH-SP2.swf.gz", "NASA-iPSC-1993-3.1-cln.swf.gz")]
    about = {"load": 0.9, "overestimate": 5.0, "parts": 8}
    played = play_routes([*map(str, logs)], [*rows], speeds=speeds, **about)
    names = [name for name in played.numbers if name != "hindsight"]
    assert {name: estimate_text(played.regret(name), 2, True) for name in names} == rows
