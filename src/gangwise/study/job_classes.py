"""Cluster files with a job model, in TOML: nodes, and classes of jobs that are drawn.

``docs/how-to/replay.md`` has an example.

Arrivals are a Poisson process of the rate per_hour · (1 + cycle · cos(2π (hour − peak) / 24)). A
duration, seconds at rate 1, is a number, uniform between two (``[low, high]``), exponential with a
``mean``, or log-normal with a ``median`` and ``sigma``, drawn again where it exceeds ``most``.
Users of a class submit in shares 1, 1/2, 1/3, …
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from gangwise.core import arrays, settings, terminal
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.world import DrawnWorld
from gangwise.notation import duration, seconds
from gangwise.study.statistics import count

phrase = terminal.phrases("gangwise.study")

DAY = 86400.0

DEMO = "demo:gangs"  # in place of a file: the cluster that gangwise demo plays


_parsed = BeforeValidator(lambda value: seconds(value) if isinstance(value, str) else value)
Time = Annotated[float, _parsed, Field(gt=0, allow_inf_nan=False)]
"""Seconds, or text with a unit."""


class NodeGroup(settings.Group):
    devices: dict[str, float] = Field(min_length=1)
    labels: dict[str, str] = Field({})
    rate: float | dict[str, float] = 1.0


class PoissonArrivals(settings.StrictSettings):
    """A Poisson process, with a daily cycle if wanted."""

    per_hour: float = Field(gt=0, le=1e6)
    cycle: float = Field(0.0, ge=0, le=1)
    peak: float = Field(14.0, ge=0, lt=24)

    def draw(self, span: float, rng: np.random.Generator) -> arrays.Floats:
        # Thinning (Lewis and Shedler 1979): draw at the highest rate, keep with the ratio of rates.
        highest = self.per_hour * (1 + self.cycle) / 3600
        times = np.sort(rng.uniform(0, span, rng.poisson(highest * span)))
        # The log begins at midnight.
        angle = 2 * np.pi * (times / 3600 - self.peak) / 24
        keep = rng.uniform(0, 1 + self.cycle, times.size) < 1 + self.cycle * np.cos(angle)
        return np.asarray(times[keep])


class Duration(settings.StrictSettings):
    """A distribution of how long jobs run, in seconds at rate 1."""

    fixed: Time | None = None
    low: Time | None = None
    high: Time | None = None
    mean: Time | None = None
    median: Time | None = None
    sigma: float | None = Field(None, ge=0, le=5)
    most: Time | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, int | float | str):
            return {"fixed": value}
        if isinstance(value, list):
            if len(value) != 2:
                raise ValueError("a range has two ends, [low, high]")
            return {"low": value[0], "high": value[1]}
        return value

    @model_validator(mode="after")
    def _one(self) -> Duration:
        named = {k for k, v in self if k != "most" and v is not None}
        if named not in ({"fixed"}, {"low", "high"}, {"mean"}, {"median", "sigma"}):
            raise ValueError(
                "give a time, a range [low, high], a mean (exponential), or median and sigma "
                "(log-normal)"
            )
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError("the range [low, high] has its ends in the wrong order")
        middle = self.fixed or self.median or self.mean
        if self.low is not None and self.high is not None:
            middle = (self.low + self.high) / 2
        if self.most is not None and middle is not None and self.most < middle:
            raise ValueError(
                "most must not be below the time, the middle of the range, the mean or the median"
            )
        return self

    def draw(self, count: int, rng: np.random.Generator) -> arrays.Floats:
        values = self._once(count, rng)
        if self.most is not None:
            over = np.flatnonzero(values > self.most)
            while over.size:  # at least half of all values are below
                values[over] = self._once(over.size, rng)
                over = over[values[over] > self.most]
        return values

    def _once(self, count: int, rng: np.random.Generator) -> arrays.Floats:
        if self.fixed is not None:
            return np.full(count, self.fixed)
        if self.low is not None and self.high is not None:
            return rng.uniform(self.low, self.high, count)
        if self.mean is not None:
            return rng.exponential(self.mean, count)
        median, sigma = self.median or 1.0, self.sigma or 0.0  # one of four, as was checked
        return median * np.exp(rng.normal(0.0, sigma, count))

    def text(self) -> str:
        end = "" if self.most is None else f", at most {duration(self.most)}"
        if self.fixed is not None:
            return duration(self.fixed)
        if self.low is not None and self.high is not None:
            return f"uniform from {duration(self.low)} to {duration(self.high)}"
        if self.mean is not None:
            return f"exponential, mean {duration(self.mean)}{end}"
        return f"log-normal, median {duration(self.median or 1.0)}, sigma {self.sigma:g}{end}"


class JobClass(settings.StrictSettings):
    name: settings.Name
    devices: dict[str, float] = Field(min_length=1)
    tasks: dict[int, float] = Field({1: 1.0})
    per_node: int = Field(0, ge=0)
    constraint: dict[str, str] = Field({})
    arrivals: PoissonArrivals
    duration: Duration
    limit: settings.PositiveRange | None = None
    deadline: settings.PositiveRange | None = None
    priority: float = 0.0
    users: settings.Count = 1

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("tasks"), int):
            return {**value, "tasks": {value["tasks"]: 1.0}}
        return value

    @model_validator(mode="after")
    def _sensible(self) -> JobClass:
        shares = self.tasks.values()
        if not self.tasks or min(self.tasks) < 1 or min(shares) < 0 or sum(shares) <= 0:
            raise ValueError("tasks is a number, or shares by number, as { 1 = 0.6, 8 = 0.4 }")
        if min(self.devices.values()) < 0 or max(self.devices.values()) <= 0:
            raise ValueError("devices of a task: at least one must be positive, and none negative")
        return self


class Hidden(settings.StrictSettings):
    """Hidden part of the rates, see :class:`gangwise.jobs.world.DrawnWorld`."""

    affinity: float = Field(0.0, ge=0, le=3)
    residual: float = Field(0.0, ge=0, le=3)
    noise: float = Field(0.0, ge=0, le=3)
    stragglers: float = Field(0.0, ge=0, lt=1)
    straggling: float = Field(0.5, gt=0)
    spell: Time | None = None
    apart: float = Field(0.0, ge=0, le=100)
    unlike: float = Field(1.0, ge=0, le=3)


class ClusterOfJobs(settings.StrictSettings):
    """A cluster and the jobs that are submitted to it."""

    name: settings.Name
    days: float = Field(7.0, gt=0, le=3660)
    nodes: list[NodeGroup] = Field(min_length=1)
    jobs: list[JobClass] = Field(min_length=1)
    hidden: Hidden = Hidden()

    @model_validator(mode="after")
    def _sensible(self) -> ClusterOfJobs:
        for entries in (self.nodes, self.jobs):
            names = [entry.name for entry in entries]
            if len(set(names)) < len(names):
                raise ValueError(f"two of {names} have one name; give each its own")
        classes = [job.name for job in self.jobs]
        for group in self.nodes:
            rates = group.rate if isinstance(group.rate, dict) else {"": group.rate}
            if min(rates.values(), default=1.0) <= 0 or min(group.devices.values()) < 0:
                raise ValueError(f"nodes {group.name}: rates are positive, devices at least 0")
            for name in rates:
                if name and name not in classes:
                    raise UnknownName(f"class of jobs in the rate of {group.name}", name, classes)
        self.fitting()
        expected = self.days * 24 * sum(job.arrivals.per_hour for job in self.jobs)
        # Before anything is drawn: a typing error in a rate would fill the memory.
        settings.require_count(
            "the expected number of jobs", math.ceil(expected), settings.LARGEST_COUNT
        )
        settings.require_count("the number of nodes", sum(group.count for group in self.nodes))
        return self

    def fitting(self) -> None:
        """Raise ScenarioError for a class whose largest gang never fits."""
        for job in self.jobs:
            room = 0
            for group in self.nodes:
                if any(group.labels.get(k) != v for k, v in job.constraint.items()):
                    continue
                pairs = [(group.devices.get(k, 0.0), d) for k, d in job.devices.items() if d > 0]
                # A hair more, so that a quotient that is whole but for rounding counts as whole.
                on = min((int(capacity / d + 1e-9) for capacity, d in pairs), default=0)
                room += group.count * (min(on, job.per_node) if job.per_node else on)
            largest = max(size for size, share in job.tasks.items() if share > 0)
            if room < largest:
                raise ScenarioError(
                    f"jobs {job.name}: {largest} tasks never fit; all nodes that are allowed hold "
                    f"{room} at once"
                )

    @property
    def world(self) -> DrawnWorld:
        """The hidden rates as a drawn world, in which each group of nodes is a generation."""
        h, groups = self.hidden, self.nodes
        # A generation for each group, of equal rates: what differs is what the file declares.
        counts = np.array([group.count for group in groups])
        return DrawnWorld(
            speeds=[1.0] * len(groups),
            shares=(counts / counts.sum()).tolist(),
            spell=math.inf if h.spell is None else h.spell,
            **h.model_dump(exclude={"spell"}),
        )

    def node_table(self) -> Nodes:
        return Nodes.of(
            Node(name, group.devices, {"nodes": group.name, **group.labels}, group.rate)
            for group in self.nodes
            for name in group.names
        )

    def hide(self, jobs: Jobs, nodes: Nodes, seed: int) -> Conditions:
        """Rates of a seed: those declared, and what is hidden."""
        # Nodes are listed group by group.
        generation = np.repeat(np.arange(len(self.nodes)), [g.count for g in self.nodes])
        return self.world.hide(jobs, nodes, generation, seed).conditions

    def digest(self) -> str:
        # Files of before have no word of distance.
        unused = None if self.hidden.apart else {"hidden": {"apart", "unlike"}}
        return hashlib.sha256(self.model_dump_json(exclude=unused).encode()).hexdigest()

    def draw_jobs(self, seed: int) -> Jobs:
        """Jobs of a seed; classes have streams of their own, so that one more changes no other.

        Raises ScenarioError when no job is submitted.
        """
        span = self.days * DAY
        devices = list(dict.fromkeys(k for job in self.jobs for k in job.devices))
        parts: list[dict[str, Any]] = []
        for job in self.jobs:
            # The stream is seeded by the name, not by the place in the file.
            name = int.from_bytes(hashlib.sha256(job.name.encode()).digest()[:4], "big")
            rng = np.random.default_rng([seed, 21, name])
            submit = job.arrivals.draw(span, rng)
            J = submit.size
            run = job.duration.draw(J, rng)
            shares = np.array(list(job.tasks.values()), dtype=np.float64)
            submits = 1.0 / np.arange(1, job.users + 1)  # Zipf's law
            user = rng.choice(job.users, J, p=submits / submits.sum())
            part = {
                "submit": submit,
                "run": run,
                "tasks": rng.choice(np.array(list(job.tasks)), J, p=shares / shares.sum()),
                "limit": np.full(J, np.nan),
                "deadline": np.full(J, np.inf),
                "per_node": np.full(J, job.per_node),
                "priority": np.full(J, job.priority),
                # No limit was requested.
                "type": np.full(J, job.name),
                "user": np.array([f"{job.name}-{u}" if job.users > 1 else job.name for u in user]),
                "constraint": [job.constraint] * J,
                # As columns, to be sorted along with the jobs.
                **{f"of {k}": np.full(J, job.devices.get(k, 0.0)) for k in devices},
            }
            if job.limit is not None:
                part["limit"] = run * rng.uniform(*job.limit, J)
            if job.deadline is not None:
                part["deadline"] = submit + run * rng.uniform(*job.deadline, J)
            parts.append(part)
        if not sum(part["submit"].size for part in parts):
            raise ScenarioError(f"{self.name}: no job is submitted in {self.days:g} days")
        # Tables, which are not concatenated as arrays are.
        every = [constraint for part in parts for constraint in part.pop("constraint")]
        columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        order = np.argsort(columns["submit"], kind="stable")
        ordered: dict[str, Any] = {key: values[order] for key, values in columns.items()}
        demand = {k: ordered.pop(f"of {k}") for k in devices}
        return Jobs.of(**ordered, demand=demand, constraint=[every[i] for i in order.tolist()])

    def lines(self) -> list[str]:
        """Description of what is drawn: a line for the whole, and one for each class."""
        nodes = sum(group.count for group in self.nodes)
        says = {"nodes": nodes, "groups": count(len(self.nodes), "group"), "days": self.days}
        classes = count(len(self.jobs), "class", "classes")
        lines = [phrase("cluster of jobs", name=self.name, classes=classes, **says)]
        for job in self.jobs:
            a = job.arrivals
            least, most = min(job.tasks), max(job.tasks)
            tasks = str(least) if least == most else f"{least} to {most}"
            limit = "no limits: run times used"
            if job.limit is not None:
                limit = f"limits {job.limit[0]:g} to {job.limit[1]:g} times it"
            says = {
                "cycle": f", {100 * a.cycle:g} % more at {a.peak:g} h" if a.cycle else "",
                "gang": f"; {tasks} tasks at once" * (most > 1),
                "duration": job.duration.text(),
                "limit": limit,
            }
            lines.append(phrase("class of jobs", name=job.name, per_hour=a.per_hour, **says))
        h = self.hidden
        if h != Hidden():
            moving = "" if h.spell is None else f", each for {h.spell / 3600:g} h on average"
            share = 100 * h.stragglers
            far = (
                f"; gangs of 8 take {100 * h.apart:g} % longer across all levels" if h.apart else ""
            )
            lines.append(phrase("hidden rates", hidden=h, stragglers=share, moving=moving + far))
        return lines


def _file(path: Path | str) -> Path:
    return Path(__file__).with_suffix(".toml") if str(path) == DEMO else Path(path)


def is_cluster_of_jobs(path: Path | str) -> bool:
    """Whether a file is TOML with ``[[nodes]]``, as no scenario file or mapping has."""
    path = _file(path)
    if path.suffix != ".toml" or not path.is_file():
        return False
    return isinstance(settings.read_toml(path).get("nodes"), list)


def read_cluster_of_jobs(path: Path | str) -> ClusterOfJobs:
    """Read a cluster file with a job model.

    Raises ScenarioError, which names the file and the entry at fault.
    """
    path = _file(path)
    with settings.errors_of(path):
        return ClusterOfJobs(**settings.read_toml(path))
