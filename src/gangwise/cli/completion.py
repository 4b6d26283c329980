"""Shell completion of values: policies, schedulers, scenarios, traces, comparators, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from glob import glob, has_magic
from pathlib import Path

from gangwise.core.registry import ANY, Kind, entries


def _last(incomplete: str, known: Iterable[str], separators: str = ",") -> list[str]:
    """What the last piece of a list may become, with what stands before it.

    >>> _last("drf,gr", ["drf", "greedy", "gang-greedy"])
    ['drf,greedy']
    """
    cut = max(incomplete.rfind(separator) for separator in separators) + 1
    before, begun = incomplete[:cut], incomplete[cut:]
    return [before + name for name in sorted(known) if name.startswith(begun)]


def _files(incomplete: str) -> list[str]:
    """Files and folders, as a shell completes them by itself where nothing else is offered."""
    found = [] if has_magic(incomplete) else sorted(glob(incomplete + "*"))
    return [name + "/" if Path(name).is_dir() else name for name in found]


def _names(kind: Kind) -> list[str]:
    return [name for name in entries(kind) if name != ANY]


def _policies(incomplete: str) -> list[str]:
    return _last(incomplete, _names("policy")) or _files(incomplete)


def _schedulers(incomplete: str) -> list[str]:
    """Schedulers, separated by commas, whose parts are joined by plus signs."""
    parts = []
    if not incomplete.endswith(".py"):
        from gangwise.jobs.scheduler import parts as parts_of

        parts = [*parts_of("queue"), *parts_of("backfilling"), *parts_of("choice")]
    return _last(incomplete, [*parts, *_names("scheduler")], ",+ ") or _files(incomplete)


def _comparators(incomplete: str) -> list[str]:
    return _last(incomplete, {"none", *(name.rpartition("/")[2] for name in _names("comparator"))})


def _trace_or_file(incomplete: str) -> list[str]:
    from gangwise.traces.twins import NAMES

    return _last(incomplete, [f"twin:{name}" for name in NAMES], "\0") + _files(incomplete)


COMPLETERS: dict[str, Callable[[str], list[str]]] = {
    "scenario_or_file": lambda incomplete: (
        _last(incomplete, _names("scenario"), "\0") + _files(incomplete)
    ),
    "trace_or_file": _trace_or_file,
    "policies": _policies,
    "schedulers": _schedulers,
    "deciders": lambda incomplete: [*_last(incomplete, _names("policy")), *_schedulers(incomplete)],
    "comparators": _comparators,
    "trace_names": lambda incomplete: _last(incomplete, _names("trace")),
    "families": lambda incomplete: _last(incomplete, _names("family")),
}
"""By what ``commands.toml`` calls them; typer knows their argument by its name."""
