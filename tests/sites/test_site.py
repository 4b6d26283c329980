"""Site files: what they may say, what they do to jobs, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.jobs import Conditions, Jobs, Nodes
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import JobSimulation, simulate_jobs
from gangwise.jobs.tenancy import AccountRule
from gangwise.sites.site import CapRule, MaintenanceWindow, Pool, Rules, Site, Start
from tests.jobs.played import Careless, starts


def site_of(tmp_path, text: str) -> Site:
    file = tmp_path / "site.toml"
    file.write_text(text)
    return Site.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[pool]]\nname = 'a'\nnodez = 'n1'", "[pool] 1: there is no setting named 'nodez'"),
        ("[[cap]]\nscope = 'usr'\nof = 'gpu'\nmost = 1", "[cap] 1: scope: must be 'user'"),
        ("[[pol]]\nname = 'a'", "there is no setting named 'pol'; did you mean pool?"),
        ("[[pool]]\nname = 'a'\nnodes = 'n1'\ncount = 2", "give nodes or a count, not both"),
        ("[[pool]]\nname = 'a'\n[[pool]]\nname = 'a'", "two pools are called 'a'"),
        ("[[window]]\nfrom = 9\nto = 3\ncount = 1", "it ends at 3, not after it begins (9)"),
        ("[[cap]\nscope = 1", "line 1"),
        (
            "[[pool]]\nname='a'\n[[cap]]\nscope='all'\nof='gpu'\nmost=1\npool='b'",
            "there is no pool 'b'; there are a",
        ),
        ("[[qos]]\nname='a'\n[[qos]]\nname='a'", "two qos are called 'a'"),
        ("[[account]]\nname='a'\nparent='b'", "account 'a' has a parent 'b', which is not there"),
        (
            "[[account]]\nname='a'\nparent='b'\n[[account]]\nname='b'\nparent='a'",
            "account 'a' is below itself",
        ),
        ("[priority]\nfairshare=1", "setting named 'fairshare'; did you mean fair_share"),
    ],
)
def test_a_mistake_in_a_site_file_is_named_with_what_to_do(tmp_path, text, said):
    with pytest.raises(ScenarioError) as error:
        site_of(tmp_path, text)
    assert str(tmp_path / "site.toml") in str(error.value)
    assert said in str(error.value)


def test_a_pool_by_names_a_cap_and_a_window(tmp_path):
    site = site_of(
        tmp_path,
        """
        [[pool]]
        name = "long"
        nodes = "n[0-1]"
        [[cap]]
        scope = "user"
        only = ["ann"]
        of = "gpu"
        most = 2
        [[window]]
        from = 0
        to = 50
        nodes = "n3"
        why = "drained"
        [start]
        latency = 0.5
        """,
    )
    jobs = Jobs.of(
        submit=[0, 1, 2, 3],
        run=[10, 10, 10, 10],
        demand={"gpu": 2},
        user=["ann", "ann", "bob", "eve"],
        pool=["", "long", "long", "long"],
    )
    # ann's second job is passed over until her first ends; eve finds n0 and n1 taken, and no other
    # node is of pool long.
    assert starts(site, jobs, Nodes.alike(4, {"gpu": 2})) == [0.5, 11.0, 2.5, 13.0]


def test_every_pool_has_a_first_in_line_of_its_own():
    """A wide job of pool b is not starved behind the first in line of pool a."""
    site = Site(Rules(pool=(Pool(name="a", nodes="n[0-1]"), Pool(name="b", nodes="n[2-3]"))))
    jobs = Jobs.of(
        submit=[0, 0, 1, 2, 3],
        run=[100, 20, 100, 100, 50],
        limit=[100, 20, 100, 100, 50],
        tasks=[2, 1, 2, 2, 1],
        demand={"gpu": 1},
        pool=["a", "b", "a", "b", "b"],
    )
    nodes = Nodes.alike(4, {"gpu": 1})
    assert starts(site, jobs, nodes) == [0, 0, 100, 20, 120]
    # Without backfilling, the other pool goes on all the same.
    assert starts(site, jobs, nodes, "fcfs+none+best-fit") == [0, 0, 100, 20, 120]


def test_nothing_is_kept_for_the_first_in_line_once_a_cap_holds_it():
    """Its own user's job passes it and takes of the cap: who comes then may pass it, too."""
    jobs = Jobs.of(
        submit=[0, 1, 1, 2],
        run=[100, 10, 90, 500],
        limit=[100, 10, 90, 500],
        tasks=[2, 4, 1, 1],
        user=["bob", "ann", "ann", "eve"],
    )
    site = Site(Rules(cap=(CapRule(scope="user", of="cpu", most=4),)))
    # Ann's four are promised second 100; her other job takes one until 91, and eve comes meanwhile.
    assert starts(site, jobs, Nodes.pool(4)) == [0, 502, 1, 2]


