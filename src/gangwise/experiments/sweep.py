"""Sweeps: all runs of an experiment that are not finished yet, on many cores or machines.

Workers compute, this process writes: a cluster needs no shared folder, and a run is stored once,
however often a worker that died made it be computed.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gangwise.core.errors import GangwiseError, StoreError, UnknownName
from gangwise.experiments.backends import Backend, WorkersLost, parallel
from gangwise.experiments.dataset import Dataset
from gangwise.experiments.measure import Rows, measure
from gangwise.experiments.progress import Progress, silent
from gangwise.experiments.results import Results
from gangwise.experiments.runs import RunSpec
from gangwise.experiments.specification import Experiment

ATTEMPTS = 4
"""How often the rest is started again after workers died, while nothing at all gets finished."""


def sweep(
    experiment: Experiment | Path | str,
    out: Path | str,
    jobs: int = -1,
    backend: Backend = "loky",
    address: str | None = None,
    progress: Progress | None = None,
) -> Results:
    """Do the runs of an experiment that are not finished, and return the results of all.

    Parameters
    ----------
    experiment : Experiment or path
    out : path
        Folder of the results. Experiments may share one: a run that is part of several is done
        once.
    jobs : int
        Workers; −1 for all cores, or all of the cluster.
    backend : {"loky", "dask", "ray"}
        loky: processes on this machine.
    address : str, optional
        Of the Dask scheduler or Ray cluster.
    progress : callable, optional
        ``progress(what, done, of)``, in runs.

    Raises
    ------
    ScenarioError, UnknownName
        For an experiment that makes no sense, before anything is run.
    StoreError
        When results cannot be written, or workers keep dying.
    GangwiseError
        Of the first run that failed, after all others are done.

    Examples
    --------
    >>> import tempfile
    >>> small = Experiment(
    ...     name="small",
    ...     scenario="ogasched-default-v1:servers=16,job_types=4",
    ...     slots=20,
    ...     seeds=2,
    ...     policies=["drf", "fairness"],
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sweep(small, folder, jobs=1).table().select("policy", "seeds").rows()
    [('fairness', 2), ('drf', 2)]
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.read(experiment)
    dataset, tell = Dataset(Path(out)), progress or silent
    specs = experiment.runs()
    keys = [spec.key() for spec in specs]
    dataset.write_plan(experiment.name, _plan(experiment, specs, keys))
    wanted = dict(zip(keys, specs))
    left = {key: spec for key, spec in wanted.items() if not dataset.finished(key)}
    if left:
        _check_names(experiment, next(iter(left.values())))
    failed: dict[str, Failure] = {}
    tell(experiment.name, len(wanted) - len(left), len(wanted))
    attempts = 0
    while left:
        before = len(left)
        try:
            tasks = [(key, spec, backend == "loky", os.getpid()) for key, spec in left.items()]
            with closing(parallel(_attempt, tasks, jobs, backend, address)) as finished:
                for key, outcome in finished:
                    spec = left.pop(key)
                    if isinstance(outcome, Failure):
                        failed[key] = outcome
                    else:
                        dataset.write(key, spec.identity(), outcome)
                    tell(experiment.name, len(wanted) - len(left), len(wanted))
        except WorkersLost as lost:
            attempts = attempts + 1 if len(left) == before else 0
            if attempts == ATTEMPTS:
                raise StoreError(
                    f"workers died {ATTEMPTS} times without finishing a run ({lost}); "
                    f"{len(wanted) - len(left)} of {len(wanted)} runs are stored, start again to "
                    "do the rest"
                ) from lost
    if failed:
        key, first = next(iter(failed.items()))
        error = GangwiseError(
            f"{len(failed)} of {len(wanted)} runs failed, the others are stored; {wanted[key]}: "
            f"{first.error}"
        )
        error.add_note(first.traceback)
        raise error
    return Results.open(dataset.folder, experiment.name)


def _check_names(experiment: Experiment, spec: RunSpec) -> None:
    """Comparators and metrics are those of an instance, so one is drawn where any is named."""
    if not (experiment.comparators or experiment.metrics):
        return
    instance = spec.source.instance(spec.seed)
    for name in experiment.comparators:
        if name not in instance.comparators:
            raise UnknownName("comparator", name, list(instance.comparators))
    if experiment.metrics:
        known = ["reward", *instance.environment().metrics]
        for name in experiment.metrics:
            if name not in known:
                raise UnknownName("metric", name, known)


@dataclass(frozen=True)
class Failure:
    """Why a run failed, in words: not every exception survives the way back from a worker."""

    error: str
    traceback: str


def _attempt(key: str, spec: RunSpec, local: bool, writer: int) -> tuple[str, Rows | Failure]:
    """One run in a worker; an error in it must not end the others.

    A worker that finds another key has other files or another version than this process.
    """
    main = threading.current_thread() is threading.main_thread()
    if local and main and os.getpid() != writer:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    try:
        if spec.key() != key:
            raise StoreError(
                "the worker finds something else under this scenario; give it the same version of "
                f"gangwise and the same files ({spec.source.name})"
            )
        return key, measure(spec)
    except Exception as error:
        return key, Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _plan(experiment: Experiment, specs: list[RunSpec], keys: list[str]) -> dict[str, object]:
    return {
        "experiment": experiment.model_dump(mode="json"),
        "runs": [
            {
                "key": key,
                "cell": dict(spec.cell),
                "label": spec.label,
                "comparator": spec.policy is None,
                "seed": spec.seed,
                "slots": spec.slots,
            }
            for key, spec in zip(keys, specs)
        ],
    }
