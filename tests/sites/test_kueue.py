"""Kueue: small cases of its documentation, their admissions worked out by hand, and bad input."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import ScenarioError
from gangwise.jobs import Group, Jobs, Node, Nodes, simulate_jobs
from gangwise.jobs.audit import audit
from gangwise.jobs.check import check_scheduler
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.model import Conditions
from gangwise.sites.kueue import Holder
from gangwise.sites.site import Site
from gangwise.study.explain import explain_job
from gangwise.study.replay import Replayed
from gangwise.study.replay_scenario import ReplayScenario

CASES = sorted(Path(__file__).with_name("kueue").glob("*.toml"))

yaml = pytest.importorskip("yaml")


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_workloads_are_admitted_when_the_documentation_says(file: Path, tmp_path: Path) -> None:
    case = tomllib.loads(file.read_text())
    (tmp_path / "queues.yaml").write_text(case["objects"])
    site = Site.read(f"kueue:{tmp_path}")
    queue, submit, run, cpus, priority, *fewest = zip(*case["jobs"])
    terms = [f"fewest={count}" for count in fewest[0]] if fewest else None
    jobs = Jobs.of(submit, run, cpus, {"cpu": 1.0}, pool=queue, priority=priority, terms=terms)
    played = simulate_jobs(jobs, Nodes.pool(100), site.scheduler, site=site)
    wanted = [np.nan if at == "never" else at for at in case["start"]]
    assert np.array_equal(played.start, wanted, equal_nan=True), (case["why"], played.start)
    had = [sum(count for _, count in played.placed(j)) for j in range(len(jobs))]
    known = {"attempts": played.attempts.tolist(), "end": played.end.tolist(), "pods": had}
    assert {name: known[name] for name in known if name in case}.items() <= case.items()
    assert not audit(Outcome.of(played, "kueue"), None, Conditions()).findings


TEAM = """
kind: ClusterQueue
apiVersion: kueue.x-k8s.io/v1beta2
metadata: {name: team-a-cq}
spec:
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: default
      resources:
      - {name: cpu, nominalQuota: 3}
      - {name: memory, nominalQuota: 36Gi}
---
kind: LocalQueue
apiVersion: kueue.x-k8s.io/v1beta2
metadata: {name: team-a-queue, namespace: team-a}
spec: {clusterQueue: team-a-cq}
"""


def at(minute: int) -> str:
    return f"2024-01-15T10:{minute:02d}:00Z"


def workload(
    name: str,
    times: tuple[int, int, int],
    priority: int = 0,
    queue: str = "team-a-queue",
    pods: tuple[int, int, int] = (3, 2, 3),
) -> dict:
    """The manifest of https://kueue.sigs.k8s.io/docs/concepts/workload: three pods of one cpu."""
    created, *since = times
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": at(minute)}
        for kind, minute in zip(("Admitted", "Finished"), since)
    ]
    requests = {"cpu": "1", "memory": "200Mi"}
    pod = {"spec": {"containers": [{"resources": {"requests": requests}}]}}
    count, fewest, had = pods
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": at(created)},
        "spec": {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": count, "minCount": fewest, "template": pod}],
        },
        "status": {
            "conditions": conditions,
            "admission": {"podSetAssignments": [{"name": "main", "count": had}]},
        },
    }


def test_a_dump_of_workloads_is_played_by_their_queue_and_priority_class(tmp_path: Path) -> None:
    """One has the quota for 20 minutes; 10000 (sample-priority) goes before the older 0."""
    site, log = tmp_path / "kueue", tmp_path / "log"
    site.mkdir(), log.mkdir()
    (site / "queues.yaml").write_text(TEAM)
    items = [
        workload("sample-job", (0, 0, 20)),
        workload("low", (1, 30, 40)),
        workload("high", (2, 20, 30), 10000),
        workload("stray", (3, 3, 4), queue="other"),
    ]
    write(log, items)
    scenario = ReplayScenario(source=str(log), site=f"kueue:{site}")
    jobs, nodes, _ = scenario.draw(0)
    assert jobs.tasks.tolist() == [3] * 4
    assert jobs.priority.tolist() == [0, 0, 10000, 0]
    played = simulate_jobs(jobs, nodes, "kueue", site=scenario.site)
    assert (played.start / 60).tolist() == [0, 30, 20, 3]
    said = "\n".join(scenario.assumed())
    assert "(team-a/other)" in said


