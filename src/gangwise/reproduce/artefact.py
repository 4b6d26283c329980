"""What a figure, a table or a theorem of a paper is, and estimates made of what runs earned.

An :class:`Artefact` has experiments, numbers, a picture and claims. Its estimates come from
cumulative curves, which are recorded at some slots and interpolated between them; all are paired:
each seed is the same arrivals and the same noise for every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.plotting import Panel

Found = Mapping[str, "Results"]
"""Results by the name of their experiment."""

Verdict = Literal["agrees", "other-size", "differs", "open", "depends", "uncompared"]
"""Other size: the same direction as the paper's number, but no part of the interval is near it.
Open: the interval is too wide to tell. Depends: on which rows of a trace the authors took.
Uncompared: the paper says nothing of it; it counts nowhere.
"""

ON_ROWS = "-traces"
"""What ends the name of an artefact that is played on rows of the traces."""

AT = " @ "
"""Between a version and the reading of what the paper leaves open, see
:mod:`gangwise.reproduce.traced`."""


class Rule(Protocol):
    """A rule of judgement, with its margin: part of a claim, so fixed before anything is run."""

    @property
    def text(self) -> str:
        """When ours agrees."""

    def __call__(self, found: Estimate) -> Verdict:
        """What an estimate says of the claim."""


@dataclass(frozen=True)
class Near:
    """Near: agrees when our mean is the paper's number, give or take a share of it.

    It is open when some part of the interval is near, but not the mean; of another size when the
    interval is on the number's side of zero all the same; else it differs.

    Examples
    --------
    >>> rule = Near(10.0)
    >>> rule(Estimate(12.0, 9.0, 15.0)), rule(Estimate(14.0, 12.0, 16.0))
    ('agrees', 'open')
    >>> rule(Estimate(14.0, 13.0, 15.0)), rule(Estimate(0.3, -0.1, 0.7))
    ('other-size', 'differs')
    """

    number: float
    within: float = 0.25

    @property
    def text(self) -> str:
        """When ours agrees."""
        return f"the mean is within {100 * self.within:.3g} % of {self.number:g}"

    def __call__(self, found: Estimate) -> Verdict:
        """What an estimate says of the claim."""
        (low, high), slack = _ends(found), self.within * abs(self.number)
        if abs(found.mean - self.number) <= slack:
            return "agrees"
        if low <= self.number + slack and high >= self.number - slack:
            return "open"
        return "other-size" if min(low * self.number, high * self.number) > 0 else "differs"


@dataclass(frozen=True)
class Above:
    """Above: agrees when all of the interval is above a level, and differs when none of it is."""

    level: float = 0.0

    @property
    def text(self) -> str:
        """When ours agrees."""
        return f"the whole interval is above {self.level:g}"

    def __call__(self, found: Estimate) -> Verdict:
        """What an estimate says of the claim."""
        low, high = _ends(found)
        return "agrees" if low > self.level else "differs" if high < self.level else "open"


@dataclass(frozen=True)
class Below:
    """Below: agrees when all of the interval is below a level, and differs when none of it is."""

    level: float = 0.0

    @property
    def text(self) -> str:
        """When ours agrees."""
        return f"the whole interval is below {self.level:g}"

    def __call__(self, found: Estimate) -> Verdict:
        """What an estimate says of the claim."""
        low, high = _ends(found)
        return "agrees" if high < self.level else "differs" if low > self.level else "open"


@dataclass(frozen=True)
class NotCompared:
    """Not compared: the paper says nothing of it, or not in which unit or on what."""

    text = "not judged"

    def __call__(self, found: Estimate) -> Verdict:
        """Nothing."""
        return "uncompared"


def _ends(found: Estimate) -> tuple[float, float]:
    if found.low is None or found.high is None:
        return found.mean, found.mean
    return found.low, found.high


@dataclass(frozen=True)
class Scale:
    """How much is played.

    Parameters
    ----------
    quick : bool
        Small enough for a coffee break, rather than what the paper played.
    seeds : tuple of int, optional
        Instead of the artefact's own.
    traces : path, optional
        Folder with the folders of public traces; artefacts that need one are left out without.
    """

    quick: bool = False
    seeds: tuple[int, ...] | None = None
    traces: Path | None = None

    def pick(self, quick: int, full: int) -> int:
        """One number for each scale."""
        return quick if self.quick else full

    def first_seeds(self, quick: int, full: int) -> list[int]:
        """Seeds from 100 on, unless others were asked for."""
        if self.seeds is not None:
            return list(self.seeds)
        return list(range(100, 100 + self.pick(quick, full)))


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, and our number for it.

    Parameters
    ----------
    says : str
        What the number is, with its unit: ``"ESDP over LWTF at T = 8000, %"``.
    paper : float or str
        The paper's number, or its statement where it gives none.
    ours : callable
        From results to estimates, by version of the algorithm (``"as printed"``, ``"esdp"``).
    judge : Rule
        When ours agrees: :class:`Near`, :class:`Above`, :class:`Below`; :class:`NotCompared`.
    why : str
        Where ours differs or may: what the paper leaves open, a misprint, the algorithm.
    timed : bool
        A computation time: it differs from run to run, and is not among the results to find again.
    beside : tuple of str
        Versions that are not the paper's algorithm but rivals of it: shown, and not judged by what
        the paper says of its own.

    Raises
    ------
    ValueError
        For a number of a paper that is to be judged by its sign alone.
    """

    says: str
    paper: float | str
    ours: Callable[[Found], Mapping[str, Estimate]]
    judge: Rule
    why: str = ""
    timed: bool = False
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.paper, float) and not isinstance(self.judge, Near | NotCompared):
            raise ValueError(f"{self.says}: {self.paper} is a number; ours must be near it")

    def verdict(self, version: str, found: Estimate) -> Verdict:
        """What the estimate of a version says of the claim."""
        version = version.partition(AT)[0]
        rival = any(version == name or version.startswith(f"{name}, ") for name in self.beside)
        return "uncompared" if rival else self.judge(found)


