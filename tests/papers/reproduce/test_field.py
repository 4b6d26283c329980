"""The environments of others: their rules by hand, and where they are what our simulation does."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.core.errors import UnknownName
from gangwise.jobs.model import Jobs, Nodes
from gangwise.jobs.simulation import simulate_jobs
from gangwise.logs.formats.training import GavelJob
from gangwise.papers.reproduce.field import Picked
from gangwise.papers.reproduce.rounds import Adapted, Adapting, Rivals, Rounds, Work


def test_fcfs_without_backfilling_is_an_ordinary_one():
    rng = np.random.default_rng(3)
    come, run = np.cumsum(rng.integers(0, 60, 300)).astype(float), rng.integers(1, 900, 300)
    jobs = Jobs.of(come, run.astype(float), rng.integers(1, 17, 300), {"cpu": 1})
    start = Picked("fcfs").start(jobs, 16)
    ours = simulate_jobs(jobs, Nodes.alike(1, {"cpu": 16}), "fcfs").start
    assert np.array_equal(start, ours)
    assert start.max() > come.max() + 1000  # jobs waited


@pytest.mark.parametrize(
    ("picked", "start"),
    [
        # 1 is picked at 1, and keeps its turn although 2 is shorter when there is room at 10.
        (Picked("sjf"), [0, 10, 15, 17]),
        # 3 is due to end at 9, before 1 has room.
        (Picked("sjf", backfilling=True), [0, 10, 15, 4]),
        # 1 is picked alone; of 2 and 3 the latter's key is smaller, 1 beside 13.5.
        (Picked("wfp3"), [0, 10, 20, 15]),
    ],
)
def test_who_was_picked_starts_before_anyone_else_is_picked(picked, start):
    jobs = Jobs.of([0, 1, 2, 4], [10, 5, 2, 5], [3, 4, 4, 1], {"cpu": 1})
    assert picked.start(jobs, 4).tolist() == start


def test_an_order_that_the_environment_does_not_have_is_named():
    with pytest.raises(UnknownName, match="f9"):
        Picked("f9").start(Jobs.of([0], [1], 1, {"cpu": 1}), 1)


def test_in_gavels_rounds_a_job_waits_for_its_first_share():
    jobs = Jobs.of([0, 100, 1500], [1000, 50, 400], 1, {"gpu": 1}, type=["a", "a", "a"])
    one = np.array([[1.0, 1.0, 1.0]])
    # Shares at 0, with the second round (none were computed after 0) and 1,920 s after that.
    assert Rounds().end(jobs, one, 9).tolist() == [1000, 410, 2680]
    # With shares every six minutes 1 starts with the second round, 2 with the one after its coming.
    assert Rounds(between=360).end(jobs, one, 9).tolist() == [1000, 410, 1900]
    later = Jobs.of([90], [1000], 1, {"gpu": 1}, type=["a"])
    assert Rounds().end(later, one, 9) == pytest.approx([1090])  # it begins the first round
    # Steps are whole: of 1 / 0.007 s each, two in a round.
    slow = Jobs.of([0], [1000], 1, {"gpu": 1}, type=["a"])
    assert Rounds().end(slow, 0.007 * one, 9) == pytest.approx([1000])


def test_in_gavels_rounds_shares_say_who_runs_where():
    jobs = Jobs.of([0, 0], [3600, 3600], 1, {"gpu": 1}, type=["a", "b"])
    speed = np.array([[1.0, 0.2, 0.1], [1.0, 0.9, 0.8]])
    # On the V100 for x of the time, a has (0.2 + 0.8 x) / 0.433 of what equal shares give, and b
    # (1 - 0.1 x) / 0.9: both the same at x = 0.332. When b has ended, a has the V100.
    x = 0.332
    first = 3600 / (1 - 0.1 * x)
    last = first + 3600 - first * (0.2 + 0.8 * x)
    assert Rounds().end(jobs, speed, 1) == pytest.approx([last, first], abs=360)
    assert Rounds().end(jobs, speed, 2).tolist() == [3600, 3600]


def written(folder, *rows):
    """Shockwave's form of jobs, of a model, a batch size, steps, GPUs, a mode and a submission."""
    lines = [
        f"{model} (batch size {batch})\tc\td\t-n\t1\t{steps}\t{gpus}\t{mode}\t1\t-1\t0\t{submit}"
        for model, batch, steps, gpus, mode, submit in rows
    ]
    (folder / "jobs.trace").write_text("\n".join(lines))
    return folder / "jobs.trace"


