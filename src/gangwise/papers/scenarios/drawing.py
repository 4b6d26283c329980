"""Drawn scenarios: checked settings, slots, description, and what all gang scenarios draw alike.

``settings.toml`` states the distribution of everything that a generator draws, setting by setting;
:func:`draw_gangs` draws servers, channels under contention, and tasks that fit.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, PositiveFloat

from gangwise.core.arrays import Floats, Ints
from gangwise.core.settings import Count, PositiveRange, SlotCount, StrictSettings, checked, within
from gangwise.core.workload import BernoulliArrivals, Channels, Delivery, OnOffArrivals, Workload


class _Settings(Protocol):
    @property
    def slots(self) -> int: ...

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


Range = Annotated[tuple[float, float], within("[0, inf)")]
Counts = Annotated[tuple[Count, Count], within("[1, inf)")]
TaskShare = Annotated[tuple[float, float], within("[0, 1]")]  # beyond 1 a task fits on no server
KINDS = ("linear", "log", "reciprocal", "poly")
"""Utilities that are built in, in the order of their numbers."""
Rho = Annotated[float, Field(ge=0, le=1)]
Bursts = Literal["bernoulli", "bursts"]


class FeedbackSettings(StrictSettings):
    delay: float = Field(0.0, ge=0)
    delay_kind: Literal["constant", "geometric"] = Field("constant")
    loss: float = Field(0.0, ge=0, le=1)

    @property
    def delivery(self) -> Delivery:
        return Delivery(self.delay, self.delay_kind, self.loss)


class JobDraws(StrictSettings):
    """Settings of drawn approximation jobs and rates of machines."""

    beta: float = Field(0.5, gt=0, le=1)
    q: PositiveRange = (2.0, 100.0)
    value: PositiveRange = (1.0, 5.0)
    pricing: Literal["population", "realised"] = "population"
    time_scale: float = Field(1.0, gt=0)
    per_period: bool = False


class RewardSettings(StrictSettings):
    """Settings of gain and overhead, of jobs and of gangs."""

    alpha: PositiveRange = (1.0, 1.5)
    beta: Range = (0.3, 0.5)
    utility: Literal["mixed", "linear", "log", "reciprocal", "poly"] = "mixed"

    def draw_kinds(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """The number of the utility of each server and device type."""
        if self.utility == "mixed":
            return rng.integers(0, len(KINDS), shape)
        return np.full(shape, KINDS.index(self.utility))


SettingsT = TypeVar("SettingsT", bound=_Settings)


def device_names(known: Sequence[str], count: int) -> tuple[str, ...]:
    """The names that are known for so many device types, or numbers.

    >>> device_names(("cpu", "gpu"), 2), device_names(("cpu", "gpu"), 1)
    (('cpu', 'gpu'), ('device-0',))
    """
    # Known names are for the paper's number of device types; of another number they would mislead.
    return tuple(known) if len(known) == count else tuple(f"device-{k}" for k in range(count))


def arrivals_of(how: str, rho: float, job_types: int) -> Workload:
    """Arrivals of all job types with one ρ: ``bernoulli`` or in ``bursts``."""
    rates = np.full(job_types, rho)
    return OnOffArrivals(rates) if how == "bursts" else BernoulliArrivals(rates)


def draw_channels(rng: np.random.Generator, shape: tuple[int, int], density: float) -> Channels:
    """Each (job type, server) with probability ``density``; a job type without any gets one.

    ``shape`` is (L, R); the one server of such a job type is uniform.
    """
    mask = rng.random(shape) < density
    lonely = ~mask.any(axis=1)
    # A server for every job type is drawn, needed or not: the draws that follow stay the same.
    mask[lonely, rng.integers(0, shape[1], shape[0])[lonely]] = True
    return Channels.of_mask(mask)


class DrawnScenario(Generic[SettingsT]):
    """Drawn scenario: its instances are drawn as its settings say.

    ``name`` is a versioned id, that of the class when not given. Raises ScenarioError for a
    setting, which it names.
    """

    version: ClassVar[str]
    settings_model: ClassVar[type[Any]]

    def __init__(self, *, name: str = "", **settings: Any):
        # The name carries the version, to which published numbers are bound.
        self.name = name or self.version
        self.settings: SettingsT = checked(self.settings_model, self.name, settings)

    @property
    def slots(self) -> int:
        return self.settings.slots

    def describe(self) -> dict[str, Any]:
        return self.settings.model_dump(mode="json")


GangCapacity = Annotated[tuple[Count, ...], Field(min_length=1)]


class GangSettings(StrictSettings):
    """Settings that all scenarios of gangs have; defaults that differ are each scenario's own."""

    job_types: Count
    servers: Count
    most: GangCapacity
    tasks: Counts = (2, 6)
    share: TaskShare
    equal: float = Field(0.5, ge=0, le=1)
    channels: Count
    contention: PositiveFloat
    rho: Rho = 0.7
    time_limit: PositiveFloat
    slots: SlotCount


class DrawnGangs(NamedTuple):
    """Drawn gangs: servers, channels and tasks.

    ``capacity`` [R, K] and ``requests`` [Q, K] in devices, ``mask`` [L, R] whether there is a
    channel, ``tasks`` [L] how many tasks each job type has, ``job_type`` [Q] that of each task.
    """

    capacity: Floats
    mask: npt.NDArray[np.bool_]
    tasks: Ints
    job_type: Ints
    requests: Floats


def draw_gangs(s: GangSettings, rng: np.random.Generator) -> DrawnGangs:
    L, R, K = s.job_types, s.servers, len(s.most)
    # Servers may lack any device type but the first.
    capacity = rng.integers(0, np.array(s.most) + 1, (R, K)).astype(np.float64)
    capacity[:, 0] = np.maximum(capacity[:, 0], 1.0)
    # Contention: all job types choose their servers from one pool, the smaller the fiercer.
    pool = rng.permutation(R)[: min(R, max(s.channels, round(L * s.channels / s.contention)))]
    mask = np.zeros((L, R), dtype=bool)
    for l in range(L):
        mask[l, rng.permutation(pool)[: s.channels]] = True
    tasks = rng.integers(s.tasks[0], s.tasks[1] + 1, L)
    requests = [_requests(s, rng, capacity[mask[l]], int(tasks[l])) for l in range(L)]
    return DrawnGangs(
        capacity, mask, tasks, np.repeat(np.arange(L), tasks), np.concatenate(requests)
    )


def _requests(s: GangSettings, rng: np.random.Generator, servers: Floats, count: int) -> Floats:
    # Each task is a part of some server that the job type connects to, so that it fits there.
    model = servers[rng.integers(0, len(servers), count)]
    # Rounded down, so that a part of a server still fits on it.
    requests = np.floor(model * rng.uniform(*s.share, model.shape))
    requests[:, 0] = np.maximum(requests[:, 0], 1.0)
    if rng.random() < s.equal:
        requests[:] = requests[0]
    return np.asarray(requests)