@dataclass(frozen=True, eq=False)
class Artefact:
    """A figure, a table or a theorem.

    Parameters
    ----------
    paper, name, title : str
        Such as ``"esdp"``, ``"figure-2"``, ``"AOU against time slots"``.
    experiments : callable
        The experiments at a scale. Artefacts that need the same runs share them.
    numbers : callable
        What is drawn, as a tidy table: see :mod:`gangwise.report.plotting`.
    panels : sequence of Panel
        The paper's axes.
    claims : sequence of Claim
    trace : str
        Folder of the public trace that it needs, empty for none.
    """

    paper: str
    name: str
    title: str
    experiments: Callable[[Scale], Sequence[Experiment]]
    numbers: Callable[[Found], pl.DataFrame]
    panels: Sequence[Panel]
    claims: Sequence[Claim] = ()
    trace: str = ""

    @property
    def stem(self) -> str:
        """What its files are called."""
        return f"{self.paper}-{self.name}"


def over(results: Results, policy: str, base: str, **cell: object) -> Estimate:
    """How much more ``policy`` earns than ``base``, in per cent, paired over seeds.

    Parameters
    ----------
    results : Results
    policy, base : str
    **cell
        Values of the settings that vary, where any do.
    """
    rows = results.improvements(base).filter(pl.col("policy") == policy)
    for key, value in cell.items():
        rows = rows.filter(pl.col(key) == value)
    if rows.height != 1 or not rows["percent"].item():
        raise ValueError(f"{rows.height} rows of {policy} over {base} in {dict(cell)}")
    return Estimate(rows["mean"].item(), rows["low"].item(), rows["high"].item())


NAMES: Mapping[str, str] = {"omniscient_realised": "optimum"}
"""What lines are called where it is not the policy's name."""


@lru_cache(maxsize=64)
def _cumulative(results: Results, metric: str) -> dict[tuple[Any, ...], tuple[Floats, Floats]]:
    """Slots [n] and sums over them [seeds, n], by the values of the cell and the policy."""
    rows = results.rows().filter(pl.col("metric") == f"{metric}.cumulative")
    found = {}
    by = [*results.cells, "policy"]
    for group, part in rows.sort("seed", "at").collect().group_by(by, maintain_order=True):
        at = part["at"].unique().sort().to_numpy().astype(np.float64)
        found[group] = at, part["value"].to_numpy().reshape(-1, at.size)
    return found