def test_a_job_that_adapts_doubles_its_batch_at_its_epochs(tmp_path):
    # 59,675 samples are 1,492 steps of 40 and 746 of 80. From epoch 11 on it is 80, asked for when
    # ten have been completed, and changed at the end of the next round.
    jobs = written(tmp_path, ("LM", 40, 30 * 1492, 1, "gns", 0))
    speed = {GavelJob(f"LM (batch size {n})", 1): pace for n, pace in [(40, 1492 / 120), (80, 6.5)]}
    work = Adapting(jobs, speed)
    (end,) = Rounds(seconds=120, between=1000).play(work, [4], Rivals("gandiva-fair", work, 4))
    # An epoch fills a round of 120 s; with a batch of 80 it takes 114.8 s.
    assert work.batch == [80]
    assert end == pytest.approx(11 * 120 + 19 * 746 / 6.5, rel=1e-3)


def test_one_that_runs_for_half_as_long_again_is_ended(tmp_path):
    jobs = written(tmp_path, ("Transformer", 16, 625 * 10, 1, "static", 0))
    work = Adapting(jobs, {GavelJob("Transformer (batch size 16)", 1): 10.0})
    assert work.longest == [1.5 * 625]
    work.pace = [[5.0]]  # it runs at half the speed that was foreseen
    (end,) = Rounds(seconds=100, between=1000).play(work, [1], Rivals("gandiva-fair", work, 1))
    assert end == 1000  # the first round after 937 s


@pytest.mark.parametrize(
    ("policy", "makespan"),
    [("gandiva-fair", 32367.4), ("allox", 32488.6), ("max-min", 33207.7), ("throughput", 31909.0)],
)
def test_makespans_are_those_that_shockwaves_authors_published(traces, policy, makespan):
    if not (traces / "shockwave").is_dir():
        pytest.skip("Shockwave's jobs are not here")
    rounds = Rounds(seconds=120, between=1000, restart=20, policy=policy)
    rows = Adapted(str(traces / "shockwave" / "120.trace")).replay(rounds, 0, 1, "")
    assert rows["makespan, s"][1] == pytest.approx([makespan], abs=0.06)


def test_our_schedulers_on_shockwaves_jobs_are_as_the_page_has_them(traces):
    if not (traces / "shockwave").is_dir():
        pytest.skip("Shockwave's jobs are not here")
    scenario = Adapted(str(traces / "shockwave" / "120.trace"))
    jobs = scenario.alone(Rounds(seconds=120, between=1000))
    assert max((jobs.submit + jobs.run).max(), jobs.run @ jobs.tasks / 32) == pytest.approx(
        20_506, 1e-4
    )
    for name, makespan, completion in [("sjf+easy", 31_514, 7_372), ("gavel", 29_253, 9_223)]:
        rows = scenario.replay(name, 0, 1, "")
        assert rows["makespan, s"][1] == pytest.approx([makespan], 1e-4)
        assert rows["completion, s"][1] == pytest.approx([completion], 1e-4)


def test_themis_is_the_least_worst_ratio(tmp_path):
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(5)
    for _ in range(10):
        J = int(rng.integers(2, 9))
        gpus, pace = rng.integers(1, 5, J), rng.uniform(1, 9, J)
        work = Work(
            [0.0] * J, rng.uniform(100, 900, J).tolist(), pace[:, None].tolist(), gpus.tolist()
        )
        rivals = Rivals("finish-time", work, 4)
        share = rivals(list(range(J)), 50.0)[:, 0]
        left = np.array(work.remaining) / pace
        alone = left / np.minimum(4 / J / gpus, 1)
        x = cvxpy.Variable(J)
        worst = cvxpy.max((50 + cvxpy.multiply(left, cvxpy.inv_pos(x))) / alone)
        best = cvxpy.Problem(cvxpy.Minimize(worst), [x >= 0, x <= 1, gpus @ x <= 4]).solve(
            "CLARABEL"
        )
        assert max((50 + left / share) / alone) == pytest.approx(best, rel=1e-4)
        assert gpus @ share <= 4 * (1 + 1e-6)
