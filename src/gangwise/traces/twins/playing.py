"""Twins where a trace is wanted: on their own, or for what a folder of files lacks."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from gangwise.core.errors import ScenarioError, TraceError
from gangwise.traces.fidelity import Stage
from gangwise.traces.trace import Tables, name_of
from gangwise.traces.twins.drawing import calibration, digest, twin


def completed(
    tables: Tables, *, servers: bool = False, jobs: bool = False, seed: int = 0, **knobs: Any
) -> Tables:
    """Real tables with the servers or the jobs of the twin, where the files have none.

    Parameters
    ----------
    tables : Tables
        Of a trace that has a twin.
    servers, jobs : bool
        What to take from the twin.
    seed : int
    **knobs
        Of :func:`twin`.

    Raises
    ------
    TraceError
        When the files have what is to be taken from the twin: nothing real is replaced.

    Examples
    --------
    >>> from dataclasses import replace
    >>> real = twin("google-2011", days=0.1)
    >>> without = replace(real, trace="google-2011", servers=real.servers.clear())
    >>> whole = completed(without, servers=True, seed=3)
    >>> len(whole.servers), whole.notes[-1][:35]
    (12583, 'the servers are those of a syntheti')
    """
    for wanted, there, what in ((servers, tables.servers, "servers"), (jobs, tables.jobs, "jobs")):
        if wanted and not there.is_empty():
            raise TraceError(
                f"the files of {tables.trace} have {what} of their own, "
                "and none are taken from its twin"
            )
    if not (servers or jobs):
        return tables
    made = twin(tables.trace, seed, **knobs)
    taken = " and ".join(["servers"] * servers + ["jobs"] * jobs)
    label = f"{taken} of the {made.stages[0].name}"
    own = replace(
        made,
        servers=made.servers if servers else made.servers.clear(),
        jobs=made.jobs if jobs else made.jobs.clear(),
    )
    about = "; ".join(made.notes) if jobs else "the mix of machines is the published one"
    note = f"the {taken} are those of a synthetic twin, not of the files; {about}"
    stage = (Stage(label, len(own.jobs), len(own.jobs), {}),) if jobs else ()
    return replace(
        tables,
        servers=own.servers if servers else tables.servers,
        jobs=own.jobs if jobs else tables.jobs,
        stages=(*tables.stages, *stage),
        digests={**tables.digests, label: digest(own)},
        notes=(*tables.notes, note),
        units=made.units if jobs else tables.units,
    )


def completed_from(reader: Any, what: str, knobs: dict[str, Any]) -> Tables:
    """Tables of a reader whose folder lacks servers or jobs, with those of the twin.

    Parameters
    ----------
    reader : Trace
    what : str
        ``servers`` or ``jobs``.
    knobs : dict
        Those of the twin, such as ``twin_seed``, are taken out of it.
    """
    if what not in ("servers", "jobs"):
        raise ScenarioError(f"complete is {what!r}; choose servers or jobs")
    own = _own(knobs, ["twin_seed", *(("days", "jobs_per_day") if what == "jobs" else ())])
    name, seed = name_of(reader), own.pop("seed", 0)
    calibration(name)  # whether there is a twin
    if what == "servers":
        return completed(reader.scan(), servers=True, seed=seed)
    said = reader.fidelity()  # it does not need jobs
    if said.jobs:
        return completed(reader.scan(), jobs=True, seed=seed)
    made = twin(name, seed, days=1.0)
    servers = reader.servers() if hasattr(reader, "servers") else made.servers.clear()
    real = Tables(
        name, servers, made.jobs.clear(), said.stages, said.digests, said.notes, said.units
    )
    return completed(real, jobs=True, servers=servers.is_empty(), seed=seed, **own)


def open_twin(path: str, knobs: dict[str, Any]) -> Tables:
    """The twin that ``twin:NAME`` names; its arguments are taken out of ``knobs``."""
    return twin(path.removeprefix("twin:"), **_own(knobs, arguments(path)))


def arguments(path: str) -> list[str]:
    """Names of the arguments that ``twin:NAME`` takes, where it stands for a path."""
    own = list(inspect.signature(twin).parameters)[2:-1]
    return ["twin_seed", *own, *calibration(path.removeprefix("twin:")).options]


def _own(knobs: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Arguments of a twin, taken out of ``knobs``; the seed is there as ``twin_seed``."""
    return {name.removeprefix("twin_"): knobs.pop(name) for name in names if name in knobs}