def test_processors_without_nodes_are_shared_out_by_count():
    rules = Rules(
        pool=(Pool(name="a", count=6), Pool(name="b", count=2)),
        window=(MaintenanceWindow(to=5, count=3),),
    )
    jobs = Jobs.of(submit=[0, 0, 0], run=10, tasks=[5, 1, 1], pool=["a", "b", "a"])
    # The window takes the last three: both of pool b and one of pool a.
    assert starts(Site(rules), jobs, Nodes.pool(8)) == [0, 5, 5]


def test_what_a_pool_does_not_allow_is_set_aside_and_said():
    pool = Pool(name="a", count=2, most_time=5, most_nodes=1)
    cap = CapRule(scope="all", of="jobs", most=0.5, pool="b")
    site = Site(Rules(pool=(pool, Pool(name="b")), cap=(cap,)))
    jobs = Jobs.of(submit=[0] * 4, run=[9, 3, 3, 3], tasks=[1, 2, 1, 1], pool=list("aaab"))
    account = simulate_jobs(jobs, Nodes.alike(3, {"cpu": 1}), site=site).account
    assert {reason: rows.tolist() for reason, rows in account.set_aside.items()} == {
        "that ask for more time than pool a allows": [0],
        "that need more nodes than pool a allows": [1],
        "that alone ask for more than the cap on all jobs in pool b: 0.5 jobs at once": [3],
    }
    assert "1 jobs are of a pool that the site does not name (c)" in " ".join(
        site.lines(Jobs.of(submit=[0, 0], run=1, pool=["a", "c"]))
    )


def test_accounts_and_users_of_whom_the_log_has_no_job_are_named():
    jobs = Jobs.of([0, 1], 9, user=["alice", "bob"], charged=["physics", "chemistry"])
    cap = CapRule(scope="user", of="cpu", most=1, only=("alcie", "bob"))
    tree = AccountRule(name="science"), AccountRule(name="physics", parent="science")
    site = Site(Rules(cap=(cap,), account=(*tree, AccountRule(name="biology", users={"zoe": 2.0}))))
    said = "\n".join(site.lines(jobs))
    assert "cap 1: no job is of user 'alcie'; the nearest of the log is 'alice'" in said
    assert "its shares: no job is of account 'biology'" in said
    assert "no job is of user 'zoe'" in said
    assert said.count("no job is of") == 3
    nobody = Site(Rules(cap=(CapRule(scope="account", of="cpu", most=1, only=("physics",)),)))
    without = "\n".join(nobody.lines(Jobs.of([0, 1], 9)))
    assert "cap 1: the log names no accounts, so none is 'physics'" in without


def test_caps_within_a_qos_an_account_tree_and_on_each_job(tmp_path):
    site = site_of(
        tmp_path,
        """
        [[qos]]
        name = "short"
        most_time = 20
        [[account]]
        name = "science"
        [[account]]
        name = "physics"
        parent = "science"
        [[cap]]
        scope = "user"
        qos = "short"
        of = "jobs"
        most = 1
        [[cap]]
        scope = "all"
        account = "science"
        of = "cpu"
        most = 3
        [[cap]]
        scope = "job"
        of = "cpu"
        most = 6
        """,
    )
    jobs = Jobs.of(
        submit=range(8),
        run=[10, 10, 10, 10, 10, 10, 10, 30],
        tasks=[1, 1, 2, 2, 1, 7, 6, 1],
        user=["ann", "ann", "ann", "bob", "bob", "bob", "bob", "bob"],
        qos=["short", "short", "", "", "", "", "", "short"],
        charged=["physics", "physics", "science", "physics", "other", "other", "other", "other"],
    )
    # The second waits for ann's first; the third fills what science and those below it may have;
    # the fourth waits for it; the last two are set aside: 7 cpu in a job, and 30 s in QOS short.
    wanted = [0, 10, 2, 12, 4, np.nan, 6, np.nan]
    assert np.array_equal(starts(site, jobs, Nodes.pool(99)), wanted, equal_nan=True)
    account = simulate_jobs(jobs, Nodes.pool(99), site=site).account
    assert {reason: rows.tolist() for reason, rows in account.set_aside.items()} == {
        "that ask for more time than QOS short allows": [7],
        "that alone ask for more than the cap on each job: 6 cpu at once": [5],
    }


