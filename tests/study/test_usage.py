"""Audits of drawn logs: what is planted is named, and a log without any of it is called clean."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.jobs import Jobs, Nodes
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.tenancy import AccountRule
from gangwise.study.usage import (
    account_shares,
    audit_log,
    queue_shares,
    shares_of,
    shorter_limits,
    use_of,
)

DAY, WEEK = 86400.0, 7 * 86400.0
SITE = """
[[account]]
name = "blue"
shares = 3
[[account]]
name = "red"
shares = 1
"""


def _log(folder: Path, seed: int, plant: str = "") -> tuple[Path, Path]:
    """A log of three weeks on 64 processors of two accounts, and its site file.

    Each account has its share of the use. Planted: ``long``, user u1 asks for ten times the time;
    ``cut``, jobs of u2 end at their limits; ``short``, red takes the cluster from blue, whose jobs
    wait for days.
    """
    rng = np.random.default_rng([44, seed])
    J = 600
    submit = np.sort(rng.uniform(0, 3 * WEEK, J))
    run = rng.uniform(0.5, 6, J) * 3600
    tasks = rng.choice([1, 2, 4, 8], J)
    user = rng.integers(0, 6, J)
    blue = user < 4  # of the users, and about of the use, as of the shares
    limit = run * rng.uniform(1.1, 2.5, J)
    wait = rng.exponential(600.0, J)
    if plant == "long":
        limit = np.where(user == 1, 10 * run, limit)
    elif plant == "cut":
        limit = np.where(user == 2, run, limit)
    elif plant == "short":
        wait = np.where(blue, rng.uniform(0.5, 2, J) * DAY, wait)
        tasks = np.where(blue, tasks, 16)
    rows = ["id,submit,start,end,cpus,limit,user,account"]
    for j in range(J):
        start = submit[j] + wait[j]
        rows.append(
            f"{j},{submit[j]:.0f},{start:.0f},{start + run[j]:.0f},{tasks[j]},{limit[j]:.0f},"
            f"u{user[j]},{'blue' if blue[j] else 'red'}"
        )
    log, site = folder / f"{plant}{seed}.csv", folder / "site.toml"
    log.write_text("\n".join(rows) + "\n")
    site.write_text(SITE)
    return log, site


def _found(folder: Path, seed: int, plant: str = "") -> set[tuple[str, str]]:
    log, site = _log(folder, seed, plant)
    audit = audit_log(str(log), settings={"site": str(site)})
    return {(finding.kind, finding.name) for finding in audit.findings}


def test_an_account_of_one_user_is_not_named_beside_the_user(tmp_path: Path) -> None:
    log, _ = _log(tmp_path, 0, "long")
    shared = {(row.kind, row.name) for row in audit_log(str(log)).findings}
    text = log.read_text()
    for user in range(6):
        text = text.replace(f",u{user},blue", f",u{user},team{user}")
        text = text.replace(f",u{user},red", f",u{user},team{user}")
    log.write_text(text)
    assert [(row.kind, row.name) for row in audit_log(str(log)).findings] == [("long", "u1")]
    assert ("long", "u1") in shared


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 20))]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_planted_is_named(tmp_path: Path, seed: int) -> None:
    """Drawn logs, 20 of each kind."""
    assert ("long", "u1") in _found(tmp_path, seed, "long")
    assert ("cut", "u2") in _found(tmp_path, seed, "cut")
    assert {("starved", "blue"), ("over", "red")} <= _found(tmp_path, seed, "short")


def _sacct(folder: Path, seed: int, plant: str = "") -> Path:
    """A listing of jobs of one GPU with their steps, which use half or more of what they hold.

    Planted: ``mem``, ``cpu`` or ``gpu``, user u1 uses a tenth of it.
    """
    rng = np.random.default_rng([45, seed])
    columns = "JobID|User|State|Submit|Start|End|ElapsedRaw|ReqTRES|AllocTRES|NNodes|NodeList|"
    rows, J = [columns + "TotalCPU|MaxRSS|TRESUsageInTot"], 240
    submit = np.sort(rng.integers(0, int(2 * WEEK), J)) + 1_700_000_000
    for j in range(J):
        user, wait, run = rng.integers(0, 6), rng.integers(60, 600), rng.integers(3600, 20000)
        cores, gib, start = int(rng.choice([4, 8, 16])), 32, submit[j] + wait
        share = {of: rng.uniform(0.5, 0.95) for of in ("cpu", "mem", "gpu")}
        if user == 1 and plant:
            share[plant] = 0.1
        seconds = int(share["cpu"] * cores * run)
        hours, minutes = divmod(seconds // 60, 60)
        clock = f"{hours // 24}-{hours % 24:02}:{minutes:02}:{seconds % 60:02}"
        tres = f"billing=1,cpu={cores},gres/gpu=1,mem={gib}G,node=1"
        times = f"{submit[j]}|{start}|{start + run}|{run}"
        rows.append(f"{j}|u{user}|COMPLETED|{times}|{tres}|{tres}|1|n{j % 8}|{clock}||")
        used = f"cpu={clock},gres/gpumem=1G,gres/gpuutil={100 * share['gpu']:.0f},mem={{}}K"
        kib = int(share["mem"] * gib * 2**20)
        for step, part in (("batch", 1.0), ("0", 0.3)):  # the larger one counts
            rows.append(
                f"{j}.{step}||COMPLETED|{times}||{tres}|1|n{j % 8}|{clock}|{int(part * kib)}K|"
                + used.format(int(part * kib))
            )
    log = folder / f"{plant}{seed}.txt"
    log.write_text("\n".join(rows) + "\n")
    return log


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("plant", ["mem", "cpu", "gpu"])
def test_who_holds_what_it_does_not_use_is_named(tmp_path: Path, plant: str, seed: int) -> None:
    audit = audit_log(str(_sacct(tmp_path, seed, plant)), prices={plant: 2.0})
    [idle] = audit.findings
    assert (idle.kind, idle.name, idle.device) == ("idle", "u1", plant)
    assert idle.cost == 2 * idle.hours
    total, users, _ = audit.held[plant]
    [mine] = [use for use in users if use.name == "u1"]
    assert mine.used == pytest.approx(0.1 * mine.asked, rel=0.06)  # gpuutil is in whole per cent
    assert sum(use.asked for use in users) == pytest.approx(total.asked)
    assert audit_log(str(_sacct(tmp_path, seed))).findings == []


def test_used_memory_and_time_of_swf_are_of_all_processors(tmp_path: Path) -> None:
    log = tmp_path / "a.swf"
    rows = ["; MaxProcs: 8"]
    # 4 processors for 100 s: 50 s of processor time and 1 GiB of each are used, of 2 GiB.
    rows += [
        f"{i} {60 * i} 5 100 4 50 1048576 4 120 2097152 1 3 1 2 -1 -1 -1 -1" for i in range(1, 30)
    ]
    rows.append("30 4000 5 100 4 -1 -1 4 120 2097152 1 3 1 2 -1 -1 -1 -1")  # not known
    log.write_text("\n".join(rows) + "\n")
    held = audit_log(str(log)).held
    for device, of_job in (("cpu", 4 * 100 / 3600), ("mem", 4 * 2 * 100 / 3600)):
        total = held[device][0]
        assert total.jobs == 29
        assert (total.asked, total.used) == pytest.approx((29 * of_job, 29 * of_job / 2))


QUEUES = """
items:
- {metadata: {name: lab}, spec: {resources: {gpu: {quota: 40, overQuotaWeight: 1, limit: -1}}}}
- {metadata: {name: rest}, spec: {resources: {gpu: {quota: 10, overQuotaWeight: 3, limit: 70}}}}
- {metadata: {name: x}, spec: {parentQueue: lab, resources: {gpu: {quota: 20, overQuotaWeight: 2}}}}
- {metadata: {name: y}, spec: {parentQueue: lab, resources: {gpu: {quota: 0, overQuotaWeight: 1}}}}
"""


def test_shares_of_queues_are_quotas_and_what_is_beyond_them_by_weight(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    # Of 100 GPUs 50 are beyond quotas: 12.5 for lab, 37.5 for rest. Of lab's 52.5, x has 20 and two
    # thirds of 32.5.
    shares = queue_shares(file, "gpu", 100.0)
    assert shares == pytest.approx(
        {"lab": 0.525, "rest": 0.475, "x": 0.2 + 0.65 / 3, "y": 0.325 / 3}
    )
    # Quotas beyond what there is shrink alike.
    assert queue_shares(file, "gpu", 25.0)["lab"] == pytest.approx(0.8)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_queue_that_is_short_is_named(tmp_path: Path, seed: int) -> None:
    log, _ = _log(tmp_path, seed, "short")
    file = tmp_path / "queues.yaml"
    about = "{{metadata: {{name: {}}}, spec: {{resources: {{cpu: {}}}}}}}"
    blue, red = "{quota: 3000, overQuotaWeight: 3}", "{quota: 1000, overQuotaWeight: 1}"
    file.write_text("items: [" + about.format("blue", blue) + ", " + about.format("red", red) + "]")
    findings = audit_log(str(log), queues=file).findings
    assert {("starved", "blue"), ("over", "red")} <= {(f.kind, f.name) for f in findings}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_without_imbalance_is_clean(tmp_path: Path, seed: int) -> None:
    log, site = _log(tmp_path, 100 + seed)
    audit = audit_log(str(log), settings={"site": str(site)})
    assert audit.findings == []
    assert "nothing stands out" in audit.verdict


def test_jobs_without_the_main_device_count_in_what_they_hold(tmp_path: Path) -> None:
    """Jobs of a GPU and a core, and two cores: those of u1, who asks for eight times the time."""
    rows = ["id,submit,start,end,cpus,gpus,limit,user"]
    for j in range(60):
        start, mine = 3600 * j, j % 4 == 1
        hours = 8 if mine else 2
        rows.append(
            f"{j},{start},{start},{start + 3600},{1 + mine},{1 - mine},{3600 * hours},u{j % 4}"
        )
    log = tmp_path / "log.csv"
    log.write_text("\n".join(rows) + "\n")
    audit = audit_log(str(log), prices={"cpu": 0.5})
    assert (audit.device, audit.total.jobs, audit.total.used) == ("gpu", 45, 45.0)
    total, [u1], _ = audit.others["cpu"]
    assert (u1.name, u1.jobs, u1.used, u1.asked) == ("u1", 15, 30.0, 240.0)
    assert total.used == 30.0
    [finding] = audit.findings
    assert (finding.kind, finding.whose, finding.name) == ("long", "user", "u1")
    assert (finding.device, finding.hours, finding.cost) == ("cpu", 210.0, 105.0)
    assert audit.verdict.startswith("jobs of 1 user ask for more than four times")


def test_use_and_limits_are_those_counted_by_hand() -> None:
    jobs = Jobs.of(
        submit=[0, 0, 0],
        run=[3600, 7200, 3600],
        tasks=[2, 1, 1],
        limit=[7200, 7200, np.nan],
        user=["a", "b", "a"],
        recorded_start=[0, 0, 7200],
        recorded_end=[3600, 7200, 10800],
    )
    outcome = Outcome.recorded(jobs, Nodes.pool(4))
    assert outcome is not None
    a, b = use_of(outcome, 0, jobs.user, jobs.users)
    # a used 2 + 1 hours; of its job with a limit it asked for twice what it used.
    assert (a.name, a.jobs, a.used, a.asked, a.cut) == ("a", 2, 3.0, 6.0, 0.0)
    assert (b.name, b.used, b.asked, b.cut) == ("b", 2.0, 2.0, 2.0)


def test_shares_are_products_down_the_tree() -> None:
    tree = [
        AccountRule(name="lab", shares=3),
        AccountRule(name="rest", shares=1),
        AccountRule(name="x", parent="lab", shares=2),
        AccountRule(name="y", parent="lab", shares=1),
    ]
    jobs = Jobs.of(
        *([0, 0, 0], [9, 9, 9]),
        charged=["x", "y", "rest"],
        recorded_start=[0, 0, 0],
        recorded_end=[9, 9, 9],
    )
    outcome = Outcome.recorded(jobs, Nodes.pool(4))
    assert outcome is not None
    rows = shares_of(outcome, 0, account_shares(tree), jobs.charged, jobs.accounts)
    shares = {row.account: row.share for row in rows}
    assert shares == pytest.approx({"x": 0.5, "y": 0.25, "rest": 0.25})


def test_shorter_limits_are_of_the_past_alone() -> None:
    rng = np.random.default_rng(3)
    J = 400
    submit = np.sort(rng.uniform(0, 4 * WEEK, J))
    run = rng.uniform(60, 3600, J)
    jobs = Jobs.of(submit, run, limit=run * rng.uniform(1, 5, J), user=rng.choice(["a", "b"], J))
    limit = shorter_limits(jobs)
    since = submit - submit.min()
    assert (limit <= jobs.limit).all()
    assert (limit[since < WEEK] == jobs.limit[since < WEEK]).all()
    # The last job of the second week, by hand.
    j = np.flatnonzero(since < 2 * WEEK)[-1]
    past = (submit + run <= submit.min() + WEEK) & (jobs.user == jobs.user[j])
    assert past.sum() >= 10
    share = np.quantile(run[past] / jobs.limit[past], 0.95)
    assert limit[j] == pytest.approx(jobs.limit[j] * share)
    # What comes later changes nothing before.
    changed = Jobs.of(submit, np.where(since > 3 * WEEK, 1.0, run), limit=jobs.limit)
    later = Jobs.of(submit, run, limit=jobs.limit)
    early = since < 3 * WEEK
    assert (shorter_limits(changed)[early] == shorter_limits(later)[early]).all()


def test_the_command_writes_a_page_and_prints_json(tmp_path: Path) -> None:
    log, site = _log(tmp_path, 1, "long")
    words = ["audit", str(log), "--site", str(site), "--price", "cpu=2", "--json"]
    ran = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "page")])
    assert ran.exit_code == 0, ran.output
    printed = json.loads(ran.stdout)
    assert printed == json.loads((tmp_path / "page" / "audit.json").read_text())
    assert printed["format"] == "gangwise-audit-1"
    assert printed["findings"][0]["name"] == "u1"
    assert "asks for" in (tmp_path / "page" / "audit.html").read_text()
    refused = CliRunner().invoke(app, ["audit", str(log), "--price", "tpu=1"])
    assert refused.exit_code != 0
    assert "price tpu: the nodes have" in str(refused.exception)
    refused = CliRunner().invoke(app, ["audit", str(log), "--price", "cpu=nan"])
    assert "price cpu=nan" in str(refused.exception)
