"""From a path to the reader of its format, and to a scenario of a family."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangwise.core.contracts import Scenario
    from gangwise.traces.trace import Tables, Trace


FAMILIES: Mapping[str, str] = {
    "gain_overhead": "gangwise.traces.workload:TraceScenario",
    "fluctuating_speeds": "gangwise.traces.speeds_workload:SpeedsTraceScenario",
    "approximation_jobs": "gangwise.traces.jobs_workload:JobsTraceScenario",
}
"""Families that a trace can be played in, and the scenario of each."""
TWIN = "twin:"
"""How the name of a synthetic twin begins, where a path is expected."""


def open_trace(path: Path | str, *, trace: str = "", family: str = "", **knobs: Any) -> Scenario:
    r"""A scenario from the files of a trace, whose format is recognised.

    A reader may say what it builds by a function ``scenario(reader, **settings)`` of its own, in
    the family that it names as ``FAMILY``.

    Parameters
    ----------
    path : path
        A directory with the files of a trace, or one of them; or tables that were saved by
        :func:`~gangwise.traces.saved.save_tables`;
        or ``twin:NAME`` for a synthetic twin, see :mod:`gangwise.traces.twins`.
    trace : str
        The registered name of the format, when it is not to be recognised.
    family : str
        ``gain_overhead``, ``fluctuating_speeds`` or ``approximation_jobs``; that of the reader when
        empty, or else ``gain_overhead``.
    **knobs
        Arguments of the reader (such as ``nodes``, ``pods``, ``strict``), or of the twin (its seed
        as ``twin_seed``); ``complete="servers"`` or ``"jobs"``, to take from the twin what the
        files have none of; and settings of the scenario:
        :class:`~gangwise.traces.settings.Settings`,
        :class:`~gangwise.traces.settings.SpeedsSettings` or
        :class:`~gangwise.traces.jobs_settings.JobsSettings`, unless the reader builds another.

    Raises
    ------
    TraceError
        When nothing is recognised: says what was looked for and what was found.
    UnknownName
        For a format, family or setting that does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nodes, pods = Path(folder, "nodes.csv"), Path(folder, "pods.csv")
    ...     size = nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,16384,2,T4\n")
    ...     size = pods.write_text(
    ...         "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
    ...         "p,4000,4096,1,500,,0,60\n"
    ...         "q,4000,4096,1,500,,7200,7260\n"
    ...     )
    ...     scenario = open_trace(folder, slot="1h")
    ...     speeds = open_trace(folder, slot="1h", family="fluctuating_speeds")
    >>> scenario.counts.tolist()
    [[1], [0], [1]]
    >>> scenario.instance(seed=0).problem.cluster.capacity
    array([[16., 16., 16.]])
    >>> speeds.instance(seed=0).problem.E
    1
    """
    from gangwise.core.errors import UnknownName

    if family and family not in FAMILIES:
        raise UnknownName("family for traces", family, list(FAMILIES))
    path, own = Path(path), None
    found: Trace | Tables
    if without_reader(path):
        found = _ready(path, knobs)
        family = family or "gain_overhead"
    else:
        reader = reader_of(path, trace)
        accepted = list(inspect.signature(reader).parameters)
        found = reader(path, **{knob: knobs.pop(knob) for knob in accepted if knob in knobs})
        natural = getattr(reader, "FAMILY", "gain_overhead")
        family = family or natural
        own = getattr(reader, "scenario", None) if family == natural else None
        if "complete" in knobs:
            from gangwise.traces.twins import completed_from

            found, own = completed_from(found, knobs.pop("complete"), knobs), None
    if own is None:
        module, _, attribute = FAMILIES[family].partition(":")
        own = getattr(importlib.import_module(module), attribute)
    built: Scenario = own(found, **knobs)
    return built


def open_tables(path: Path | str, *, trace: str = "", **knobs: Any) -> Tables:
    """Servers and jobs, before anything is made of them.

    Parameters
    ----------
    path, trace
        As of :func:`open_trace`.
    **knobs
        Arguments of the reader, or of the twin.

    Raises
    ------
    TraceError, UnknownName
        As :func:`open_reader`.
    """
    from gangwise.core.errors import UnknownName

    path = Path(path)
    kind = without_reader(path)
    if not kind:
        return open_reader(path, trace=trace, **knobs).scan()
    found = _ready(path, knobs)
    for knob in knobs:
        from gangwise.traces.twins import arguments

        known = [] if path.exists() else arguments(path.name)
        raise UnknownName(f"argument of {kind}", knob, known)
    return found


def without_reader(path: Path) -> str:
    """What a path is whose servers and jobs need no reader; empty for files of a trace."""
    from gangwise.traces.saved import MANIFEST

    if path.name.startswith(TWIN) and not path.exists():  # scenario files prepend their folder
        return "a synthetic twin"
    return "tables that were saved" if (path / MANIFEST).is_file() else ""


def _ready(path: Path, knobs: dict[str, Any]) -> Tables:
    """Tables that need no reader; the arguments that they take are taken out of ``knobs``."""
    knobs.pop("strict", None)  # no row of them can be bad
    if not path.exists():
        from gangwise.traces.twins import open_twin

        return open_twin(path.name, knobs)
    from gangwise.traces.saved import load_tables

    return load_tables(path)


def open_reader(path: Path | str, *, trace: str = "", **knobs: Any) -> Trace:
    """The reader of a trace, whose format is recognised.

    Parameters
    ----------
    path, trace
        As of :func:`open_trace`.
    **knobs
        Arguments of the reader.

    Raises
    ------
    TraceError
        When nothing is recognised: says what was looked for and what was found.
    UnknownName
        For a format or argument that does not exist.
    """
    from gangwise.core.errors import UnknownName

    reader = reader_of(Path(path), trace)
    accepted = list(inspect.signature(reader).parameters)
    for knob in knobs:
        if knob not in accepted:
            raise UnknownName("argument of the reader of this trace", knob, accepted[1:])
    opened: Trace = reader(path, **knobs)
    return opened


def reader_of(path: Path, trace: str = "") -> Any:
    """The class of the reader; arguments and errors as of :func:`open_reader`."""
    from gangwise.core.errors import TraceError, UnknownName
    from gangwise.core.registry import entries
    from gangwise.traces.formats import files_of, recognise
    from gangwise.traces.text import header_of

    known = entries("trace")
    if trace and trace not in known:
        raise UnknownName("trace", trace, list(known))
    if not path.exists():
        raise TraceError("there is no such file or directory", path)
    readers: dict[str, Any] = {name: entry.load() for name, entry in known.items()}
    fit = [trace] if trace else [name for name in readers if readers[name].recognise(path)]
    if len(fit) > 1:
        forms = [form for name in fit if (form := getattr(readers[name], "FORMAT", None))]
        likely = {form.name for file in files_of(path) for form, _ in recognise(file, forms)}
        fit = [name for name in fit if name in likely] or fit
    if len(fit) == 1:
        return readers[fit[0]]
    if fit:
        raise TraceError(f"this could be {' or '.join(fit)}; choose one with trace=", path)
    if path.is_dir():
        found = ", ".join(sorted(item.name for item in path.iterdir())[:12]) or "an empty directory"
    else:
        found = ", ".join(header_of(path)[:12]) or "nothing readable"
    what = "files" if path.is_dir() else "first line"
    raise TraceError(
        f"no known trace format; looked for {', '.join(known) or 'none (none is registered)'}; "
        f"{what} found: {found}",
        path,
    )