def test_caps_that_are_told_alike_each_set_jobs_aside():
    caps = tuple(CapRule(scope="user", only=(name,), of="cpu", most=1) for name in ("ann", "bob"))
    jobs = Jobs.of(submit=[0, 0, 0], run=9, tasks=[2, 2, 2], user=["ann", "bob", "eve"])
    schedule = simulate_jobs(jobs, Nodes.pool(4), site=Site(Rules(cap=caps)))
    assert np.isnan(schedule.start).tolist() == [True, True, False]
    assert schedule.phase.tolist().count(6) == 2


@pytest.mark.parametrize("name", ["las", "gavel"])
def test_schedulers_that_look_at_all_jobs_at_once_keep_to_caps(name):
    rng = np.random.default_rng(5)
    jobs = Jobs.of(
        np.sort(rng.integers(0, 3000, 60)),
        rng.integers(100, 900, 60),
        rng.integers(1, 5, 60),
        {"gpu": 1},
        user=[f"u{i}" for i in rng.integers(0, 3, 60)],
    )
    site = Site(Rules(cap=(CapRule(scope="user", of="gpu", most=6),)))
    schedule = simulate_jobs(jobs, Nodes.alike(4, {"gpu": 4}), name, site=site)
    assert np.isfinite(schedule.end).all()  # a start beyond a cap is an error
    free = simulate_jobs(jobs, Nodes.alike(4, {"gpu": 4}), name)
    held = [[0, 0, 0], [0, 0, 0]]
    for each, most in zip((schedule, free), held, strict=True):
        for t in each.start:
            on = (each.last_start <= t) & (t < each.end)
            for u in range(3):
                most[u] = max(most[u], int(jobs.tasks[on & (jobs.user == u)].sum()))
    assert max(held[0]) <= 6 < max(held[1])


def test_a_scheduler_that_starts_a_job_beyond_a_cap_is_refused():
    jobs = Jobs.of(submit=[0, 0], run=10, user=["ann", "ann"])
    site = Site(Rules(cap=(CapRule(scope="user", of="jobs", most=1),)))
    with pytest.raises(InfeasibleDecision, match="ann: 1"):
        simulate_jobs(jobs, Nodes.pool(4), Careless(), site=site)


def test_explain_names_the_cap_and_what_ends_first():
    jobs = Jobs.of(submit=[0, 0, 1], run=[10, 30, 5], tasks=[2, 2, 4], user="ann")
    site = Site(Rules(cap=(CapRule(scope="user", of="cpu", most=5),), start=Start(latency=0)))
    scheduler = create_scheduler("fcfs+easy+best-fit")
    tables = site.placed(jobs, Nodes.pool(8), Conditions())
    simulation = JobSimulation(Tables.of(*tables, site.options(Options())), scheduler)
    simulation.step()
    simulation.step()
    said = scheduler.explain("2")
    assert said.constraint == (
        "cap on user ann: 5 cpu at once, 4 in use; 2 of the jobs in it end first"
    )
    assert (said.until, said.since) == (30, 1)


def test_a_job_that_was_given_fewer_cores_than_it_asked_for_counts_as_that_at_a_cap():
    """Slurm may give three tasks of four cores two nodes of five; such a job did start."""
    site = Site(Rules(cap=(CapRule(scope="all", of="cpu", most=10),)))
    terms = ["held=10", "", "held=11", "held=2"]
    jobs = Jobs.of(
        [0, 0, 0, 5], run=9, tasks=[3, 3, 3, 1], demand={"cpu": [4, 4, 4, 1]}, terms=terms
    )
    schedule = simulate_jobs(jobs, Nodes.alike(4, {"cpu": 8}), site=site)
    assert np.array_equal(schedule.start, [0, np.nan, np.nan, 9], equal_nan=True)
