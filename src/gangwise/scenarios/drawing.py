"""Drawn scenarios: checked settings, slots, description, and what all gang scenarios draw alike.

A generator states the distribution of everything that it draws as the description of a setting;
:func:`draw_gangs` draws servers, channels under contention, and tasks that fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gangwise.core.arrays import Floats, Ints
from gangwise.core.limits import Count, SlotCount
from gangwise.core.settings import checked, require_range


class _Settings(Protocol):
    @property
    def slots(self) -> int: ...

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


SettingsT = TypeVar("SettingsT", bound=_Settings)


def device_names(known: Sequence[str], count: int) -> tuple[str, ...]:
    """The names that are known for so many device types, or numbers.

    Examples
    --------
    >>> device_names(("cpu", "gpu"), 2), device_names(("cpu", "gpu"), 1)
    (('cpu', 'gpu'), ('device-0',))
    """
    return tuple(known) if len(known) == count else tuple(f"device-{k}" for k in range(count))


class DrawnScenario(Generic[SettingsT]):
    """Drawn scenario: its instances are drawn as its settings say.

    Parameters
    ----------
    name : str, optional
        A versioned id; that of the class when not given.
    **settings
        Fields of the class's settings.

    Raises
    ------
    ScenarioError
        Names the setting at fault.
    """

    version: ClassVar[str]
    settings_model: ClassVar[type[Any]]

    def __init__(self, *, name: str = "", **settings: Any):
        self.name = name or self.version
        self.settings: SettingsT = checked(self.settings_model, self.name, settings)

    @property
    def slots(self) -> int:
        """T unless told otherwise."""
        return self.settings.slots

    def describe(self) -> dict[str, Any]:
        """The settings."""
        return self.settings.model_dump(mode="json")


JobTypes = Annotated[Count, Field(description="|L|")]
Servers = Annotated[Count, Field(description="|R|")]
Share = Annotated[
    tuple[float, float],
    Field(
        description="request of a task: for each device type, a uniform part of its model "
        "server's capacity, rounded down to whole devices, at least 1 of the first; the model "
        "server is uniform among those that the job type connects to"
    ),
]
ManyChannels = Annotated[
    Count,
    Field(
        description="servers that each job type connects to (or all, if the pool is smaller), "
        "uniform without replacement from the pool"
    ),
]
Contention = Annotated[
    float,
    Field(
        gt=0,
        description="job types that want the same server, on average: the pool is job_types · "
        "channels / contention servers (no fewer than channels, no more than there are), uniform "
        "among all; the others serve nobody",
    ),
]
GangCapacity = Annotated[
    tuple[Count, ...],
    Field(
        min_length=1,
        description="capacity of a server of device type k: uniform integer in 0..most[k], at "
        "least 1 of the first",
    ),
]
TimeLimit = Annotated[
    float, Field(gt=0, description="seconds that a comparator may think about one programme")
]
Horizon = Annotated[SlotCount, Field(description="T unless told otherwise")]


class GangSettings(BaseModel):
    """Settings that all scenarios of gangs have; defaults that differ are each scenario's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_types: JobTypes
    servers: Servers
    most: GangCapacity
    tasks: tuple[Count, Count] = Field(
        (2, 6), description="|Q_l|: uniform integer; m_l: uniform integer in 1..|Q_l|"
    )
    share: Share
    equal: float = Field(
        0.5, ge=0, le=1, description="probability that all tasks of a job type are alike"
    )
    channels: ManyChannels
    contention: Contention
    rho: float = Field(0.7, ge=0, le=1, description="probability that a job of a type arrives")
    time_limit: TimeLimit
    slots: Horizon

    @model_validator(mode="after")
    def _parts(self) -> Self:
        for name in ("share", "tasks"):
            require_range(name, getattr(self, name))
        if self.share[1] > 1:
            raise ValueError("share must not exceed 1, or tasks would fit on no server")
        return self


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
    """Draw servers, then channels, then tasks."""
    L, R, K = s.job_types, s.servers, len(s.most)
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
    """Requests of the tasks of a job type, each a part of one of its servers."""
    model = servers[rng.integers(0, len(servers), count)]
    requests = np.floor(model * rng.uniform(*s.share, model.shape))
    requests[:, 0] = np.maximum(requests[:, 0], 1.0)
    if rng.random() < s.equal:
        requests[:] = requests[0]
    return np.asarray(requests)
