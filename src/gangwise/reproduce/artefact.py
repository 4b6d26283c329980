"""What a figure, a table or a theorem of a paper is, what the paper claims, and when we agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate
from gangwise.report.plotting import Panel

Found = Mapping[str, Results]
"""Results by the name of their experiment."""

ON_ROWS = "-traces"
"""What ends the name of an artefact that is played on rows of the traces."""

AT = " @ "
"""Between a version and the reading of which rows of the traces the authors took."""


@dataclass(frozen=True)
class Rule:
    """When ours agrees with a claim: near a number, or with all of its interval on one side.

    Near a number, the mean decides: it is the number, give or take a share of it. Another size is
    another number, whatever its sign. ``above`` and ``below`` together are a range; without any of
    the three nothing is compared.

    >>> rule = Rule(near=10.0)
    >>> rule(Estimate(12.0, 9.0, 15.0)), rule(Estimate(14.0, 9.0, 19.0))
    (True, False)
    >>> Rule(above=0.0)(Estimate(1.0, -1.0, 3.0)), Rule(below=0.0, above=-5.0)(Estimate(-3, -4, -2))
    (False, True)
    >>> Rule()(Estimate(1.0, 0.0, 2.0)) is None
    True
    """

    near: float | None = None
    within: float = 0.25  # share of the number that is near
    above: float | None = None
    below: float | None = None

    @property
    def compares(self) -> bool:
        return (self.near, self.above, self.below) != (None, None, None)

    @property
    def text(self) -> str:
        if self.near is not None:
            return f"the mean is within {100 * self.within:.3g} % of {self.near:g}"
        sides = [
            f"{side} {level:g}"
            for side, level in (("above", self.above), ("below", self.below))
            if level is not None
        ]
        return f"the whole interval is {' and '.join(sides)}" if sides else "not judged"

    def __call__(self, found: Estimate) -> bool | None:
        """Whether an estimate agrees; None where nothing is compared."""
        if not self.compares:
            return None
        if self.near is not None:
            return abs(found.mean - self.near) <= self.within * abs(self.near)
        low, high = (found.mean if v is None else v for v in found[1:])
        return (self.above is None or low > self.above) and (
            self.below is None or high < self.below
        )


@dataclass(frozen=True)
class RunScale:
    """How much is played: as much as in the paper, or less."""

    quick: bool = False  # small enough for a coffee break, rather than what the paper played
    seeds: tuple[int, ...] | None = None  # instead of the artefact's own
    traces: Path | None = None  # with folders of public traces, without which some are left out

    def first_seeds(self, own: int | list[int]) -> list[int]:
        """So many seeds from 100 on, or these, unless others were asked for."""
        own = own if isinstance(own, list) else list(range(100, 100 + own))
        return own if self.seeds is None else list(self.seeds)


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, and our number for it.

    ValueError for a number of a paper that is to be judged by its sign alone.
    """

    says: str  # what the number is, with its unit: "ESDP over LWTF at T = 8000, %"
    paper: float | str  # the paper's number, or its statement where it gives none
    ours: Callable[[Found], Mapping[str, Estimate]]  # by version of the algorithm: "as printed"
    rule: Rule
    why: str = ""  # where ours differs or may: what the paper leaves open, a misprint, …
    timed: bool = False  # a computation time, which no run finds again
    # Versions that are shown and not tested: rivals of the paper's algorithm, measured with another
    # method than the paper's, or with a number that is what it is by definition.
    beside: tuple[str, ...] = ()
    every: str = ""  # all "versions", or all settings ("on"), must agree; else each is a reading
    # What a row is called → its version and its setting; empty where all must agree.
    readings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    sentence: str = ""  # the claim as a sentence, if it is one of the ten of the paper's page

    def __post_init__(self) -> None:
        by_side = (self.rule.above, self.rule.below) != (None, None)
        if isinstance(self.paper, float) and by_side:
            raise ValueError(f"{self.says}: {self.paper} is a number; ours must be near it")

    def agrees(self, version: str, found: Estimate) -> bool | None:
        """Whether our number for a version does; None where it is not tested."""
        version = version.partition(AT)[0]
        rival = any(version == name or version.startswith(f"{name}, ") for name in self.beside)
        return None if rival else self.rule(found)

    @property
    def rule_text(self) -> str:
        """All that decides its word, in words: what is hashed."""
        every = {"versions": "; of every policy named", "on": "; in every setting"}
        beside = f"; not tested: {', '.join(self.beside)}" * bool(self.beside)
        return self.rule.text + every.get(self.every, "") + beside


@dataclass(frozen=True, eq=False)
class Artefact:
    """A figure, a table or a theorem; those that need the same runs share them."""

    paper: str  # "esdp"
    name: str  # "figure-2"
    title: str  # "AOU against time slots"
    experiments: Callable[[RunScale], Sequence[Experiment]]
    numbers: Callable[[Found], pl.DataFrame]  # what is drawn, see gangwise.report.plotting
    panels: Sequence[Panel]  # the paper's axes
    claims: Sequence[Claim] = ()
    trace: str = ""  # folder of the public trace that it needs, if any

    @property
    def stem(self) -> str:
        return f"{self.paper}-{self.name}"