def write(log: Path, items: list[dict]) -> None:
    capacity = {"cpu": "64", "memory": "256Gi"}
    node = {"kind": "Node", "metadata": {"name": "n"}, "spec": {}}
    items.append(node | {"status": {"allocatable": capacity}})
    (log / "workloads.json").write_text(json.dumps({"kind": "List", "items": items}))


def test_a_dump_with_fewer_pods_is_played_with_fewer_from_the_command_line(tmp_path: Path) -> None:
    """It had four of 8 pods for 20 minutes, so that all would take 10; three take 8 / 3 of them."""
    site, log, out = tmp_path / "kueue", tmp_path / "log", str(tmp_path / "out")
    site.mkdir(), log.mkdir()
    (site / "queues.yaml").write_text(TEAM)
    write(log, [workload("wide", (0, 0, 20), pods=(8, 3, 4)), workload("next", (1, 30, 40))])
    asked = ["replay", str(log), "--as", f"kueue:{site}", "--policies", "sjf+easy", "--out", out]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    replayed = Replayed.open(out)
    said = " ".join(shown.output.split())
    assert "may start with fewer tasks: under kueue they do, and take longer" in said, said
    played = replayed.outcomes["kueue"][0]
    assert played.start.tolist() == [0, 1600]
    assert played.end.tolist() == [1600, 2200]
    assert played.device_seconds[0] == pytest.approx(8 * 600 + 3 * 600)
    jobs, nodes, _ = replayed.scenarios["kueue"].draw(0)
    recorded = Outcome.recorded(jobs, nodes)
    assert recorded is not None
    assert recorded.device_seconds[0] == pytest.approx(4 * 1200 + 3 * 600)
    assert recorded.over_time("cpu", np.array([0.0, 1200, 1800])).tolist() == [4, 0]
    told = explain_job(out, "team-a/wide", "kueue")
    assert "admitted with 3 of 8 pods" in str(told.rows), told.rows
    assert played.rates.tolist() == [1, 1]


QUEUES = """
kind: List
apiVersion: v1
items:
- kind: ClusterQueue
  apiVersion: kueue.x-k8s.io/v1beta2
  metadata: {name: vision}
  spec:
    cohortName: lab
    admissionChecks: [quota]
    queueingStrategy: FIFO
    resourceGroups:
    - coveredResources: [cpu, memory, nvidia.com/gpu]
      flavors:
      - name: a100
        resources:
        - {name: cpu, nominalQuota: 500m}
        - {name: memory, nominalQuota: 36Gi}
        - {name: nvidia.com/gpu, nominalQuota: many}
- kind: LocalQueue
  apiVersion: kueue.x-k8s.io/v1
  metadata: {name: team, namespace: x}
  spec: {clusterQueue: sight}
- kind: Topology
  apiVersion: kueue.x-k8s.io/v1beta1
  metadata: {name: rack}
- kind: ResourceFlavor
  apiVersion: kueue.x-k8s.io/v1beta1
  metadata: {name: a100}
  spec: {nodeTaints: [{key: gpu}]}
"""


