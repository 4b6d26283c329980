"""What a figure, a table or a theorem of a paper is, what the paper claims, and when we agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate
from gangwise.report.plotting import Panel
from gangwise.report.reproduction import Verdict

Found = Mapping[str, Results]
"""Results by the name of their experiment."""

ON_ROWS = "-traces"
"""What ends the name of an artefact that is played on rows of the traces."""

AT = " @ "
"""Between a version and the reading of which rows of the traces the authors took."""

FACTOR = 3.0
"""Beyond this factor, about √10, a number and our mean are of two orders of magnitude, and a common
sign is all that they share."""


@dataclass(frozen=True)
class Rule:
    """When ours agrees with a claim: part of the claim, so fixed before anything is run.

    Near a number, ours agrees when the mean is the number, give or take a share of it. It is open
    when some part of the interval is near, but not the mean; of another size when the whole
    interval is on the number's side of zero and the mean within :data:`FACTOR` of the number; else
    it differs. Above or below a level, ours agrees when all of the interval is on that side, and
    differs when none of it is. With none of the three nothing is compared.

    Parameters
    ----------
    near, above, below : float, optional
        One of the three, or none.
    within : float
        Share of the number that is near.

    Examples
    --------
    >>> rule = Rule(near=10.0)
    >>> rule(Estimate(12.0, 9.0, 15.0)), rule(Estimate(14.0, 12.0, 16.0))
    ('agrees', 'open')
    >>> rule(Estimate(14.0, 13.0, 15.0)), rule(Estimate(0.3, -0.1, 0.7))
    ('other-size', 'differs')
    >>> rule(Estimate(55.0, 54.0, 56.0)), rule(Estimate(2.0, 1.0, 3.0))
    ('differs', 'differs')
    >>> Rule(above=0.0)(Estimate(1.0, -1.0, 3.0))
    'open'
    """

    near: float | None = None
    within: float = 0.25
    above: float | None = None
    below: float | None = None

    @property
    def compares(self) -> bool:
        """Whether there is anything to agree with."""
        return (self.near, self.above, self.below) != (None, None, None)

    @property
    def text(self) -> str:
        """When ours agrees, in words."""
        if self.near is not None:
            return (
                f"the mean is within {100 * self.within:.3g} % of {self.near:g}; of another size "
                f"up to {FACTOR:g} times it or 1/{FACTOR:g} of it"
            )
        if self.above is not None:
            return f"the whole interval is above {self.above:g}"
        return "not judged" if self.below is None else f"the whole interval is below {self.below:g}"

    def __call__(self, found: Estimate) -> Verdict:
        """What an estimate says of the claim."""
        low = found.mean if found.low is None else found.low
        high = found.mean if found.high is None else found.high
        if self.near is not None:
            return self._nearness(found.mean, low, high, self.near)
        if self.above is not None:
            return "agrees" if low > self.above else "differs" if high < self.above else "open"
        if self.below is not None:
            return "agrees" if high < self.below else "differs" if low > self.below else "open"
        return "uncompared"

    def _nearness(self, mean: float, low: float, high: float, number: float) -> Verdict:
        slack = self.within * abs(number)
        if abs(mean - number) <= slack:
            return "agrees"
        if low <= number + slack and high >= number - slack:
            return "open"
        if min(low * number, high * number) <= 0:
            return "differs"
        return "other-size" if 1.0 / FACTOR <= mean / number <= FACTOR else "differs"


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

    def first_seeds(self, number: int) -> list[int]:
        """So many seeds from 100 on, unless others were asked for."""
        return list(range(100, 100 + number) if self.seeds is None else self.seeds)


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
    rule : Rule
        When ours agrees.
    why : str
        Where ours differs or may: what the paper leaves open, a misprint, the algorithm.
    timed : bool
        A computation time: it differs from run to run, and is not among the results to find again.
    beside : tuple of str
        Versions that are not the paper's algorithm but rivals of it, or whose number is what it is
        by definition: shown, and not judged.

    Raises
    ------
    ValueError
        For a number of a paper that is to be judged by its sign alone.
    """

    says: str
    paper: float | str
    ours: Callable[[Found], Mapping[str, Estimate]]
    rule: Rule
    why: str = ""
    timed: bool = False
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        by_side = (self.rule.above, self.rule.below) != (None, None)
        if isinstance(self.paper, float) and by_side:
            raise ValueError(f"{self.says}: {self.paper} is a number; ours must be near it")

    def verdict(self, version: str, found: Estimate) -> Verdict:
        """What the estimate of a version says of the claim."""
        version = version.partition(AT)[0]
        rival = any(version == name or version.startswith(f"{name}, ") for name in self.beside)
        return "uncompared" if rival else self.rule(found)


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


def table(rows: Sequence[tuple[str, str, float | str, Estimate]]) -> pl.DataFrame:
    """Rows of panel, line, x and estimate, as pictures want them."""
    return pl.DataFrame(
        [(panel, line, x, *estimate) for panel, line, x, estimate in rows],
        schema=["panel", "line", "x", "mean", "low", "high"],
        orient="row",
        infer_schema_length=None,
    )
