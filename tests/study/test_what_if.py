"""What if: changes of a site's rules on the same jobs, against runs put together by hand."""

from __future__ import annotations

import html
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import GangwiseError, ScenarioError
from gangwise.jobs import Conditions, Jobs, Node, Nodes, simulate_jobs
from gangwise.jobs.bounds import _priced, _search
from gangwise.jobs.scheduler import create_scheduler
from gangwise.report.jobs import results_of
from gangwise.report.pages import write_replay, write_report
from gangwise.sites.site import CapRule, Pool, Rules, Site
from gangwise.study.answer import CONFIGURED
from gangwise.study.changes import changed, changed_lines, changes_of
from gangwise.study.replay import Replayed, replay
from gangwise.study.replay_scenario import EVERY, ReplayScenario, bounded
from gangwise.study.statistics import change_by_blocks
from gangwise.study.sweep import Workers
from gangwise.study.tune import tune
from gangwise.study.what_if import (
    CurrentRules,
    Gate,
    broken,
    capacity,
    lines_of,
    marginal_worth,
    what_if,
)
from tests.study.test_output import checked

WEEK = 7 * 86400
SITE = """
[[pool]]
name = "1"
nodes = "p[1-24]"
most_time = 90000
[[pool]]
name = "2"
nodes = "p[17-32]"
[[cap]]
scope = "user"
of = "cpu"
most = 16
"""