def curve(
    results: Results, who: str, metric: str, cell: Mapping[str, Any]
) -> tuple[Floats, Floats]:
    """Slots, shape [n], and sums over so many of them, shape [seeds, n]."""
    known = _cumulative(results, metric)
    key = (*(cell[name] for name in results.cells), who)
    if key not in known:
        raise StoreError(f"no curve of {metric} for {who} in {dict(cell)}")
    return known[key]


def recorded(results: Results, who: str, **cell: Any) -> Floats:
    """The slots at which the curve was recorded."""
    return curve(results, who, "reward", cell)[0]


def values(results: Results, key: str) -> list[Any]:
    """The values of a setting that varies, ascending."""
    return sorted({run["cell"][key] for run in results.runs})


def so_far(
    results: Results, who: str, at: float | None = None, metric: str = "reward", **cell: Any
) -> Floats:
    """Sum over the first ``at`` slots, or over all; shape [seeds]."""
    slots, sums = curve(results, who, metric, cell)
    if at is None:
        return sums[:, -1]
    return np.array([np.interp(at, slots, row) for row in sums])


def per_slot(
    results: Results, who: str, first: float, last: float, metric: str = "reward", **cell: Any
) -> Floats:
    """Mean over the slots after ``first`` up to ``last``; shape [seeds]."""
    end = so_far(results, who, last, metric, **cell)
    return (end - so_far(results, who, first, metric, **cell)) / (last - first)


def lead(results: Results, who: str, base: str, at: float | None = None, **cell: Any) -> Estimate:
    """How much more ``who`` has earned than ``base``, in per cent of what that is without sign:
    more is more where rewards are negative, too.
    """
    a, b = so_far(results, who, at, **cell), so_far(results, base, at, **cell)
    return mean_and_interval(100 * (a - b) / np.abs(b))


def change(results: Results, who: str, key: str, first: Any, last: Any) -> Estimate:
    """How much more is earned with one value of a setting than with another, in per cent."""
    before, after = (so_far(results, who, **{key: value}) for value in (first, last))
    return mean_and_interval(100 * (after - before) / np.abs(before))


def from_optimum(earned: Floats, best: Floats) -> Estimate:
    """Mean of what was earned, with the interval of its distance from the optimum.

    Scenarios differ far more from seed to seed than policies do in any of them, and by the same for
    all: what tells policies apart is the distance from what could be earned there.
    """
    mean, distance = float(earned.mean()), mean_and_interval(best - earned)
    if distance.half is None or np.array_equal(earned, best):
        return Estimate(mean, None, None)
    return Estimate(mean, mean - distance.half, mean + distance.half)


def least(estimates: Iterable[Estimate]) -> Estimate:
    """The one with the smallest mean."""
    return min(estimates, key=lambda estimate: estimate.mean)


def smallest_step(
    results: Results, who: str, key: str, among: Sequence[Any] | None = None
) -> Estimate:
    """The smallest change from a value of a setting to the next one, in per cent."""
    steps = values(results, key) if among is None else list(among)
    return least(change(results, who, key, a, b) for a, b in pairwise(steps))


def smallest_lead(results: Results, who: str, key: str, over: Iterable[str]) -> Estimate:
    """The smallest lead over any of some policies at any value of a setting, in per cent."""
    return least(
        lead(results, who, base, **{key: value}) for value in values(results, key) for base in over
    )


def table(rows: Sequence[tuple[str, str, float | str, Estimate]]) -> pl.DataFrame:
    """Rows of panel, line, x and estimate, as pictures want them."""
    return pl.DataFrame(
        [(panel, NAMES.get(line, line), x, *estimate) for panel, line, x, estimate in rows],
        schema=["panel", "line", "x", "mean", "low", "high"],
        orient="row",
        infer_schema_length=None,
    )
