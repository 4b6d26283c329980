"""Scenario files, in TOML: a scenario with other settings, a trace, or a cluster of your own.

``docs/how-to/scenario-file.md`` shows the first and the last; a file with ``trace`` (files of a
trace, a path from this file on) may have ``family``, ``format`` and ``[settings]``, the arguments
of :func:`~gangwise.papers.slots.opening.open_trace`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from gangwise.core import contracts, errors, registry
from gangwise.core import settings as core_settings
from gangwise.core import workload as workloads
from gangwise.papers.gain_overhead import problem as problems
from gangwise.papers.slots.opening import open_trace


class JobTypeSpec(core_settings.StrictSettings):
    name: core_settings.Name
    requests: dict[str, float]
    arrival: float = Field(ge=0, le=1)
    most: core_settings.Count = 1
    servers: list[str] | None = None


class UtilitySpec(core_settings.StrictSettings):
    kind: Literal["linear", "log", "reciprocal", "poly"] = "log"
    alpha: PositiveFloat = 1.0


class ClusterFile(core_settings.StrictSettings):
    """A scenario file with a cluster and job types of its own."""

    name: core_settings.Name
    slots: core_settings.SlotCount = 1000
    servers: list[core_settings.Group] = Field(min_length=1)
    job_types: list[JobTypeSpec] = Field(min_length=1)
    overhead: dict[str, float] = Field({})
    utility: dict[str, UtilitySpec] = Field({})


class FixedScenario:
    """A scenario file with its own cluster: only arrivals depend on the seed."""

    family = "gain_overhead"

    def __init__(self, file: ClusterFile):
        self.file, self.name, self.slots = file, file.name, file.slots
        servers = sum(group.count for group in file.servers)
        core_settings.require_count(f"the number of servers of {file.name!r}", servers)
        cells = servers * len(file.job_types)
        core_settings.require_memory(
            core_settings.BYTES * cells,
            f"{file.name!r} of {cells} job types times servers",
            "fewer of them",
        )
        self._problem = _problem(file)

    def describe(self) -> dict[str, Any]:
        return self.file.model_dump(mode="json")

    def instance(self, seed: int) -> problems.GainOverheadInstance:
        """The cluster, with arrivals that depend on the seed of the run."""
        types = self.file.job_types
        workload = workloads.BinomialArrivals(
            np.array([j.arrival for j in types]), np.array([j.most for j in types])
        )
        return problems.GainOverheadInstance(self._problem, workload)


def _problem(file: ClusterFile) -> problems.GainOverheadProblem:
    servers = [
        workloads.Server(name, group.devices) for group in file.servers for name in group.names
    ]
    cluster = workloads.Cluster.of(servers)
    names = tuple(j.name for j in file.job_types)
    requests = workloads.request_matrix(
        [workloads.JobType(j.name, j.requests) for j in file.job_types], cluster.devices
    )
    # A channel has to be allowed by the file, and one job has to fit on the server whole.
    fits = workloads.Channels.by_fit(cluster, requests, names)
    mask = np.zeros(fits.shape, dtype=bool)
    mask[fits.job_type, fits.server] = True
    position = {name: r for r, name in enumerate(cluster.servers)}
    # A file names servers one by one, or a group of equal ones.
    groups = {g.name: [position[n] for n in g.names] for g in file.servers}
    for l, job_type in enumerate(file.job_types):
        if job_type.servers is not None:
            allowed = np.zeros(fits.shape[1], dtype=bool)
            for server in job_type.servers:
                if server in groups:
                    allowed[groups[server]] = True
                elif server in position:
                    allowed[position[server]] = True
                else:
                    raise errors.UnknownName("server", server, [*groups, *cluster.servers])
            mask[l] &= allowed
    for table in (file.overhead, file.utility):
        for device in table:
            if device not in cluster.devices:
                raise errors.UnknownName("device type", device, list(cluster.devices))
    utility = [file.utility.get(device, UtilitySpec()) for device in cluster.devices]
    R = len(cluster.servers)
    return problems.GainOverheadProblem(
        cluster,
        requests,
        workloads.Channels.of_mask(mask),
        problems.Utilities.of([[u.kind for u in utility]] * R, [[u.alpha for u in utility]] * R),
        np.array([file.overhead.get(device, 0.0) for device in cluster.devices]),
        names,
    )


def read_scenario(path: Path | str, settings: dict[str, Any] | None = None) -> contracts.Scenario:
    """Read a scenario file.

    ``settings`` win over those of a file with ``base`` or ``trace``; other files have none. Raises
    ScenarioError, which names the file and the entry at fault.
    """
    path = Path(path)
    content = core_settings.read_toml(path)
    with core_settings.errors_of(path):
        if "base" in content:
            arguments = _known(content, settings, base=str)
            scenario: contracts.Scenario = registry.create("scenario", content["base"], **arguments)
            return scenario
        if "trace" in content:
            arguments = _known(content, settings, trace=str, format=str, family=str)
            family = arguments.pop("family", content.get("family", ""))
            form = content.get("format", "")
            return open_trace(
                path.parent / content["trace"], trace=form, family=family, **arguments
            )
        if settings:
            raise errors.ScenarioError(
                "settings can be changed only where the file names a base or a trace"
            )
        return FixedScenario(ClusterFile(**content))


def _known(
    content: dict[str, Any], settings: dict[str, Any] | None, **kinds: type
) -> dict[str, Any]:
    """See that a file has these entries and no others; its settings, over which others win."""
    kinds["settings"] = dict
    for entry in sorted(set(content) - set(kinds)):
        raise errors.UnknownName("entry", entry, list(kinds))
    for entry, kind in kinds.items():
        if not isinstance(content.get(entry, kind()), kind):
            expected = "a text in quotes" if kind is str else "a table"
            raise errors.ScenarioError(f"{entry} is {content[entry]!r}; it must be {expected}")
    return {**content.get("settings", {}), **(settings or {})}
