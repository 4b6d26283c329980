"""Planted faults: which tests see them.

    python -m benchmarks.mutations [--only WORD] [--out docs/planted-faults.md]

Every fault is one replacement in one file of a copy of the sources. The tests that should see it
run on the copy; a fault that they do not see survived, and the exit code is 1. Before anything is
planted, the tests of all faults must pass on the copy. This is run by hand: kernels compile anew
for each fault, so that it takes minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Fault(NamedTuple):
    """One fault: ``old`` stands once in the file, ``new`` in its place is wrong."""

    what: str
    file: str
    old: str
    new: str
    tests: str
    only: str = ""


GAIN, SPEEDS, JOBS = "gain_overhead", "fluctuating_speeds", "approximation_jobs"
FAULTS = (
    Fault(
        "best fixed decision forgets the last slot",
        f"{GAIN}/offline.py",
        "solution = solve(problem, arrivals.sum(axis=0))",
        "solution = solve(problem, arrivals[:-1].sum(axis=0))",
        f"{GAIN}/test_offline.py",
        "weighs_every_slot",
    ),
    Fault(
        "best fixed decision forgets half of the slots",
        f"{GAIN}/offline.py",
        "solution = solve(problem, arrivals.sum(axis=0))",
        "solution = solve(problem, arrivals[: (len(arrivals) + 1) // 2].sum(axis=0))",
        f"{GAIN}/test_offline.py",
        "weighs_every_slot",
    ),
    Fault(
        "react ignores smoothing",
        f"{GAIN}/ogasched.py",
        "ascent.slope(weight, x, self.smoothing)",
        "ascent.slope(weight, x)",
        f"{GAIN}/test_ogasched.py",
        "smoothed",
    ),
    Fault(
        "react without memory remembers",
        f"{GAIN}/ogasched.py",
        "if not self.memory:",
        "if False:",
        f"{GAIN}/test_ogasched.py",
        "without_memory",
    ),
    Fault(
        "as printed carries the exact projection",
        f"{GAIN}/ogasched.py",
        "self._ascent = Ascent(problem, project_as_printed(problem, z))",
        "self._ascent = Ascent(problem, project(problem, project_as_printed(problem, z)))",
        f"{GAIN}/test_ogasched.py",
        "carries_the_printed",
    ),
    Fault(
        "lost feedback is delivered",
        "core/feedback.py",
        "return np.where(lost, -1, delays)",
        "return delays",
        f"{GAIN}/test_ogasched.py",
        "constant_delay",
    ),
    Fault(
        "DRF fills by requests instead of dominant shares",
        f"{GAIN}/kernels.py",
        "v = step * upper[first + i, k] / most[first + i]",
        "v = step * upper[first + i, k]",
        f"{GAIN}/test_baselines.py",
        "plain_twin or introduced",
    ),
    Fault(
        "DRF with bundles goes on where a device type ran out",
        f"{GAIN}/kernels.py",
        "if left[k] <= 0.0 and rises[i] != 0 and upper[first + i, k] > 0.0:",
        "if left[k] <= 0.0 and rises[i] != 0 and upper[first + i, k] < 0.0:",
        f"{GAIN}/test_baselines.py",
        "plain_twin or introduced",
    ),
    Fault(
        "ε-greedy decays without |E|",
        f"{SPEEDS}/learners.py",
        "self.epsilon * E / t if self.decay",
        "self.epsilon / t if self.decay",
        f"{SPEEDS}/test_contenders.py",
        "decaying_epsilon",
    ),
    Fault(
        "P3 forgets the bounds of pruned nodes",
        f"{SPEEDS}/solvers/search.py",
        "best[2] = max(best[2], min(f, here[K + 3]))",
        "best[2] = max(best[2], 0.0)",
        f"{SPEEDS}/test_solvers.py",
        "pruned",
    ),
    Fault(
        "P3 forgets the bounds of pruned branches",
        f"{SPEEDS}/solvers/search.py",
        "best[2] = max(best[2], here[K + 4])",
        "best[2] = max(best[2], 0.0)",
        f"{SPEEDS}/test_solvers.py",
        "pruned",
    ),
    Fault(
        "correlated noise counts as independent",
        f"{SPEEDS}/esdp.py",
        "v = v + np.where(np.isfinite(s), np.sqrt(self.correlation * s), 0.0)",
        "v = v + 0.0",
        f"{SPEEDS}/test_esdp.py",
        "correlates",
    ),
    Fault(
        "recorded workers of a job begin apart",
        f"{SPEEDS}/speeds.py",
        "return cls(series, group, np.array(begin, dtype=np.int64)[place])",
        "return cls(series, np.arange(len(group)), rng.integers(0, 3, len(group)))",
        f"{SPEEDS}/test_speeds.py",
        "in_step",
    ),
    Fault(
        "deadline off by one in what opm spends",
        f"{JOBS}/opm.py",
        "paced: Floats = left / (jobs.deadline[rows] - t)",
        "paced: Floats = left / (jobs.deadline[rows] - t + 1)",
        f"{JOBS}/test_opm.py",
        "follows_the_plain or by_hand",
    ),
    Fault(
        "deadline off by one in utility-per-price",
        f"{JOBS}/baselines.py",
        "pace = self.burst * left / ((jobs.deadline[rows] - t) * self._price)",
        "pace = self.burst * left / ((jobs.deadline[rows] - t + 1) * self._price)",
        f"{JOBS}/test_policies.py",
        "spreads_what_is_left",
    ),
    Fault(
        "OPS's γ without T",
        f"{JOBS}/opm.py",
        "gamma = math.log(M * T / self.delta)",
        "gamma = math.log(M / self.delta)",
        f"{JOBS}/test_opm.py",
        "ops",
    ),
    Fault(
        "fair counts machines that are away",
        f"{JOBS}/baselines.py",
        "shares = max_min_shares(float(observation.available.sum()), self.most(observation))",
        "shares = max_min_shares(float(observation.available.size), self.most(observation))",
        f"{JOBS}/test_policies.py",
        "fair_shares_only",
    ),
    Fault(
        "budgets are kept to a thousandth",
        f"{JOBS}/problem.py",
        "SLACK = 1e-9",
        "SLACK = 1e-3",
        f"{JOBS}/test_environment.py",
        "thousandth",
    ),
    Fault(
        "prices of gangs forget what tasks cost",
        "gangs/search.py",
        "gain = worth[e] - g.cost[q] - price_of(g, price, q, g.server[e])",
        "gain = worth[e] - price_of(g, price, q, g.server[e])",
        "gangs/test_exact_speeds.py",
        "bound_of_prices",
    ),
    Fault(
        "a gang is launched that costs more than it is worth",
        "gangs/search.py",
        "if value < 0.0:",
        "if value < -1e300:",
        "gangs/test_exact_speeds.py",
        "told_apart",
    ),
    Fault(
        "exact gangs take tasks that cost different amounts for alike",
        "gangs/milp.py",
        "alike = np.column_stack([p.task_requests, cost])",
        "alike = p.task_requests",
        "gangs/test_exact_speeds.py",
        "told_apart",
    ),
    Fault(
        "each claim of a figure has a reading of its own",
        "reproduce/expected.py",
        "        if self.agrees(best):",
        "        if any(self.found.values()):",
        "reproduce/test_expected.py",
        "one_reading_has_to_serve",
    ),
    Fault(
        "results are compared by their means, not by seed",
        "reproduce/expected.py",
        "abs(a - b) <= 1e-6 * max(1.0, abs(b)) for a, b in zip(now, then)",
        "abs(sum(now) - sum(then)) <= 1e-6 * max(1.0, abs(b)) for a, b in zip(now, then)",
        "reproduce/test_expected.py",
        "earns_something_else",
    ),
    Fault(
        "rows as different as possible are the heaviest ones",
        "scenarios/alibaba.py",
        "chosen.append(int(np.argmax(away)))",
        "chosen.append(int(np.argmax(away > 0)))",
        "scenarios/test_alibaba.py",
        "farthest",
    ),
    Fault(
        "the worst users are a fifth of them",
        "jobs/metrics.py",
        "means.size // 10",
        "means.size // 5",
        "jobs/test_metrics.py",
        "a_tenth_of_them",
    ),
    Fault(
        "what restarts lost is counted by the most numerous devices",
        "jobs/metrics.py",
        "np.argmax(demand / total, axis=1)",
        "np.argmax(demand, axis=1)",
        "jobs/test_metrics.py",
        "every_device_type",
    ),
    Fault(
        "OPM holds nothing back",
        f"{JOBS}/opm.py",
        "target = (1.0 - self.epsilon) * self._target(jobs, rows, t)",
        "target = self._target(jobs, rows, t)",
        f"{JOBS}/test_opm.py",
        "held_back",
    ),
    Fault(
        "the constant of Theorem 3 forgets how sure one is",
        f"{JOBS}/opm.py",
        "self._gamma = math.log(M * horizon / self.delta)",
        "self._gamma = math.log(M * horizon)",
        f"{JOBS}/test_opm.py",
        "theorem_3",
    ),
    Fault(
        "batch means are not around the mean",
        "experiments/statistics.py",
        "shift = float(x.mean()) - found.mean",
        "shift = 0.0",
        "experiments/test_statistics.py",
        "around_the_mean",
    ),
    Fault(
        "plan loses draws that cannot be paid",
        f"{JOBS}/baselines.py",
        "ROUNDS = 4",
        "ROUNDS = 1",
        f"{JOBS}/test_plan.py",
        "handed_on",
    ),
    Fault(
        "a damaged gzip file gives the rows before it",
        "traces/io/blocks.py",
        "if begun:\n                    raise",
        "if not begun:\n                    raise",
        "traces/test_blocks.py",
        "check_sum",
    ),
)


def run_tests(copy: Path, tests: str, only: str) -> tuple[bool, str]:
    """Whether the tests pass on the copy, and the first that does not."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [f"tests/{tests}", *(["-k", only] if only else [])]
    env = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if done.returncode not in (0, 1):
        raise SystemExit(f"the tests of {tests} could not run:\n{done.stdout[-2000:]}")
    return done.returncode == 0, failed[0].split("::")[-1].split(" - ")[0] if failed else ""


