"""The auditor finds every fault that is planted, and none in right schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gangwise.jobs import Conditions, Jobs, Node, Nodes, Options, simulate_jobs
from gangwise.jobs.audit import audit
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.scheduler import create_scheduler
from gangwise.sites.site import CapRule, ClosedHours, Rules, Site
from tests.jobs.middle import MiddleCase, SiteCase

JOBS = Jobs.of(
    #       0   1   2   3   4   5   6
    submit=[0, 1, 2, 3, 20, 21, 22],
    run=[10, 10, 5, 30, 4, 4, 4],
    tasks=[3, 4, 1, 1, 1, 1, 2],
    limit=[10, 12, 5, 30, 9, 4, 4],
    per_node=[0, 0, 0, 0, 0, 0, 1],
    constraint=[{}, {}, {}, {}, {"rack": "b"}, {}, {}],
    after={5: [4]},
)
NODES = Nodes.of([Node("a", {"cpu": 2}, {"rack": "a"}), Node("b", {"cpu": 2}, {"rack": "b"})])
GIVEN = Conditions(downs=[(60.0, 0)], ups=[(70.0, 0)], cancels=[(80.0, 3)])
KEPT = Options(enforced=True)


def played(name: str = "fcfs+easy+first-fit") -> Outcome:
    return Outcome.of(simulate_jobs(JOBS, NODES, name, GIVEN, KEPT), name)


def changed(outcome: Outcome, job: int, **columns: Any) -> Outcome:
    """With other pieces of a job, and its times as these say."""
    p = outcome.pieces
    assert p is not None
    mine, rest = np.flatnonzero(p.job == job), np.flatnonzero(p.job != job)
    size = np.size(columns.get("node", mine))
    new = {}
    for name in ("job", "node", "tasks", "begin", "end", "why"):
        own = columns.get(name, np.resize(getattr(p, name)[mine], size))
        new[name] = np.concatenate([getattr(p, name)[rest], np.broadcast_to(own, size)])
    start, end = outcome.start.copy(), outcome.end.copy()
    start[job], end[job] = new["begin"][-1], new["end"][-1]
    return replace(outcome, pieces=replace(p, **new), start=start, last_start=start, end=end)


# Right: jobs 0 and 2 run from 0 and 2, job 1 from 10, job 3 from 3 would delay it: from 20.
FAULTS: dict[str, tuple[int, dict[str, Any]]] = {
    "gang": (0, {"tasks": [2], "node": [0]}),
    "per node": (6, {"node": [1], "tasks": [2]}),
    "label": (4, {"node": [0]}),
    "devices": (1, {"begin": 9.0, "end": 19.0}),
    "submission": (2, {"begin": 1.0, "end": 6.0}),
    "dependency": (5, {"begin": 21.0, "end": 25.0}),
    "node": (6, {"begin": 61.0, "end": 65.0}),
    "withdrawn": (3, {"begin": 90.0, "end": 120.0}),
    "limit": (2, {"end": 9.0}),
    "overrun": (4, {"end": 28.0}),
    "killed": (4, {"end": 22.0}),
    "idle": (1, {"begin": 15.0, "end": 25.0}),
    "easy": (3, {"begin": 7.0, "end": 37.0}),
}


def test_a_right_schedule_has_no_findings():
    found = audit(played(), create_scheduler("fcfs+easy+first-fit"), GIVEN, KEPT)
    assert found.findings == []
    assert (found.starts, found.instants) == (7, found.of_instants)
    assert found.line.startswith("audited: 7 starts")


@pytest.mark.parametrize("rule", FAULTS)
def test_a_planted_fault_is_found(rule):
    job, columns = FAULTS[rule]
    wrong = changed(played(), job, **columns)
    found = audit(wrong, create_scheduler("fcfs+easy+first-fit"), GIVEN, KEPT)
    assert found.counts.get(rule), (rule, [str(f) for f in found.findings])
    assert any(f.rule == rule and f.text for f in found.findings)


def test_faults_of_the_queue_and_of_promises_are_found():
    scheduler = create_scheduler("fcfs+none+first-fit")
    found = audit(played(), scheduler, GIVEN, KEPT)
    assert found.counts == {"order": 1}  # job 2 passed job 1
    assert (found.findings[0].job, found.findings[0].time) == ("2", 2.0)
    # Twice at once: a second attempt of job 0 while the first one runs.
    right = played()
    p = right.pieces
    mine = np.flatnonzero(p.job == 0)[:1]
    twice = {n: np.concatenate([getattr(p, n), getattr(p, n)[mine]]) for n in vars(p)}
    twice["begin"][-1], twice["end"][-1] = 4.0, 12.0
    assert audit(replace(right, pieces=replace(p, **twice)), None, GIVEN).counts["attempts"]
    # Promised for 10 s, started at 12 s: with nothing that could excuse it.
    jobs = Jobs.of(submit=[0, 1], run=[10, 10], tasks=[3, 4], limit=[10, 12])
    one = Outcome.of(simulate_jobs(jobs, NODES, "fcfs+easy+first-fit"), "x")
    late = changed(one, 1, begin=12.0, end=22.0)
    scheduler = create_scheduler("fcfs+conservative+first-fit")
    assert audit(one, scheduler, promised=np.array([np.inf, 10.0])).findings == []
    scheduler = create_scheduler("fcfs+easy+first-fit")
    found = audit(late, scheduler, promised=np.array([np.inf, 10.0]))
    assert set(found.counts) == {"promise", "idle"}


def test_what_is_recorded_is_audited_without_nodes():
    right = played()
    recorded = replace(right, pieces=None)
    found = audit(recorded, create_scheduler("fcfs+easy+first-fit"))
    assert found.counts == {}
    assert found.skipped == {"where jobs ran is not known": 1}
    start = right.start.copy()
    start[1] -= 8.0
    early = replace(recorded, start=start, last_start=start)
    assert set(audit(early).counts) == {"devices"}


def test_right_schedules_of_random_cases_have_no_findings():
    """The count of instants is kept up: an auditor that looks at nothing finds nothing."""
    instants = 0
    for seed in range(30):
        case = MiddleCase(seed)
        schedule = case.played()
        found = audit(
            Outcome.of(schedule, ""),
            case.scheduler(),
            case.conditions,
            case.options,
            schedule.reserved,
            instants=60,
        )
        assert found.findings == [], (seed, case.names, [str(f) for f in found.findings[:3]])
        instants += found.instants
    assert instants > 400


def audited(case: SiteCase, schedule, site: Site, rules: Rules | None = None):
    _, _, conditions = site.placed(case.jobs, case.nodes, case.conditions)
    options = (site if rules is None else Site(rules)).options(case.options)
    outcome = Outcome.of(schedule, "")
    return audit(outcome, case.scheduler(), conditions, options, schedule.reserved, instants=60)


def test_right_schedules_of_sites_have_no_findings_and_wrong_ones_have():
    instants, beyond, elsewhere, shut = 0, 0, 0, 0
    for seed in range(0, 92, 4):
        case = SiteCase(seed)
        if case.size > 60:
            continue
        site, schedule = Site(case.rules), case.played()
        found = audited(case, schedule, site)
        assert found.findings == [], (seed, case.names, [str(f) for f in found.findings[:3]])
        instants += found.instants
        # The same schedule under a cap that it did not know, and its jobs in another pool.
        cap = CapRule(scope="user", of="jobs", most=1)
        more = case.rules.model_copy(update={"cap": (cap,)})
        beyond += audited(case, schedule, site, more).counts.get("cap", 0)
        hours = (ClosedHours(hours=("Mon 00:00:05-00:02:00",), longer_than=3),)
        more = case.rules.model_copy(update={"closed": hours})
        shut += audited(case, schedule, site, more).counts.get("hours", 0)
        if len(case.rules.pool) > 1:
            shapes = schedule.jobs.shapes
            names = [pool.name for pool in case.rules.pool]
            moved = tuple(s._replace(pool=names[0] if s.pool else "") for s in shapes)
            other = replace(schedule, jobs=replace(schedule.jobs, shapes=moved))
            elsewhere += audited(case, other, site).counts.get("label", 0)
    assert instants > 70
    assert min(beyond, elsewhere, shut) > 50


def test_verify_audits_a_replay_and_names_runs_of_an_older_engine(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from gangwise.cli import app
    from gangwise.core import registry
    from gangwise.study.replay import replay

    old = registry._entries["scheduler"][registry.ANY]
    monkeypatch.setitem(registry._entries["scheduler"], registry.ANY, replace(old, revision=5))
    replay("twin:alibaba-gpu-v2023", "fcfs+easy+best-fit", out=tmp_path, first=60)
    monkeypatch.undo()
    found = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert f"1 run was played by Composed of revision 5; it is at {old.revision}" in found.output
    assert "fcfs+easy+best-fit, seed 0: audited: " in found.output
    # The same folder goes on with the engine of today, and plays the run again.
    replay("twin:alibaba-gpu-v2023", "fcfs+easy+best-fit", out=tmp_path, first=60)
    found = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert "were played by" not in found.output