def test_what_is_not_modelled_unknown_or_wrong_is_named_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text(QUEUES)
    (tmp_path / "notes.txt").write_text("not read")
    site = Site.read(f"kueue:{tmp_path}")
    quotas = site.rules.kueue["queues"][0]["groups"][0]["flavors"][0]["quotas"]
    assert (quotas["mem"]["nominal"], quotas["cpu"]["nominal"]) == (36, 0.5)
    said = "\n".join(site.notes)
    for part in (
        "not modelled: admissionChecks of a ClusterQueue, queues.yaml, line 5",
        "queueingStrategy: FIFO is none of BestEffortFIFO StrictFIFO",
        "queues.yaml, line 19: nominalQuota: 'many' is no quantity; 0 is taken",
        "queues.yaml, line 20: LocalQueue v1 is read as v1beta2",
        "LocalQueue team: there is no ClusterQueue sight",
        "queues.yaml, line 24: Topology is not read: left out",
        "not modelled: nodeTaints of a ResourceFlavor, queues.yaml, line 27",
        "no Configuration of Kueue is there: fair sharing is taken to be off",
    ):
        assert part in said, said
    (tmp_path / "queues.yaml").write_text("a: [1\n")
    with pytest.raises(ScenarioError, match=r"queues\.yaml"):
        Site.read(f"kueue:{tmp_path}")
    (tmp_path / "queues.yaml").write_text("kind: ClusterQueue\n" * 0)
    with pytest.raises(ScenarioError, match="ClusterQueue"):
        Site.read(f"kueue:{tmp_path}")
    cohort = "---\nkind: Cohort\napiVersion: kueue.x-k8s.io/v1beta1\n"
    names = (
        "metadata: {name: a}\nspec: {parentName: b}\n",
        "metadata: {name: b}\nspec: {parent: a}\n",
    )
    circle = "".join(cohort + each for each in names)
    (tmp_path / "queues.yaml").write_text(QUEUES + circle)
    with pytest.raises(ScenarioError, match="itself"):
        Site.read(f"kueue:{tmp_path}")


def one_group(name: str, **quota: int) -> dict:
    flavors = [{"name": "f", "quotas": {"cpu": quota}}]
    group = {"resources": ["cpu"], "flavors": flavors}
    return {"name": name, "cohort": "all", "groups": [group]}


def test_random_cohorts_keep_to_their_quotas_and_leave_nobody_waiting_who_fits() -> None:
    """Sums over all that hold quota, at each start; and who waits then would break one."""
    checked = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        nominal, lending, borrowing = (
            rng.integers(0, 9, 3),
            rng.integers(0, 6, 3),
            rng.integers(0, 9, 3),
        )
        queues = [
            one_group(n, nominal=int(q), lending=int(l), borrowing=int(b))
            for n, q, l, b in zip("abc", nominal, lending, borrowing)
        ]
        site = Site.of({"kueue": {"queues": queues}}, "made")
        J = 60
        of, size = rng.integers(0, 3, J), rng.integers(1, 8, J)
        submit, run = np.sort(rng.integers(0, 200, J)), rng.integers(1, 40, J)
        jobs = Jobs.of(submit, run, size, {"cpu": 1.0}, pool=["abc"[q] for q in of])
        played = simulate_jobs(jobs, Nodes.pool(1000), "kueue", site=site)
        kept = np.maximum(0, nominal - lending)

        def allowed(used: np.ndarray, nominal=nominal, borrowing=borrowing, kept=kept) -> bool:
            beyond = np.maximum(0, used - kept).sum() <= (nominal - kept).sum()
            return bool(beyond and (used <= nominal + borrowing).all())

        for now in np.unique(played.start[np.isfinite(played.start)]):
            on = (played.start <= now) & (played.end > now)
            used = np.bincount(of[on], size[on], 3)
            assert allowed(used), (seed, now)
            for j in np.flatnonzero((submit <= now) & ~(played.start <= now)):
                checked += 1
                assert not allowed(used + size[j] * (np.arange(3) == of[j])), (seed, now, j)
    assert checked > 500


