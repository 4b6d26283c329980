"""Sweeps: all runs of an experiment that are not finished yet, on many cores or machines.

Workers compute, this process writes: a cluster needs no shared folder, and a run is stored once,
however often a worker that died made it be computed. What :func:`perform` does, a comparison, a
sweep, a tuning and a reproduction do alike.

Replays under built-in schedulers, which compiled code plays from end to end, have threads of this
process: compiled code holds no lock of the interpreter. Other runs have processes, here or on a
cluster: see :mod:`gangwise.experiments.workers`.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gangwise.core.errors import GangwiseError, ScenarioError, StoreError, UnknownName
from gangwise.core.registry import comparators as registered_comparators
from gangwise.experiments.results import Results
from gangwise.experiments.runs import Replay, Rows, RunSpec, fidelity_of, measure
from gangwise.experiments.specification import Experiment
from gangwise.experiments.store import Store

Backend = Literal["loky", "dask", "ray"]

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


def silent(what: str, done: int, of: int) -> None: ...


@dataclass(frozen=True)
class Workers:
    """Who plays runs.

    Parameters
    ----------
    jobs : int
        How many at once; −1 for all cores, or all of the cluster. A single one is this process.
    backend : {"loky", "dask", "ray"}
        Processes of this machine, or of a cluster.
    address : str, optional
        Of the Dask scheduler or Ray cluster.
    """

    jobs: int = -1
    backend: Backend = "loky"
    address: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in ("loky", "dask", "ray"):
            raise ScenarioError(f"there is no backend {self.backend!r}; choose loky, dask or ray")
        if self.backend == "loky" and self.address:
            raise ScenarioError(
                f"address {self.address} is for a cluster: choose the backend dask or ray"
            )
        if not isinstance(self.jobs, int) or self.jobs == 0:
            raise ScenarioError(f"jobs is how many workers, or -1 for all cores; not {self.jobs!r}")

    def alone(self, runs: int) -> bool:
        """Whether this process plays so many runs itself, without workers."""
        if self.backend != "loky" or self.jobs == 1 or runs < 2:
            return self.backend == "loky"
        from gangwise.experiments.workers import at_once  # joblib: a fifth of a second

        return at_once(self.jobs) == 1


ATTEMPTS = 4  # dying workers are started again so often without finishing a single run


def sweep(
    experiment: Experiment | Path | str,
    out: Path | str,
    jobs: int = -1,
    backend: Backend = "loky",
    address: str | None = None,
    progress: Progress | None = None,
) -> Results:
    """Play the runs of an experiment that are not finished, and return the results of all.

    Parameters
    ----------
    out : path
        Folder of the results. Experiments may share one: a run that is part of several is played
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
        For an experiment that makes no sense, before anything is played.
    StoreError
        When results cannot be written, another process writes into the folder, or workers keep
        dying.
    GangwiseError
        Of the first run that failed, after all others are played.

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
    [('drf', 2), ('fairness', 2)]
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.read(experiment)
    asked = experiment.model_dump(mode="json")
    specs, store = experiment.runs(), Store(out)
    scenario = specs[0].source.scenario()
    if isinstance(scenario, Replay) and not experiment.objective:
        asked |= {"objective": scenario.objective, "minimise": scenario.minimise}
    if experiment.comparators or experiment.metrics:
        check_names(specs[0], experiment.comparators, experiment.metrics)
    return perform(asked, specs, store, Workers(jobs, backend, address), progress)


def perform(
    experiment: Mapping[str, Any],
    specs: Sequence[RunSpec],
    store: Store,
    workers: Workers,
    progress: Progress | None = None,
    slotwise: bool = False,
) -> Results:
    """Play the runs that are not in the store, and return the results of all.

    A run gives the same numbers whoever plays it. What cannot travel, such as a policy that does
    not pickle or that was defined in ``__main__``, is played in this process. ``experiment`` is
    stored in the plan and has at least a ``name``. ``progress`` counts runs, or slots if
    ``slotwise``. Errors are those of :func:`sweep`; on Ctrl-C, Interrupted, with the run in hand
    saved if this process played it.
    """
    name = str(experiment["name"])
    keys = [spec.key() for spec in specs]
    wanted = dict(zip(keys, specs))
    size = {key: spec.slots if slotwise else 1 for key, spec in wanted.items()}
    failed: dict[str, Failure] = {}
    with store.lock():
        store.write_plan(name, _plan(experiment, specs, keys))
        left = {key: spec for key, spec in wanted.items() if not store.finished(key)}
        for key in wanted.keys() - left.keys():
            store.forget_checkpoint(key)  # a run that was killed between the two leaves it behind

        done, of = sum(size[key] for key in wanted.keys() - left.keys()), sum(size.values())

        def report(slots: int = 0) -> None:
            (progress or silent)(name, done + slots, of)

        def take(key: str, outcome: Rows | Failure) -> None:
            nonlocal done
            spec, done = left.pop(key), done + size[key]
            if isinstance(outcome, Failure):
                failed[key] = outcome
            else:
                store.write(key, spec.identity(), outcome)
            report()

        report()
        if workers.backend == "loky":
            _in_threads([k for k in left if left[k].whole], left, store, workers.jobs, take)
        if not workers.alone(len(left)):
            _in_processes(left, store, workers, take)
        for key, spec in list(left.items()):
            take(key, _attempt(key, spec, store.checkpoint(key), report if slotwise else None)[1])
    if failed:
        raise _error_of(failed, wanted)
    return Results.open(store, name)


