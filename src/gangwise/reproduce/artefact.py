"""What a figure, a table or a theorem of a paper is: experiments, numbers, a picture, claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gangwise.experiments.statistics import Estimate
from gangwise.report.picture import Panel

if TYPE_CHECKING:
    import polars as pl

    from gangwise.experiments.results import Results
    from gangwise.experiments.specification import Experiment


Found = Mapping[str, "Results"]
"""Results by the name of their experiment."""

Verdict = Literal["agrees", "differs", "open"]
"""Open: the interval is too wide to tell."""


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
    judge : callable
        What an estimate says of the claim, see :func:`near`, :func:`above`, :func:`below`.
    why : str
        Where ours differs or may: what the paper leaves open, a misprint, the algorithm.
    timed : bool
        A computation time: it differs from run to run, and is not among the results to find again.
    """

    says: str
    paper: float | str
    ours: Callable[[Found], Mapping[str, Estimate]]
    judge: Callable[[Estimate], Verdict]
    why: str = ""
    timed: bool = False


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
        What is drawn, as a tidy table: see :mod:`gangwise.report.picture`.
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


def near(number: float, within: float = 0.25) -> Callable[[Estimate], Verdict]:
    """Whether our mean is the paper's number, give or take a share of it.

    It differs when no part of the interval is, and is open when some part is, but not the mean.

    Examples
    --------
    >>> near(10.0)(Estimate(12.0, 9.0, 15.0)), near(10.0)(Estimate(14.0, 12.0, 16.0))
    ('agrees', 'open')
    >>> near(10.0)(Estimate(14.0, 13.0, 15.0))
    'differs'
    """
    slack = within * abs(number)

    def judge(found: Estimate) -> Verdict:
        low, high = _ends(found)
        if abs(found.mean - number) <= slack:
            return "agrees"
        return "open" if low <= number + slack and high >= number - slack else "differs"

    return judge


def above(level: float = 0.0) -> Callable[[Estimate], Verdict]:
    """Agrees when all of the interval is above a level, and differs when none of it is."""

    def judge(found: Estimate) -> Verdict:
        low, high = _ends(found)
        return "agrees" if low > level else "differs" if high < level else "open"

    return judge


def below(level: float = 0.0) -> Callable[[Estimate], Verdict]:
    """Agrees when all of the interval is below a level, and differs when none of it is."""

    def judge(found: Estimate) -> Verdict:
        low, high = _ends(found)
        return "agrees" if high < level else "differs" if low > level else "open"

    return judge


def _ends(found: Estimate) -> tuple[float, float]:
    if found.low is None or found.high is None:
        return found.mean, found.mean
    return found.low, found.high


def over(results: Results, policy: str, base: str, **cell: object) -> Estimate:
    """How much more ``policy`` earns than ``base``, in per cent, paired over seeds.

    Parameters
    ----------
    results : Results
    policy, base : str
    **cell
        Values of the settings that vary, where any do.
    """
    import polars as pl

    rows = results.improvements(base).filter(pl.col("policy") == policy)
    for key, value in cell.items():
        rows = rows.filter(pl.col(key) == value)
    if rows.height != 1 or not rows["percent"].item():
        raise ValueError(f"{rows.height} rows of {policy} over {base} in {dict(cell)}")
    return Estimate(rows["mean"].item(), rows["low"].item(), rows["high"].item())