def main() -> int:
    """Plant each fault and see who sees it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name has this word")
    parser.add_argument("--out", type=Path, help="a page to write")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if given.only in fault.what]
    lines, survived = [], 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "docs", "conftest.py", "pyproject.toml"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name)
            else:
                shutil.copy2(source, copy / name)
        for tests, only in dict.fromkeys((fault.tests, fault.only) for fault in chosen):
            passed, by = run_tests(copy, tests, only)
            if not passed:
                raise SystemExit(f"tests/{tests} fails before anything is planted: {by}")
        for fault in chosen:
            path = copy / "src" / "gangwise" / fault.file
            sound = path.read_text(encoding="utf-8")
            if fault.old not in sound:
                raise SystemExit(f"{fault.file} has no longer: {fault.old}")
            begin = time.perf_counter()
            path.write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
            passed, by = run_tests(copy, fault.tests, fault.only)
            path.write_text(sound, encoding="utf-8")
            survived += passed
            seen = "**survived**" if passed else f"`{by}`"
            lines.append(f"| {fault.what} | `{fault.file}` | {seen} |")
            print(lines[-1], f"({time.perf_counter() - begin:.0f} s)", flush=True)
    if given.out:
        page = [
            "# Planted faults",
            "",
            "`python -m benchmarks.mutations --out docs/planted-faults.md` plants one fault after "
            "the other in a copy of the sources and runs the tests that should see it. "
            f"{len(chosen) - survived} of {len(chosen)} were seen.",
            "",
            "| fault | file | seen by |",
            "|---|---|---|",
            *lines,
            "",
        ]
        given.out.write_text("\n".join(page), encoding="utf-8")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main())
