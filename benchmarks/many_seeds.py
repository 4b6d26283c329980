"""Many seeds at once: runs stepped in Python, played whole, and played whole in threads.

::

    python -m benchmarks.many_seeds            # some seconds on two idle cores; --seeds 1000

Every line is of the same seeds, and all ratios are of this one run. Instances are drawn within the
time; what a store takes to keep runs is told apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gangwise import create_policy, create_scenario, simulate
from gangwise.experiments.specification import Experiment
from gangwise.experiments.store import MemoryStore
from gangwise.experiments.sweep import Workers, perform
from gangwise.gain_overhead.whole_runs import play_whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=2000)
    parser.add_argument("--scenario", default="ogasched-default-v1:servers=16")
    parser.add_argument(
        "--policies", default="fairness,drf,drf-as-printed,binpacking,spreading,random"
    )
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    scenario, slots = create_scenario(given.scenario), given.slots
    few = max(given.seeds // 50, 2)
    print(f"{given.scenario}, {given.seeds:,} seeds x {slots:,} slots")
    for name in given.policies.split(","):

        def whole(seed: int, name: str = name) -> float:
            found = play_whole(scenario.instance(seed), create_policy(name), slots, seed)
            assert found is not None
            return float(found[:, 0].mean())

        def stepped(seed: int, name: str = name) -> float:
            run = simulate(scenario.instance(seed), create_policy(name), slots, seed)
            return float(run.rewards.mean())

        whole(0), stepped(0)  # compiled or loaded
        slow, means = _timed(stepped, range(few))
        began = time.process_time()
        one, found = _timed(whole, range(given.seeds))
        cpu = time.process_time() - began
        assert found[:few] == means
        begin = time.perf_counter()
        with ThreadPoolExecutor(given.threads) as threads:
            assert list(threads.map(whole, range(given.seeds))) == found
        both = time.perf_counter() - begin
        slow, each = slow / few, one / given.seeds
        print(
            f"{name:16s} stepped {1e3 * slow:6.1f} ms a run; whole {1e3 * each:5.1f} ms, "
            f"{slow / each:4.1f} times as fast; in {given.threads} threads all in {both:5.1f} s "
            f"instead of {one:5.1f} s, {one / both:.2f} times ({cpu:.1f} s of CPU)"
        )
    _kept(given.scenario, given.policies.split(",")[0], slots, few)


def _timed(play: Callable[[int], float], seeds: range) -> tuple[float, list[float]]:
    begin = time.perf_counter()
    found = [play(seed) for seed in seeds]
    return time.perf_counter() - begin, found


def _kept(scenario: str, policy: str, slots: int, seeds: int) -> None:
    """As compare, sweep and tune play them: with keys, rows and statistics."""
    asked = Experiment(name="kept", scenario=scenario, slots=slots, seeds=seeds, policies=[policy])
    for what, workers in (
        ("one process", Workers(1)),
        ("threads", Workers(2)),
        ("threads again", Workers(2)),
    ):
        begin = time.perf_counter()
        results = perform(asked.model_dump(mode="json"), asked.runs(), MemoryStore(), workers)
        spent = time.perf_counter() - begin
        assert np.isfinite(results.table()["reward.mean"][0])
        print(f"as a sweep of {policy}, kept in memory, {what}: {1e3 * spent / seeds:.1f} ms a run")


if __name__ == "__main__":
    main()
