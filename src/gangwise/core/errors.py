"""Everything that gangwise raises on purpose.

::

    GangwiseError
    ├── ScenarioError       a cluster, job type, workload or parameter that makes no sense
    │   └── NothingEnded    no job of a simulation ended
    ├── TraceError          a trace file that cannot be read; names the file and the row
    ├── InfeasibleDecision  a policy broke a constraint; names slot, server, device, job type
    ├── UnknownName         no such policy, scenario or comparator; says what was probably meant
    ├── StoreError          a result or checkpoint that cannot be written or resumed
    └── EngineError         a cluster that does not answer, or not as it should
        ├── StandingBy      another service acts on this cluster
        └── Rejected        a placement that the cluster, or its adapter, refuses

A message says what was wrong, where, and what to do about it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def to_install(extra: str) -> str:
    """The command that installs an optional part; gangwise is installed from a checkout.

    >>> to_install("live")
    "in the checkout of gangwise: pip install '.[live]'"
    """
    return f"in the checkout of gangwise: pip install '.[{extra}]'"


class GangwiseError(Exception): ...


class ScenarioError(GangwiseError, ValueError):
    """A problem, workload or parameter is not well formed."""


class NothingEnded(ScenarioError):  # noqa: N818 - the name says what it is
    """No job of a simulation ended, so that it has no makespan."""


class TraceError(GangwiseError, ValueError):
    """A trace file cannot be used.

    ``row`` is the line of ``file``, counted from 1 with the header included, as an editor shows it.
    """

    def __init__(self, message: str, file: Path | str | None = None, row: int | None = None):
        self.file = None if file is None else Path(file)
        self.row = row
        place = "" if file is None else f"{file}: " if row is None else f"{file}, row {row}: "
        super().__init__(place + message)


class InfeasibleDecision(GangwiseError):  # noqa: N818 - the name says what it is
    """A policy's decision violates a constraint of the problem."""


FEW = 20  # names that an error lists although it has a hint
LISTED = 50  # an error lists at most so many names


class UnknownName(GangwiseError, LookupError):  # noqa: N818 - the name says what it is
    def __init__(self, kind: str, name: str, known: Sequence[str], instead: str = ""):
        # Late: errors are imported by everything, and few of them look for a name.
        from difflib import get_close_matches

        name = str(name)  # users give numbers where a word belongs, too
        # Upper and lower case are mistaken for each other most of all.
        lowered = {k.lower(): k for k in known}
        close = [lowered[k] for k in get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)]
        if not close:
            # A part of a long name has too little in common with it for difflib.
            close = [k for k in known if name and name in k][:3]
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        hint = f"; {instead}." if instead else hint
        # With a hint a long list would only hide it.
        names = [] if instead or (hint and len(known) > FEW) else sorted(known)
        if len(names) > LISTED:
            names = [*names[:LISTED], f"and {len(names) - LISTED:,} more"]
        listing = f" Known: {', '.join(names)}." if names else ""
        super().__init__(f"there is no {kind} named {name!r}{hint or '.'}{listing}")
        self.name = name


class StoreError(GangwiseError, OSError):
    """A result or checkpoint cannot be written, read or resumed."""


class EngineError(GangwiseError):
    """A cluster gives no answer, or one that cannot be read; another try may work."""


class StandingBy(EngineError):  # noqa: N818 - nothing is wrong
    """Another service acts on this cluster."""


class Rejected(EngineError):  # noqa: N818 - the name says what it is
    """A placement is refused; nothing was started."""


EXTRAS = {"scipy": "full", "matplotlib": "full", "highspy": "full"}
"""Packages that a first use does without, and the extra that brings them."""


@contextmanager
def papers_wing() -> Iterator[None]:
    """Turn a failed import of an optional package into a ScenarioError.

    ``gangwise.papers``, or a package of an extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            extra = EXTRAS[package]
            raise ScenarioError(f"this needs {package}; {to_install(extra)}") from error
        # A module that is missing for another reason is a fault to be seen as it is.
        if not (error.name or "").startswith("gangwise.papers"):
            raise
        raise ScenarioError(
            "problems, policies and traces in slots, and figures of the papers, need "
            "gangwise.papers, which this installation is without"
        ) from error
