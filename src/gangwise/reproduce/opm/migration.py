"""Fig. 3: what the step size α does to the utility and to the migration of tasks, at β = 0.8.

The paper does not say what a migration is. Three readings: a machine whose job goes on without it
(``displaced``), one that another job got (``swaps``), and a task that found a machine elsewhere
(``net moves``). Nor does it say whether μ is tuned with α: ``opm-as-printed`` keeps α μ, and
``fixed μ`` keeps μ.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, near, over
from gangwise.reproduce.opm.section_vi import OURS, PRINTED, JobSource, by_seed, of_difference

SMALL, LARGE = 0.6, 6.0
MOVES = {"displaced": "displaced", "swaps": "swaps", "net moves": "net_moves"}
FIXED = "fixed μ"
MU = 0.02  # what the default α of opm-as-printed comes with, for 100 machines
UNIT = (
    "which α the tenfold is of is not stated but for 6 at its end; α has a unit that depends "
    "on the length of a slot"
)
MIGRATION = "what counts as a migration is not stated"


def _steps(jobs: JobSource, scale: Scale) -> list[float]:
    if jobs.is_trace or scale.quick:
        return [SMALL, LARGE]
    return [0.01, 0.06, 0.2, SMALL, 2.0, LARGE, 20.0]


def figure_3(jobs: JobSource) -> Artefact:
    """Fig. 3 (a) and (b)."""
    name = f"opm-alpha-{jobs.name}"

    def experiments(scale: Scale) -> Sequence[Experiment]:
        grid = {"alpha": _steps(jobs, scale)}
        tables = [PolicyTable(name=policy, grid=grid) for policy in (PRINTED, OURS)]
        if not jobs.is_trace:
            tables.append(PolicyTable(name=PRINTED, label=FIXED, arguments={"mu": MU}, grid=grid))
        return [
            jobs.experiment(
                "alpha",
                scale,
                jobs.seeds,
                settings={**jobs.heavy, "beta": 0.8},
                policies=["fair", *tables],
            )
        ]

    def numbers(found: Found) -> pl.DataFrame:
        results, rows = found[name], []
        for label in results.policies:
            policy, _, alpha = label.partition(":alpha=")
            if not alpha:
                continue
            shown = {"a: utility": over(results, label, "fair")}
            shown |= {f"b: {reading}": _moved(results, label, reading) for reading in MOVES}
            rows += [
                {
                    "panel": panel,
                    "line": policy,
                    "x": float(alpha),
                    "mean": of.mean,
                    "low": of.low,
                    "high": of.high,
                }
                for panel, of in shown.items()
            ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def lines(found: Found) -> dict[str, str]:
        named = {"as printed": PRINTED, "opm": OURS, FIXED: FIXED}
        return {v: p for v, p in named.items() if f"{p}:alpha={SMALL}" in found[name].policies}

    def readings(found: Found) -> list[tuple[str, str, str]]:
        return [
            (v, p, reading)
            for v, p in lines(found).items()
            for reading in MOVES
            if reading != "swaps" or p == PRINTED
        ]

    def gain(alpha: float) -> Claim:
        paper = 40.0 if alpha == SMALL else 17.0
        return Claim(
            f"OPM over Fair at α = {alpha:g}, %",
            paper,
            lambda found: {
                v: over(found[name], f"{p}:alpha={alpha}", "fair") for v, p in lines(found).items()
            },
            near(paper),
            UNIT,
        )

    def moved(alpha: float) -> Claim:
        paper = 20.0 if alpha == SMALL else 3.0
        return Claim(
            f"machines with a migration per slot at α = {alpha:g}, %",
            paper,
            lambda found: {
                f"{v}, {reading}": _moved(found[name], f"{p}:alpha={alpha}", reading)
                for v, p, reading in readings(found)
            },
            near(paper, 0.5),
            MIGRATION,
        )

    def less_utility(found: Found) -> dict[str, Estimate]:
        def gains(label: str) -> dict[int, float]:
            mine, fair = (by_seed(found[name], "reward.total", p) for p in (label, "fair"))
            return {seed: 100 * (mine[seed] / fair[seed] - 1) for seed in mine}

        return {
            v: of_difference(gains(f"{p}:alpha={SMALL}"), gains(f"{p}:alpha={LARGE}"))
            for v, p in lines(found).items()
        }

    def fewer_moves(found: Found) -> dict[str, Estimate]:
        return {
            f"{v}, {reading}": of_difference(
                _moves(found[name], f"{p}:alpha={SMALL}", reading),
                _moves(found[name], f"{p}:alpha={LARGE}", reading),
            )
            for v, p, reading in readings(found)
        }

    return Artefact(
        "opm",
        f"figure-3{jobs.suffix}",
        f"step size and migration, {jobs.name} jobs",
        experiments,
        numbers,
        (
            Panel("a: utility", "α", "overall utility over Fair's, %", "points", log_x=True),
            *(
                Panel(f"b: {reading}", "α", "machines per slot, %", "points", log_x=True)
                for reading in MOVES
            ),
        ),
        (
            gain(SMALL),
            gain(LARGE),
            Claim("lead over Fair, α = 0.6 less α = 6, points", 23.0, less_utility, above(), UNIT),
            moved(SMALL),
            moved(LARGE),
            Claim(
                "machines with a migration, α = 0.6 less α = 6, points",
                17.0,
                fewer_moves,
                above(),
                "with draws that are coupled from slot to slot a small step moves little; with "
                "fresh draws a large one leaves little to chance",
            ),
        ),
        jobs.trace,
    )


def _moves(results: Results, label: str, reading: str) -> dict[int, float]:
    """Share of the machines per slot, in per cent, by seed."""
    machines = results.experiment["settings"].get("machines")
    if machines is None:
        machines = 1000 if results.experiment["scenario"] == "opm-google-v1" else 100
    found = by_seed(results, f"{MOVES[reading]}.mean", label)
    return {seed: 100 * value / machines for seed, value in found.items()}


def _moved(results: Results, label: str, reading: str) -> Estimate:
    return mean_and_interval(list(_moves(results, label, reading).values()))