def _error_of(failed: Mapping[str, Failure], wanted: Mapping[str, RunSpec]) -> GangwiseError:
    key, first = next(iter(failed.items()))
    causes = {type(failure.cause) for failure in failed.values()}
    if isinstance(first.cause, GangwiseError) and len(causes) == 1:
        first.cause.add_note(f"in {wanted[key]}; {len(failed)} of {len(wanted)} runs failed")
        return first.cause
    error = GangwiseError(
        f"{len(failed)} of {len(wanted)} runs failed, the others are stored; {wanted[key]}: "
        f"{first.error}"
    )
    error.add_note(first.traceback)
    error.__cause__ = first.cause
    return error


def _in_threads(
    keys: Sequence[str],
    left: Mapping[str, RunSpec],
    store: Store,
    jobs: int,
    take: Callable[[str, Rows | Failure], None],
) -> None:
    """Play runs of compiled code side by side; a single one is left to the process itself."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    at_once = min(len(keys), jobs if jobs > 0 else (cores or 1) + 1 + jobs)
    if at_once < 2:
        return
    tasks = [(key, left[key], store.checkpoint(key)) for key in keys]
    with ThreadPool(at_once) as pool:
        for key, outcome in pool.imap_unordered(lambda task: _attempt(*task), tasks):
            take(key, outcome)


def _in_processes(
    left: Mapping[str, RunSpec],
    store: Store,
    workers: Workers,
    take: Callable[[str, Rows | Failure], None],
) -> None:
    """Have workers play what can travel, starting them again when they die."""
    away = {key for key, spec in left.items() if _travels(spec)}
    if not away:
        return
    from gangwise.experiments.workers import WorkersLost, parallel

    attempts, local, total = 0, workers.backend == "loky", len(left)
    while away & left.keys():
        before = len(left)
        tasks = [
            (key, spec, store.checkpoint(key) if local else None, None, local, os.getpid())
            for key, spec in left.items()
            if key in away
        ]
        try:
            where = workers.jobs, workers.backend, workers.address
            parallel(_attempt, tasks, lambda done: take(*done), *where)
        except WorkersLost as lost:
            attempts = attempts + 1 if len(left) == before else 0
            if attempts == ATTEMPTS:
                raise StoreError(
                    f"workers died {ATTEMPTS} times without finishing a run ({lost}); "
                    f"{total - len(left)} of {total} runs are stored, start again to do the rest"
                ) from lost


def check_names(spec: RunSpec, comparators: Sequence[str], metrics: Sequence[str]) -> None:
    """Raise UnknownName for a comparator or metric that the instance of a run does not have."""
    if isinstance(spec.source.scenario(), Replay):
        return
    instance = spec.source.instance(spec.seed)
    known = [*instance.comparators, *registered_comparators(instance.family)]
    for name in comparators:
        if name not in known:
            raise UnknownName("comparator", name, list(dict.fromkeys(known)))
    if metrics:
        known = ["reward", *instance.environment().metrics]
        for name in metrics:
            if name not in known:
                raise UnknownName("metric", name, known)


class Failure(NamedTuple):
    """Why a run failed, in words: not every exception survives the way back from a worker.

    ``cause`` is the exception itself, where the run was played in this process.
    """

    error: str
    traceback: str
    cause: Exception | None = None


def _travels(spec: RunSpec) -> bool:
    if spec.policy is None and (judge := spec.registered) and not judge.built_in:
        return False  # this process alone knows a comparator that a user registered
    if spec.policy is not None and type(spec.policy).__module__ == "__main__":
        return False
    try:
        pickle.dumps((spec.source, spec.policy))
    except Exception:  # whatever an object of a user raises when it is pickled
        return False
    return True


def _attempt(
    key: str,
    spec: RunSpec,
    checkpoint: Path | None = None,
    progress: Callable[[int], None] | None = None,
    local: bool = False,
    writer: int = 0,
) -> tuple[str, Rows | Failure]:
    """One run, here or in a worker; an error in it must not end the others.

    A worker that finds another key has other files or another version than this process.
    """
    main = threading.current_thread() is threading.main_thread()
    away = os.getpid() != writer and writer != 0
    if local and main and away:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    try:
        if writer and spec.key() != key:
            raise StoreError(
                "the worker finds something else under this scenario; give it the same version of "
                f"gangwise and the same files ({spec.source.name})"
            )
        return key, measure(spec, checkpoint, progress)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return key, Failure(text, traceback.format_exc(), None if away else error)


def _plan(
    experiment: Mapping[str, Any], specs: Sequence[RunSpec], keys: Sequence[str]
) -> dict[str, object]:
    cells = {(str(spec.cell), spec.slots): spec for spec in specs}.values()
    found = [(spec.cell, fidelity_of(spec.source.scenario(), spec.slots)) for spec in cells]
    fidelity = [{"cell": dict(cell), **of} for cell, of in found if of is not None]
    runs = [
        {
            "key": key,
            "cell": dict(spec.cell),
            "label": spec.label,
            "comparator": spec.policy is None,
            "seed": spec.seed,
            "slots": spec.slots,
        }
        for key, spec in zip(keys, specs)
    ]
    plan: dict[str, object] = {"experiment": dict(experiment), "runs": runs}
    return plan | {"fidelity": fidelity} if fidelity else plan