def test_random_pods_are_as_many_as_fit_and_take_as_long_as_their_work() -> None:
    """One queue, by sums: all pods where they fit, else the most; nobody waits whose minimum does.

    Nodes fail, so that some begin anew. Whoever runs has the same pods until its end.
    """
    fewer = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        J, quota = 60, int(rng.integers(8, 16))
        size = rng.integers(1, 2 * quota, J)
        least = np.minimum(np.maximum(1, size // rng.integers(1, 5, J)), quota)
        submit, run = np.sort(rng.integers(0, 300, J)), rng.integers(1, 40, J)
        terms = [f"fewest={count}" for count in least]
        jobs = Jobs.of(submit, run, size, {"cpu": 1.0}, pool="a", terms=terms)
        site = Site.of({"kueue": {"queues": [one_group("a", nominal=quota)]}}, "made")
        conditions = Conditions(downs=[(77.5, 0)], ups=[(90.5, 0)]) if seed % 2 else Conditions()
        played = simulate_jobs(jobs, Nodes.alike(8, {"cpu": 10}), "kueue", conditions, site=site)
        outcome = Outcome.of(played, "kueue")
        assert not audit(outcome, None, conditions).findings
        of = outcome.pieces
        assert of is not None
        had = np.zeros(J, dtype=int)
        for j, begin in zip(of.job, of.begin):
            mine = of.tasks[(of.job == j) & (of.begin == begin)].sum()
            assert had[j] in (0, mine), "a failure of a node evicts no workload"
            had[j] = mine
        fewer += int((had < size).sum())
        once = played.attempts == 1
        assert np.allclose((played.end - played.start)[once], (run * size / had)[once])
        work = outcome.device_seconds[0] - outcome.lost.sum()
        assert work == pytest.approx((run * size).sum())
        for j in np.argsort(played.start, kind="stable"):
            now = played.start[j]  # quota is held from the first start to the last end
            before = (played.start < now) | ((played.start == now) & (np.arange(J) < j))
            free = quota - had[before & (played.end > now)].sum()
            assert had[j] == min(size[j], free) >= least[j], (seed, j)
        for now in np.unique(played.start):
            free = quota - had[(played.start <= now) & (played.end > now)].sum()
            assert (least[(submit <= now) & (played.start > now)] > free).all(), (seed, now)
    assert fewer > 30


def test_pod_sets_of_a_workload_get_flavors_of_their_own_and_start_together() -> None:
    """By hand: workers have GPUs, of one flavor alone; a head fits both, the first is tried first.

    `team` holds all GPUs until 10; `wide`, which is older than `late`, has them until 20. The head
    of `late` would find room at 3.
    """

    def flavor(name: str, gpu: float) -> dict[str, object]:
        return {"name": name, "quotas": {"cpu": {"nominal": 8.0}, "gpu": {"nominal": gpu}}}

    flavors = [flavor("plain", 0.0), flavor("fast", 4.0)]
    queue = {"name": "a", "groups": [{"resources": ["cpu", "gpu"], "flavors": flavors}]}
    labels = {"plain": {"pool": "plain"}, "fast": {"pool": "fast"}}
    site = Site.of({"kueue": {"queues": [queue], "flavors": labels}}, "made")
    fast = {"cpu": 4, "gpu": 2}
    nodes = Nodes.of(
        [Node("p", {"cpu": 8}, labels["plain"])] + [Node(n, fast, labels["fast"]) for n in "fg"]
    )
    jobs = Jobs.of(
        [0, 1, 2, 3],
        10,
        [0, 4, 1, 0],
        {"cpu": [0, 2, 6, 0], "gpu": [0, 1, 0, 0]},
        id=["team", "wide", "plain", "late"],
        groups={
            "team": [Group(1, {"cpu": 2}), Group(2, {"cpu": 2, "gpu": 2})],
            "late": [Group(1, {"cpu": 1}), Group(1, {"cpu": 1, "gpu": 1})],
        },
        pool="a",
    )
    played = simulate_jobs(jobs, nodes, "kueue", site=site)
    assert played.start.tolist() == [0, 10, 2, 20]
    assert played.placed(0) == [(1, 1), (2, 1), (0, 1)]
    outcome = Outcome.of(played, "kueue")
    assert not audit(outcome, None, Conditions()).findings
    assert outcome.device_seconds.tolist() == [10 * (6 + 8 + 6 + 2), 10 * (4 + 4 + 1)]


def test_kueue_keeps_to_the_contract_of_a_scheduler_and_shares_are_of_what_can_be_lent() -> None:
    check_scheduler("kueue", cases=2)
    cohort = Holder(one_group("all", nominal=4))
    queue = Holder({**one_group("a", nominal=4), "weight": 2.0})
    queue.parent, cohort.children = cohort, [queue]
    queue.take({("f", "cpu"): 7.0})
    assert queue.dominant_share() == pytest.approx(3 / 8 / 2)