def log_of(folder: Path, jobs: int = 200, seed: int = 3) -> Path:
    """An SWF of ten weeks on 32 processors, with two partitions, groups as accounts, and limits."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 10 * WEEK, jobs))
    run = rng.integers(3600, 86400, jobs)
    size = 2 ** rng.integers(0, 5, jobs)
    rows = ["; MaxProcs: 32"]
    for i in range(jobs):
        user, queue = rng.integers(1, 9), rng.integers(1, 3)
        rows.append(
            f"{i + 1} {submit[i]} {rng.integers(0, 9000)} {run[i]} {size[i]} -1 -1 {size[i]} "
            f"{2 * run[i]} -1 1 {user} {user % 3 + 1} 2 {queue} -1 -1 -1"
        )
    path = folder / "log.swf"
    path.write_text("\n".join(rows) + "\n")
    (folder / "site.toml").write_text(SITE)
    return path


@pytest.fixture
def asked(tmp_path: Path) -> CurrentRules:
    source = str(log_of(tmp_path))
    return CurrentRules(source, {"site": str(tmp_path)}, out=tmp_path / "out", workers=Workers(1))


CHANGES = [
    "pool.1.most_time=inf,cap.1.most*=2",
    "nodes.all+=8",
    "nodes.2-=4,pool.2.most_nodes=12",
    "scheduler=sjf+easy+best-fit",
    "load=2.5",
    'cap+={scope="account",of="jobs",most=2},cap-=1',
]


def by_hand(asked: CurrentRules, change: str) -> np.ndarray:
    """Starts under a change, from a site and a cluster written out here."""
    base = Replayed.open(asked.out).scenario
    jobs, cap = base.jobs, CapRule(scope="user", of="cpu", most=16)
    one = Pool(name="1", nodes="p[1-24]", most_time=90000)
    two = Pool(name="2", nodes="p[17-32]")
    many, scheduler = 32, asked.scheduler
    if change == CHANGES[0]:
        one, cap = Pool(name="1", nodes="p[1-24]"), CapRule(scope="user", of="cpu", most=32)
    if change == CHANGES[1]:  # the last processor is of pool 2
        many, two = 40, Pool(name="2", nodes="p[17-40]")
    if change == CHANGES[2]:
        many, two = 28, Pool(name="2", nodes="p[17-28]", most_nodes=12)
    if change == CHANGES[3]:
        scheduler = "sjf+easy+best-fit"
    if change == CHANGES[4]:
        work = float((jobs.tasks * jobs.run).sum()) / 32
        span = float(jobs.submit[-1] - jobs.submit[0])
        first = jobs.submit[0]
        jobs = replace(jobs, submit=(jobs.submit - first) * (work / span / 2.5))
    if change == CHANGES[5]:
        cap = CapRule(scope="account", of="jobs", most=2)
    site = Site(Rules(pool=(one, two), cap=(cap,)))
    return simulate_jobs(jobs, Nodes.pool(many), scheduler, site=site).start - jobs.submit


def test_each_change_is_the_run_that_its_own_site_would_give(asked: CurrentRules) -> None:
    found = what_if(asked, CHANGES)
    assert found.schedulers == [CONFIGURED, *CHANGES]
    starts = []
    for name in found.schedulers:
        waited = found.outcomes[name][0].waiting
        np.testing.assert_allclose(waited, by_hand(asked, name), atol=1e-6, equal_nan=True)
        starts.append(waited.tobytes())
    assert len(set(starts)) == len(starts)  # every one of them changes something


def test_a_what_if_goes_on_where_it_was_and_opens_again(asked: CurrentRules) -> None:
    what_if(asked, CHANGES[:2])
    runs = Path(asked.out) / "runs"
    before = {path.name: path.stat().st_mtime_ns for path in runs.iterdir()}
    found = what_if(asked, CHANGES[:3])
    after = {path.name: path.stat().st_mtime_ns for path in runs.iterdir()}
    assert len(before) == 3
    assert len(after) == 4
    assert before.items() <= after.items()
    opened = Replayed.open(asked.out)
    for name in found.schedulers:
        for ours, theirs in zip(found.outcomes[name], opened.outcomes[name]):
            assert np.array_equal(ours.start, theirs.start, equal_nan=True)
            assert np.array_equal(ours.nodes.capacity, theirs.nodes.capacity)
        assert not any(report.counts for report in opened.audits(name, 50))
    page = write_report(asked.out).read_text()
    assert "Who wins and who pays, by partition" in page
    assert "files that would change" in page


def test_who_wins_and_who_pays_is_a_mean_over_jobs_with_its_interval_over_weeks(asked) -> None:
    found = what_if(asked, CHANGES[1:2]).compared()
    base, ours = (found.outcomes[name][0] for name in (CONFIGURED, CHANGES[1]))
    group = base.jobs.user % 3
    for g in range(3):
        of = (group == g) & base.started & ours.started
        more = (ours.waiting - base.waiting)[of]
        got = found.waits_more(CHANGES[1], [group], g)
        assert got.mean == pytest.approx(more.mean())
        # a jackknife over weeks, which knows nothing of the series, is as wide but for a factor
        week = (base.jobs.submit[of] - base.jobs.submit.min()) // WEEK
        left = [more[week != w].mean() for w in np.unique(week)]
        half = 2.2 * np.sqrt((len(left) - 1) * np.var(left))
        assert half / 3 < got.half < 3 * half
    shifted = change_by_blocks([2.0] * 9, [1.0] * 9)
    assert shifted.half == 0


def test_jobs_that_a_change_shuts_out_are_named_and_it_is_not_called_better(
    asked: CurrentRules,
) -> None:
    found = what_if(asked, ["cap.1.most=2"]).compared()
    (name,) = found.others
    jobs = found.first.jobs
    shut = int((jobs.tasks > 2).sum()) - int((found.first.phase == 6).sum())
    out = found.first.started & ~found.outcomes[name][0].started
    assert found.refused(name)[0] == int(out.sum()) > 50
    assert shut > 0
    assert found.verdict(name) != "better"
    assert "Can never start, and are in no mean:" in found.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("pool.3.most_time=1d", "pool has no '3'; it has 1, 2"),
        ("pool.1.most_tme=1d", "pool.1 has no 'most_tme'; it has"),
        ("pol.1.most_time=1d", "the site file has no 'pol'; it has pool"),
        ("cap.2.most=1", "cap has no '2'; it has 1"),
        ("cap.1.most=many", "change cap.1.most=many: many: give seconds, or a time"),
        ("cap.1.of=gpus", "named 'gpus'"),
        ("cap.1.most=-1", "[cap] 1: most: must be greater than or equal to 0, not -1"),
        ("cap.1.scope=usr", "[cap] 1: scope: must be 'user'"),
        ("nodes.h100+=8", "nodes has no 'h100'; it has all, 1, 2"),
        ("nodes.all-=40", "[nodes]: all: must be greater than or equal to 0, not -8"),
        ("cap.1.most.x=1", "cap.1.most is 16.0, which has no parts"),
        ("pool.1.name+=1", "pool.1.name is '1', no number; write ="),
        ("pool.2.most_time+=1h", "pool.2.most_time is not set; write = to set it"),
        ("scheduler=fcfs+esay", "esay"),
        ("load=much", "give seconds"),
        ("priority.agee=1000", "[priority]: there is no setting named 'agee'; did you mean age"),
        ("priority.age+=1000", "priority.age is None, no number; write ="),
        ("most_time", "write PATH=VALUE"),
        ("", "write PATH=VALUE"),
    ],
)
def test_a_change_of_what_is_not_there_names_what_is(
    asked: CurrentRules, change: str, said: str
) -> None:
    with pytest.raises(GangwiseError) as error:
        what_if(asked, [change])
    assert said in str(error.value)
    assert not Path(asked.out).exists()  # nothing was played


def test_a_change_of_a_document_is_undone_by_its_opposite() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        names = [f"n{i}" for i in range(rng.integers(1, 5))]
        site = {
            "pool": [{"name": n, "most": float(rng.integers(1, 99)), "of": []} for n in names],
            "deep": {"er": {"a.b": int(rng.integers(1, 99))}},
        }
        name, by = str(rng.choice(names)), int(rng.integers(1, 9))
        there = changed(site, changes_of(f'pool.{name}.most+={by},deep.er."a.b"-={by}'))
        assert there != site
        lines = changed_lines(site, there)
        assert {line[0] for line in lines if "most" in line} == {"-", "+"}
        back = changed(there, changes_of(f'pool.{name}.most-={by},deep.er."a.b"+={by}'))
        assert back == site
        assert changed_lines(site, back) == []
        longer = changed(site, changes_of('pool+={name="x",most=1.0}'))
        assert len(longer["pool"]) == len(names) + 1
        assert changed(longer, changes_of("pool-=x")) == site


def test_lines_of_kueue_that_would_change_are_paths_that_change_them_back() -> None:
    groups = [{"flavors": [{"name": "a100", "quotas": {"gpu": {"nominal": 8.0}}}]}]
    site = {
        "cap": [{"most": 2.0}],
        "kueue": {"queues": [{"name": "x", "groups": groups}, {"name": "y", "weight": 1.0}]},
    }
    path = "kueue.queues.x.groups.1.flavors.a100.quotas.gpu.nominal"
    there = changed(site, changes_of(f"{path}+=4,kueue.queues.y.weight=3.0,cap.1.most=9.0"))
    lines = changed_lines(site, there)
    assert lines == [
        f"- {path} = 8", f"+ {path} = 12",
        "- kueue.queues.y.weight = 1", "+ kueue.queues.y.weight = 3",
        "  [[cap]]", "- most = 2", "+ most = 9",
    ]  # fmt: skip
    back = changes_of(",".join(line[2:] for line in lines[:4] if line[0] == "-"))
    assert changed(there, back)["kueue"] == site["kueue"]


def test_lines_of_the_site_file_that_would_change(asked: CurrentRules) -> None:
    found = lines_of(what_if(asked, [CHANGES[0], CHANGES[2], CHANGES[3]]))
    assert found[CHANGES[0]] == [
        "  [[pool]]", "- most_time = 90000", "  [[cap]]", "- most = 16", "+ most = 32",
    ]  # fmt: skip
    assert "+ 2 = 12" in found[CHANGES[2]]
    assert "+ most_nodes = 12" in found[CHANGES[2]]
    assert found[CHANGES[3]] == []


def test_kinds_of_nodes_are_copied_with_their_pools_and_rates_or_taken_away() -> None:
    nodes = Nodes.of(
        [Node(f"a{i}", {"gpu": 4}, {"gpu": "A"}) for i in range(3)]
        + [Node(f"b{i}", {"gpu": 8}, {"gpu": "B"}, 2.0) for i in range(2)]
    )
    jobs = Jobs.of(submit=[0.0], run=[1.0], tasks=[1], demand={"gpu": 1})
    pool = Pool(name="mix", nodes="a[1-2],b[0-1]")
    hidden = Conditions(rates=np.array([[1.0, 1.0, 1.0, 2.0, 3.0]]), downs=[(5.0, 0), (6.0, 4)])
    site = Site(Rules(pool=(pool,), nodes={"A": 1, "B": 4}))
    assert site.counts(nodes) == {"mix": 4, "A": 1, "B": 4}
    _, made, then = site.placed(jobs, nodes, hidden)
    assert made.names == ("a0", "b0", "b1", "b1+3", "b1+4")
    assert made.pools["mix"] == (1, 2, 3, 4)
    assert made.rates == (1.0, 2.0, 2.0, 2.0, 2.0)
    assert then.rates.tolist() == [[1.0, 2.0, 3.0, 3.0, 3.0]]
    assert list(then.downs) == [(5.0, 0), (6.0, 2)]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("waiting.p95 > +2 %", ("waiting.p95", True, 2.0, "%")),
        ("waiting.p95<1h30m", ("waiting.p95", False, 5400.0, "")),
        ("waiting.mean >= -10m", ("waiting.mean", True, -600.0, "+")),
        ("killed > 0", ("killed", True, 0.0, "")),
        ("worst users < -5%", ("worst users", False, -5.0, "%")),
    ],
)
def test_conditions_are_read(text: str, means: tuple) -> None:
    assert Gate.of(text)[1:] == means


def test_a_condition_speaks_of_the_summary_of_each_change(asked: CurrentRules) -> None:
    found = what_if(asked, [CHANGES[1], CHANGES[4]]).compared()
    (now,), (more,), (load,) = (found.summaries[name] for name in found.outcomes)
    assert more["waiting.p95"] < now["waiting.p95"] < load["waiting.p95"]
    for than in (0, 20, 200, 2000):
        rise = 100 * (load["waiting.p95"] / now["waiting.p95"] - 1)
        assert bool(broken(found, [Gate.of(f"waiting.p95 > +{than} %")])) == (rise > than)
        apart = load["waiting.p95"] - now["waiting.p95"]
        assert bool(broken(found, [Gate.of(f"waiting.p95 > +{than}h")])) == (apart > 3600 * than)
        itself = min(more["waiting.p95"], load["waiting.p95"])
        assert bool(broken(found, [Gate.of(f"waiting.p95 < {than}h")])) == (itself < 3600 * than)
    for bad in ("waiting.p95", "waiting.p95 = 3", "waiting.p95 > +2 parsecs", "> 3"):
        with pytest.raises(ScenarioError, match="write METRIC"):
            Gate.of(bad)


def test_an_unknown_metric_is_refused_before_anything_is_played(asked: CurrentRules) -> None:
    gate = Gate.of("wait.p95 > 1h")
    said = r"'wait.p95 > 1h': there is no metric named 'wait.p95'; did you mean waiting.p95"
    for ask in (
        lambda: what_if(asked, CHANGES[:1], gates=[gate]),
        lambda: capacity(asked, gate, []),
    ):
        with pytest.raises(ScenarioError, match=said):
            ask()
    pytest.importorskip("optuna")
    given, ranges = {"source": asked.source, "parts": 4, **asked.settings}, ["cap.1.most=2:64:int"]
    with pytest.raises(ScenarioError, match="metric"):
        tune("replay", asked.scheduler, ranges, asked.out, given, metric="wait.p95")
    assert not Path(asked.out).exists()
    what_if(asked, CHANGES[:1], gates=[Gate.of("goodput.cpu < 0.1")])


def test_money_is_price_times_devices_times_hours(asked: CurrentRules) -> None:
    found = what_if(replace(asked, prices={"cpu": 0.5}), [CHANGES[1], "cap.1.most=8"])
    results = results_of(found)
    (money,) = [sheet for sheet in results.sheets if sheet.title == "Money"]
    now, bigger, shut = (found.outcomes[name][0] for name in found.schedulers)
    rows = {name: [cell.value for cell in cells] for name, cells in money.rows}
    hours = now.makespan / 3600
    assert rows[CONFIGURED][0] == pytest.approx(0.5 * 32 * hours, abs=0.6)
    assert rows[CHANGES[1]][1] == pytest.approx(0.5 * 8 * hours)
    for name, ours in ((CHANGES[1], bigger), ("cap.1.most=8", shut)):
        longer = np.nansum(ours.waiting - now.waiting) / 3600
        assert rows[name][3] == pytest.approx(longer)
    assert rows[CHANGES[1]][3] < 0


def test_the_command_prints_why_and_exits_with_1(asked: CurrentRules) -> None:
    command = ["what-if", asked.source, "--site", asked.settings["site"], "--jobs", "1"]
    worse = [*command, "--change", "load=2.5", "--price", "cpu=0.1"]
    found = CliRunner().invoke(app, [*worse, "--fail-if", "waiting.p95 > +2 %"])
    assert found.exit_code == 1
    assert re.search(r"fails: load=2.5: waiting.p95 is \+[\d,.]+ %", found.stderr)
    assert "Who wins and who pays, by partition" in found.stdout
    assert "Money" in found.stdout
    fine = CliRunner().invoke(app, [*worse, "--fail-if", "waiting.p95 < -2 %", "--json"])
    assert fine.exit_code == 0
    told = checked(json.loads(fine.stdout))
    assert told["fails"] == []
    assert set(told["what_if"]["groups"]) == {"partition", "account", "size", "user"}


@pytest.mark.parametrize(
    "target",
    [
        "waiting.p95 < 3h",
        pytest.param("waiting.mean < 12m", marks=pytest.mark.full),
        pytest.param("waiting.p95 < 3d", marks=pytest.mark.full),  # with fewer than there are
    ],
)
def test_the_fewest_nodes_are_those_that_brute_force_finds(
    asked: CurrentRules, target: str
) -> None:
    gate = Gate.of(target)
    played, found = capacity(asked, gate, ["2", "all"])
    assert [each.kind for each in found] == ["2", "all"]
    changes = [name.split("=") for name in played.schedulers if name != CONFIGURED]
    assert changes == sorted(changes, key=lambda change: (change[0], int(change[1])))
    for each in found:
        assert each.now == {"2": 16, "all": 32}[each.kind]
        assert each.needed is not None
        near = range(max(each.needed - 8, 1), each.needed + 4)
        every = what_if(asked, [f"nodes.{each.kind}={n}" for n in near if n != each.now])
        compared, good = every.compared(), []
        for n in near:
            name = CONFIGURED if n == each.now else f"nodes.{each.kind}={n}"
            shut = n != each.now and compared.refused(name)[0] > 0
            if not shut and gate.holds(gate.of_run(compared, name).mean):
                good.append(n)
        assert min(good) == each.needed
        assert gate.holds(each.value)
        assert not gate.holds(each.one_less)
        one = f"nodes.{each.kind}={each.now + 1}"
        both = (played.outcomes[name][0].until_left for name in (CONFIGURED, one))
        assert each.played == pytest.approx(next(both) - next(both))
    # The page begins with the answer, also when it is made again from the folder.
    write_replay(played, asked.out, capacity=[each.as_dict(gate) for each in found])
    write_report(Path(asked.out))
    page = Path(asked.out, "report.html").read_text(encoding="utf-8")
    heading = html.unescape(page.split("<h1>")[1].split("</h1>")[0])
    assert f"{found[1].needed:,} nodes reach {target}; now there are 32" in heading


def test_what_cannot_be_reached_is_said_and_unknown_kinds_are_named(asked: CurrentRules) -> None:
    (found,) = capacity(asked, Gate.of("completion.mean < 1m"), ["all"])[1]
    assert found.needed is None
    assert found.value > 60
    with pytest.raises(ScenarioError, match="all, 1"):
        capacity(asked, Gate.of("waiting.p95 < 1h"), ["h100"])


@pytest.mark.full
def test_the_worth_of_a_node_is_what_its_prices_take_off_the_bound(asked: CurrentRules) -> None:
    found = replay(asked.source, [asked.scheduler], load=3.0)
    worth = marginal_worth(found, processors=True)["all"]
    (bound,) = found.bounds()
    assert worth > 0
    jobs = bounded(found.scenario.draw(0), found.scenario.options)
    for more in (1, 5):
        bigger = replace(jobs, capacity=jobs.capacity + more, room=jobs.room + more)
        # at the same prices the dual falls by so much
        priced = _priced(bigger, bound.prices.copy(), bound.origin, bound.period)
        same, _ = _search(priced, bigger, 0, None, None)
        assert same == pytest.approx(bound.dual - more * worth, rel=1e-6)


def test_rules_are_tuned_on_some_weeks_and_judged_on_others(
    asked: CurrentRules, tmp_path: Path
) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed")
    given = {"source": asked.source, "site": asked.settings["site"], "parts": 4}
    ranges = ["cap.1.most=4:32", "pool.2.most_nodes=8:32:int"]
    found = tune(
        "replay", asked.scheduler, ranges, tmp_path / "t", given, 4, (0, 2), (1, 3), jobs=1
    )
    assert found.metric == EVERY
    assert found.default.arguments == {"cap.1.most": 16.0, "pool.2.most_nodes": 0}
    whole = ReplayScenario(**given)
    parts = [whole.draw(seed).jobs for seed in range(4)]
    assert sum(map(len, parts)) == len(whole.jobs) == 200
    weeks = [{int(w) for w in (p.submit - whole.jobs.submit[0]) // WEEK} for p in parts]
    assert all(max(a) < min(b) for a, b in itertools.pairwise(weeks))
    for trial in found.trials:
        most, nodes = trial.arguments["cap.1.most"], trial.arguments["pool.2.most_nodes"]
        one = Pool(name="1", nodes="p[1-24]", most_time=90000)
        two = Pool(name="2", nodes="p[17-32]", most_nodes=nodes)
        cap = CapRule(scope="user", of="cpu", most=most)
        site = Site(Rules(pool=(one, two), cap=(cap,)))
        for seed, value in zip((0, 2), trial.values):
            jobs = parts[seed]
            played = simulate_jobs(jobs, Nodes.pool(32), asked.scheduler, site=site)
            last = np.nanmax(played.end)
            times = [
                (end if end == end else last + limit) - submit
                for end, limit, submit in zip(played.end, jobs.limit, jobs.submit)
            ]
            assert value == pytest.approx(sum(times) / len(times))
    for bad, said in [
        ("cap.2.most=4:32", "cap has no '2'; it has 1"),
        ("pool.2.most_nodes=8:32", "[pool] 2: most_nodes: must be a valid integer"),
    ]:
        with pytest.raises(ScenarioError) as error:
            tune("replay", asked.scheduler, [bad], tmp_path / "u", given, 2, (0,), (1,), jobs=1)
        assert said in str(error.value)


def test_the_tune_command_takes_a_log_and_its_site(asked: CurrentRules, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed")
    command = ["tune", asked.source, "--site", asked.settings["site"], "--parts", "4"]
    command += ["--range", "pool.1.most_time=90000:200000", "--trials", "3", "--jobs", "1", "--out"]
    found = CliRunner().invoke(app, [*command, str(tmp_path / "t")])
    assert found.exit_code == 0, found.output
    beside = found.stdout.splitlines()[-1]
    hours = {"min": 1 / 60, "h": 1.0, "days": 24.0}
    told = re.findall(r"(?:default|tuned|below) ([\d.]+) (min|h|days)", beside)
    # Nothing is preempted and no node fails, so that there is no need of the weaker bound.
    default, tuned, least = (float(value) * hours[unit] for value, unit in told)
    assert 0 < least <= tuned < default
    bare = CliRunner().invoke(app, ["tune", asked.source, "--range", "cap.1.most=8:32"])
    assert bare.exit_code != 0
    assert "--site FILE" in str(bare.exception)


def test_a_replay_without_changes_is_what_it_was(asked: CurrentRules) -> None:
    plain = replay(asked.source, [asked.scheduler], site=asked.settings["site"])
    found = what_if(asked, ["nodes.all+=1"])
    ours, theirs = found.outcomes[CONFIGURED][0], plain.outcomes[asked.scheduler][0]
    assert np.array_equal(ours.start, theirs.start, equal_nan=True)
    assert create_scheduler(found.scheduler_of(CONFIGURED)).backfilling == "easy"
