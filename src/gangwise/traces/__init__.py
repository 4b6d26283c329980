"""One module per public trace format."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangwise.core.environment import Scenario

__all__ = ["open_trace"]


def open_trace(path: Path | str, *, trace: str = "", **knobs: Any) -> Scenario:
    r"""A scenario from the files of a trace, whose format is recognised.

    A reader may say what it builds by a function ``scenario(reader, **settings)`` of its own;
    otherwise it is a :class:`~gangwise.traces.workload.TraceScenario`.

    Parameters
    ----------
    path : path
        A directory with the files of a trace, or one of them.
    trace : str
        The registered name of the format, when it is not to be recognised.
    **knobs
        Arguments of the reader (such as ``nodes``, ``pods``, ``strict``) and settings of the
        scenario (:class:`~gangwise.traces.settings.Settings`, unless the reader builds another).

    Raises
    ------
    TraceError
        When nothing is recognised: says what was looked for and what was found.
    UnknownName
        For a format or setting that does not exist.

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
    >>> scenario.counts.tolist()
    [[1], [0], [1]]
    >>> scenario.instance(seed=0).problem.cluster.capacity
    array([[16., 16., 16.]])
    """
    from gangwise.core.errors import TraceError, UnknownName
    from gangwise.core.registry import entries
    from gangwise.traces.text import header_of
    from gangwise.traces.workload import TraceScenario

    path, known = Path(path), entries("trace")
    if trace and trace not in known:
        raise UnknownName("trace", trace, list(known))
    if not path.exists():
        raise TraceError("there is no such file or directory", path)
    readers = {name: entry.load() for name, entry in known.items()}
    fit = [trace] if trace else [name for name in readers if readers[name].recognise(path)]  # type: ignore[attr-defined]  # the registry types every factory as a plain callable
    if len(fit) == 1:
        accepted = list(inspect.signature(readers[fit[0]]).parameters)
        arguments = {knob: knobs.pop(knob) for knob in accepted if knob in knobs}
        build = getattr(readers[fit[0]], "scenario", TraceScenario)
        built: Scenario = build(readers[fit[0]](path, **arguments), **knobs)
        return built
    if fit:
        raise TraceError(f"this could be {' or '.join(fit)}; choose one with trace=", path)
    if path.is_dir():
        found = ", ".join(sorted(item.name for item in path.iterdir())[:12]) or "an empty directory"
    else:
        found = ", ".join(header_of(path)[:12]) or "nothing readable"
    what = "files" if path.is_dir() else "first line"
    raise TraceError(
        f"no known trace format; looked for {', '.join(known) or 'none (none is registered)'}; "
        f"{what} found: {found}", path,
    )  # fmt: skip
