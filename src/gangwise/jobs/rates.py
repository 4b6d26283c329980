"""What is believed of rates: labels, a mean per (job type, node), shared factors.

A learner is given to :class:`gangwise.jobs.choice.ByRate`; it hears rates, says what it believes
and how sure it is, and names the nodes that are slower than their label says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.jobs import rate_kernels
from gangwise.jobs.model import Nodes
from gangwise.jobs.rate_kernels import LABELS, MEANS, SHARED, Beliefs, Constants

UNLABELLED = Constants(f=0.3, e=0.2)
"""Priors where nodes declare nothing, so that they may differ by much."""


class SlowNode(NamedTuple):
    """A node that is slower than its label says."""

    node: str
    slower: float  # share of the rate that is missing: 0.48 at 52 % of what its kind does
    low: float  # 95 % credible interval of it
    high: float


class KnownNode(NamedTuple):
    """What is known of a node by itself: f given a, and residuals by job type."""

    generation: str
    f: tuple[float, float, float]  # mean at a = 0, variance, when last seen
    of_type: dict[str, tuple[float, float, float]]  # slope on a, sum and count of residuals

    @classmethod
    def of(cls, b: Beliefs, n: int, types: Sequence[str], generation: str) -> KnownNode:
        each = zip(types, b.f_slope[n], b.e_sum[:, n], b.e_count[:, n], strict=True)
        of_type = {name: (float(h), float(s), float(c)) for name, h, s, c in each}
        f = float(b.f_mean[n]), float(b.f_var[n]), float(b.f_time[n])
        return cls(generation, f, of_type)

    def put(self, b: Beliefs, n: int, types: Sequence[str]) -> None:
        b.f_mean[n], b.f_var[n], b.f_time[n] = self.f
        for l, name in enumerate(types):
            if name in self.of_type:
                b.f_slope[n, l], b.e_sum[l, n], b.e_count[l, n] = self.of_type[name]


@dataclass
class Rates:
    """What learners share: nodes and job types by name, and the compiled state.

    Parameters
    ----------
    constants : Constants
        What is assumed of rates, and the constants of decisions.
    generation : str, optional
        Label of nodes whose values are generations, such as ``gpu-model``. Without, nodes that
        declare the same rates are one generation.
    """

    constants: Constants = field(default_factory=Constants)
    generation: str | None = None
    state: Beliefs | None = field(default=None, init=False, repr=False)
    nodes: tuple[str, ...] = field(default=(), repr=False)
    types: tuple[str, ...] = field(default=(), repr=False)
    generations: tuple[str, ...] = field(default=(), repr=False)
    _away: dict[str, KnownNode] = field(default_factory=dict, init=False, repr=False)
    kind: ClassVar[int] = LABELS

    def __post_init__(self) -> None:
        c = self.constants
        bad = [k for k, v in c._asdict().items() if not (math.isfinite(v) and v >= 0)]
        if bad:
            raise ScenarioError(f"{bad[0]} is {getattr(c, bad[0])}; it must be zero or more")
        if c.a <= 0 or c.epsilon <= 0 or c.memory <= 0:
            raise ScenarioError("a, epsilon and memory must be positive")

    def beliefs(self, nodes: Nodes, job_types: Sequence[str]) -> Beliefs:
        """State for these nodes and job types; what was learned of those known before stays."""
        named = [repr(rate) for rate in nodes.rates]
        if self.generation is not None:
            named = [str(has.get(self.generation, "")) for has in nodes.labels]
        generations = tuple(dict.fromkeys([*self.generations, *named]))
        generation = np.array([generations.index(name) for name in named], dtype=np.int64)
        devices = np.zeros(len(generations))
        held = nodes.capacity[:, np.argmax(nodes.capacity.sum(axis=0))] / 1000.0
        np.add.at(devices, generation, held)
        labels = np.log(nodes.declared(job_types))
        new = rate_kernels.no_beliefs(
            self.kind, labels, generation, len(generations), self.constants, devices
        )
        if (old := self.state) is not None:
            for n, name in enumerate(self.nodes):  # of those that leave it is kept for their return
                of = self.generations[old.generation[n]]
                self._away[name] = KnownNode.of(old, n, self.types, of)
            self._keep(new, old, tuple(job_types))
            stayed = set(self.nodes)
            for n, name in enumerate(nodes.names):
                known = self._away.pop(name, None)
                alike = known is not None and known.generation == generations[generation[n]]
                if known is not None and (alike or name in stayed):
                    known.put(new, n, tuple(job_types))
            _refer_to_generations(new)
        self.state, self.nodes, self.types = new, nodes.names, tuple(job_types)
        self.generations = generations
        return new

    def _keep(self, new: Beliefs, old: Beliefs, types: tuple[str, ...]) -> None:
        """Copy what the old state knows of generations, and of job types that are still there."""
        place = {name: l for l, name in enumerate(types)}
        l_old = [l for l, name in enumerate(self.types) if name in place]
        l_new = [place[self.types[l]] for l in l_old]
        G = old.a_mean.shape[0]
        for g in range(G):
            new.a_mean[g, l_new] = old.a_mean[g, l_old]
            new.a_cov[g][np.ix_(l_new, l_new)] = old.a_cov[g][np.ix_(l_old, l_old)]
        new.release[:G] = old.release
        new.backlog[:G] = old.backlog
        new.release_time[:] = old.release_time
        new.ratio[:], new.seen[:] = old.ratio, old.seen
        new.needs[l_new] = old.needs[l_old]

    def _bound(self) -> Beliefs:
        if self.state is None:
            raise ScenarioError("no nodes yet: call beliefs(nodes, job_types) first")
        return self.state

    def observe(
        self, job_type: str, nodes: Sequence[str], rates: Sequence[float], now: float = 0.0
    ) -> None:
        """Learn from one gang: its ranks ran on ``nodes`` at ``rates``, work per second."""
        state = self._bound()
        l = _index("job type", job_type, self.types)
        at = np.array([_index("node", name, self.nodes) for name in nodes], dtype=np.int64)
        if len(rates) != at.size or not all(r > 0 and math.isfinite(r) for r in rates):
            raise ScenarioError(f"{at.size} nodes have the rates {list(rates)}; one each, above 0")
        rate_kernels.observe(state, l, at, np.log(np.asarray(rates)), at.size, True, now)

    def estimate(self, job_type: str, now: float = 0.0) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the log rate on every node, both [N]."""
        state = self._bound()
        mean, sd = np.empty(len(self.nodes)), np.empty(len(self.nodes))
        rate_kernels.believe(state, _index("job type", job_type, self.types), now, mean, sd)
        return mean, sd

    def slow_nodes(self, by: float = 0.05) -> list[SlowNode]:
        """Nodes more than ``by`` slower than their kind; none where nothing is shared."""
        return []


