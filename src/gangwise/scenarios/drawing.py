"""Drawn scenarios: checked settings, slots, description, and what all gang scenarios draw alike.

A generator states the distribution of everything that it draws as the description of a setting;
:func:`draw_gangs` draws servers, channels under contention, and tasks that fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.settings import checked


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


class _GangSettings(Protocol):
    """The settings that drawing gangs reads; scenarios say what they mean."""

    @property
    def job_types(self) -> int: ...
    @property
    def servers(self) -> int: ...
    @property
    def most(self) -> tuple[int, ...]: ...
    @property
    def tasks(self) -> tuple[int, int]: ...
    @property
    def share(self) -> tuple[float, float]: ...
    @property
    def equal(self) -> float: ...
    @property
    def channels(self) -> int: ...
    @property
    def contention(self) -> float: ...


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


def draw_gangs(s: _GangSettings, rng: np.random.Generator) -> DrawnGangs:
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


def _requests(s: _GangSettings, rng: np.random.Generator, servers: Floats, count: int) -> Floats:
    """Requests of the tasks of a job type, each a part of one of its servers."""
    model = servers[rng.integers(0, len(servers), count)]
    requests = np.floor(model * rng.uniform(*s.share, model.shape))
    requests[:, 0] = np.maximum(requests[:, 0], 1.0)
    if rng.random() < s.equal:
        requests[:] = requests[0]
    return np.asarray(requests)
