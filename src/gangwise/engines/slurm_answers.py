"""What Slurm's programs answer: which of their errors are refusals, and what became of lost jobs.

A program of Slurm's has one exit code for all that fails, and says the rest in words. Only an error
of the table below is a refusal, which concerns one job; whatever else goes wrong is *no answer*,
after which nothing is given away and nothing has ended. A job that the queue no longer lists is
asked for by its number, and its end is read from the accounting, where there is one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gangwise.core.errors import EngineError
from gangwise.engines.engine import Phase
from gangwise.engines.intake import quoted
from gangwise.notation.slurm import WORDS

REFUSALS: dict[int, str] = {int(code): words for code, words in WORDS["refusals"].items()}
"""Error codes by which Slurm refuses a request, and its words for them (slurm/slurm_errno.h)."""
UNKNOWN_JOB, DENIED = 2017, 2002
BAD_FORMAT = "Invalid job format specification"  # by squeue itself: it does not know a field
COMMAND = 10.0  # seconds that a listing may take, as the programs' own wait for slurmctld
CHANGE = 6.0  # the same of a change, and of a look at the lead, which cost slurmctld little
ASKED_AGAIN = 8  # of so many jobs that the queue no longer lists, slurmctld is asked by number

PHASES: Mapping[str, Phase] = WORDS["phases"]
"""States of a job that has ended."""


class Refused(EngineError):  # noqa: N818 - what Slurm did
    """A refusal by Slurm; ``code`` is its own, 0 for one of a program itself."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


def run(
    command: Sequence[str], environment: Mapping[str, str] | None, seconds: float = COMMAND
) -> str:
    """What a program of Slurm's prints.

    Raises Refused for a refusal that is known, and EngineError for all else that fails.
    """
    try:
        process = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # Slurm hands on whatever bytes a user gave
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        busy = f"{command[0]} timed out after {seconds:g} s: is slurmctld busy?"
        raise EngineError(busy) from None
    except OSError as error:
        raise EngineError(f"{command[0]}: {error.strerror}") from error
    if not process.returncode:
        return process.stdout
    text = process.stderr.strip()
    about = (
        text
        or process.stdout.partition("\n")[0].strip()
        or (
            f"exit code {process.returncode}"
            if process.returncode > 0
            else f"ended by signal {-process.returncode}"
        )
    )
    message = f"{' '.join(command[:3])}: {about}"
    code = refusal(text) if process.returncode > 0 else None
    raise EngineError(message) if code is None else Refused(message, code)


def refusal(said: str) -> int | None:
    """Code of the refusal that a program printed; None for an error that is no known refusal.

    Its last line counts: those before it may tell of a connection that broke down.

    >>> refusal("slurm_update error: Invalid job id specified")
    2017
    >>> refusal("slurm_load_jobs error: Zero Bytes were transmitted or received") is None
    True
    """
    line = said.strip().rpartition("\n")[2]
    if BAD_FORMAT in line:
        return 0
    return next((code for code, words in REFUSALS.items() if words in line), None)


class End(NamedTuple):
    """How a job ended, as far as Slurm remembers; ``time`` is NaN where it does not."""

    phase: Phase
    time: float


def ends_of(lost: Iterable[str], listed: int, ask: Callable[..., str]) -> dict[str, End]:
    """How jobs ended that the queue no longer lists, by their numbers.

    ``ask`` runs a program of Slurm's. Raises EngineError where slurmctld still shows one of them as
    waiting or running: then the list was wrong, and none has ended.
    """
    names = list(lost)
    ends: dict[str, End] = {}
    for name in names[:ASKED_AGAIN]:
        state = _state_of(name, ask)
        if state in PHASES:
            ends[name] = End(PHASES[state], float("nan"))
        elif state:
            raise EngineError(
                f"squeue lists {listed} jobs without job {name}, which scontrol shows as {state}"
            )
    try:
        form = ("--format=JobIDRaw,State,End", f"--jobs={','.join(names)}")
        env = {"SLURM_TIME_FORMAT": "%s"}
        rows = ask("sacct", "--noheader", "--parsable2", "--allocations", *form, more=env)
    except EngineError:  # there is no accounting, or it does not answer
        return ends
    for row in rows.splitlines():
        name, _, about = row.partition("|")
        state, _, end = about.partition("|")
        state = state.partition(" ")[0]  # "CANCELLED by 0"
        if name in names and state in PHASES and end.isascii() and end.isdigit():
            ends[name] = End(PHASES[state], float(end))
    return ends


def _state_of(name: str, ask: Callable[..., str]) -> str:
    """State of a job by slurmctld; empty where it does not know the job."""
    try:
        shown = ask("scontrol", "-o", "show", "job", name)
    except Refused as error:
        if error.code == UNKNOWN_JOB:
            return ""
        raise
    fields = dict(word.partition("=")[::2] for word in shown.split() if "=" in word)
    if fields.get("JobId") != name or not fields.get("JobState"):
        raise EngineError(f"scontrol says of job {name} {quoted(shown)}")
    return fields["JobState"]