@dataclass
class Labels(Rates):
    """Declared rates are believed; only how much of its limit a job needs is learned."""

    kind: ClassVar[int] = LABELS


@dataclass
class MeanRates(Rates):
    """A mean per (job type, node), with ESDP's index v̂ + √(ln(t + 1) / 2n), ESDP (9) and (10).

    t counts the gangs observed. Channels never used come first, so that every job type is tried
    on every node: L × N cold starts, which is what this loses by.
    """

    kind: ClassVar[int] = MEANS


@dataclass
class SharedFactors(Rates):
    """log rate = log label + a[type, generation] + f[node] + e[type, node] + u[job] + ε.

    Exact posterior means and variances of a and f, from recursive least squares
    (:mod:`gangwise.jobs.rate_kernels`); e shrunk residual means. An innovation beyond three
    standard deviations widens f[node] by 0.4 first, so that stragglers and healing are found at
    once.

    Examples
    --------
    >>> from gangwise.jobs.model import Nodes
    >>> rates = SharedFactors()
    >>> state = rates.beliefs(Nodes.alike(8, {"gpu": 8}), ["train"])
    >>> for _ in range(5):
    ...     for n in range(8):
    ...         rates.observe("train", [f"n{n}"], [0.5 if n == 3 else 1.0])
    >>> [(s.node, round(s.slower, 2)) for s in rates.slow_nodes()]
    [('n3', 0.49)]
    """

    kind: ClassVar[int] = SHARED

    def slow_nodes(self, by: float = 0.05) -> list[SlowNode]:
        """Nodes that are surely (97.5 %) more than ``by`` slower than their kind; worst first."""
        mean, sd = self.node_factors()
        slow = []
        for name, m, s in zip(self.nodes, mean.tolist(), sd.tolist(), strict=True):
            if m + 1.96 * s < math.log1p(-by):
                low, high = 1 - math.exp(m + 1.96 * s), 1 - math.exp(m - 1.96 * s)
                slow.append(SlowNode(name, 1 - math.exp(m), low, high))
        return sorted(slow, key=lambda node: -node.slower)

    def node_factors(self) -> tuple[Floats, Floats]:
        """Posterior mean and standard deviation of f [N]."""
        b = self._bound()
        return b.f_mean - b.f_shift, np.sqrt(b.f_var + b.f_extra)


def _index(kind: str, name: str, known: tuple[str, ...]) -> int:
    if name not in known:
        raise UnknownName(kind, name, list(known))
    return known.index(name)


def _refer_to_generations(b: Beliefs) -> None:
    """Bring h·μ, Σh and h·Σh up to date with the a of each node's generation."""
    b.f_shift[:] = (b.f_slope * b.a_mean[b.generation]).sum(axis=1)
    b.f_cross[:] = np.einsum("nij,nj->ni", b.a_cov[b.generation], b.f_slope)
    b.f_extra[:] = (b.f_slope * b.f_cross).sum(axis=1)
