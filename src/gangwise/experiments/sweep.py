"""Sweeps: all runs of an experiment that are not finished yet, on many cores or machines.

Workers compute, this process writes: a cluster needs no shared folder, and a run is stored once,
however often a worker that died made it be computed. What :func:`perform` does, a comparison, a
sweep, a tuning and a reproduction do alike.

Workers are joblib's: threads for runs that are played in compiled code from end to end (those of
:mod:`gangwise.gain_overhead.whole_runs`), its own processes, or those of a Dask or Ray cluster,
which must exist already and have this version of gangwise installed. Dask and Ray start a task
again when its worker dies; of the processes of this machine, joblib's loky gives up all of them,
which is reported as :class:`WorkersLost`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import socket
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Literal, TypeVar

from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.process_executor import BrokenProcessPool
from joblib.parallel import ParallelBackendBase

from gangwise.core.errors import GangwiseError, ScenarioError, StoreError, UnknownName
from gangwise.core.interrupt import children_left_alone
from gangwise.core.registry import comparators as registered_comparators
from gangwise.experiments.results import Results
from gangwise.experiments.runs import Replay, Rows, RunSpec, fidelity_of, measure
from gangwise.experiments.specification import Experiment
from gangwise.experiments.store import Store

Backend = Literal["loky", "dask", "ray", "threading"]
T = TypeVar("T")

CONNECT = 30
"""Seconds to wait for a cluster."""

Cluster = tuple[Any, tuple[type[BaseException], ...]]
"""A backend for joblib, and the errors that say that workers died."""


Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


def silent(what: str, done: int, of: int) -> None:
    """Tell nobody."""


class WorkersLost(Exception):  # noqa: N818 - the name says what it is
    """Workers died; tasks that are not finished have to be started again."""


@dataclass(frozen=True)
class Workers:
    """Who plays runs.

    Parameters
    ----------
    jobs : int
        How many at once; −1 for all cores, or all of the cluster. A single one is this process.
    backend : {"loky", "dask", "ray", "threading"}
        Threads are for compiled code; others would wait for the interpreter.
    address : str, optional
        Of the Dask scheduler or Ray cluster.
    """

    jobs: int = -1
    backend: Backend = "loky"
    address: str | None = None

    def here(self) -> bool:
        """Whether this process does it all; says so if these workers cannot be."""
        if self.backend not in ("loky", "dask", "ray", "threading"):
            raise ScenarioError(f"there is no backend {self.backend!r}; choose loky, dask or ray")
        if self.backend == "loky" and self.address:
            raise ScenarioError(
                f"address {self.address} is for a cluster: choose the backend dask or ray"
            )
        if not isinstance(self.jobs, int) or self.jobs == 0:
            raise ScenarioError(f"jobs is how many workers, or -1 for all cores; not {self.jobs!r}")
        return self.backend == "loky" and (self.jobs == 1 or effective_n_jobs(self.jobs) == 1)


def parallel(
    function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], workers: Workers
) -> Generator[T, None, None]:
    """``function(*task)`` of every task, in the order in which they get finished.

    Raises
    ------
    WorkersLost
        When workers died and the backend does not start their tasks again by itself.
    ScenarioError, StoreError
        When the backend is not installed, has no address, or does not answer; for 0 jobs.
    """
    jobs, backend = workers.jobs, workers.backend
    workers.here()
    with _cluster(backend, workers.address) as (chosen, lost):
        settings = {"inner_max_num_threads": 1} if chosen == "loky" and jobs != 1 else {}
        with parallel_config(chosen, n_jobs=jobs, **settings):
            if chosen == "loky":  # these two processes, when they are started, unblock signals
                for tracker in (resource_tracker, loky_tracker):
                    tracker.ensure_running()
            with children_left_alone():
                results = Parallel(return_as="generator_unordered", batch_size=1)(
                    delayed(function)(*task) for task in tasks
                )
            try:
                yield from results
            except lost as error:
                why = next(iter(str(error).splitlines()), "")
                raise WorkersLost(f"{type(error).__name__}: {why}") from None
            finally:
                with warnings.catch_warnings():  # joblib's advice to users who stop early
                    warnings.simplefilter("ignore", UserWarning)
                    results.close()


@contextmanager
def _cluster(backend: Backend, address: str | None) -> Iterator[Cluster]:
    if backend in ("loky", "threading"):
        yield backend, (BrokenProcessPool,)
        return
    package = _package(backend)
    if not address:
        raise ScenarioError(f"backend {backend} needs the address of a cluster that is running")
    with (_dask if backend == "dask" else _ray)(package, address) as cluster:
        yield cluster


def _knock(address: str) -> None:
    """See that something listens; Dask and Ray take minutes to say that nothing does."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not (host and port.isdigit()):
        raise ScenarioError(f"address {address!r} has no port: write HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()
    except (OSError, OverflowError) as error:
        raise StoreError(f"nothing answers at {address}: {error}; start the cluster") from error


@contextmanager
def _dask(package: Any, address: str) -> Iterator[Cluster]:
    _knock(address)
    try:
        client = package.Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT)
        except TimeoutError as error:
            raise StoreError(f"the Dask cluster at {address} has no worker") from error

        def submit(function: Callable[[], Any]) -> Any:
            return client.submit(function, pure=False)

        yield ClusterBackend(submit, sum(client.ncores().values())), (package.KilledWorker,)


@contextmanager
def _ray(package: Any, address: str) -> Iterator[Cluster]:
    if address != "auto":
        _knock(address)
    try:
        package.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError, package.exceptions.RayError) as error:
        raise StoreError(f"no Ray cluster answers at {address}: {error}") from error
    try:
        remote = package.remote(num_cpus=1, max_retries=3)(_called)

        def start(function: Callable[[], Any]) -> Future[Any]:
            future: Future[Any] = remote.remote(function).future()
            return future

        cores = int(package.cluster_resources().get("CPU", 1))
        yield ClusterBackend(start, cores), (package.exceptions.RayError,)
    finally:
        package.shutdown()


def _called(function: Callable[[], Any]) -> Any:
    return function()


def _package(backend: Backend) -> Any:
    """The library of a cluster."""
    name = {"dask": "distributed", "ray": "ray"}[backend]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ScenarioError(
            f"backend {backend} is not installed: pip install 'gangwise[{backend}]'"
        ) from error


class ClusterBackend(ParallelBackendBase):  # type: ignore[misc]  # joblib ships no types
    """Tasks go to a cluster.

    Parameters
    ----------
    start : callable
        Starts a function without arguments on the cluster; returns a future with
        ``add_done_callback`` and ``result``.
    cores : int
        How many tasks run at once.
    """

    supports_retrieve_callback = True

    def __init__(self, start: Callable[[Callable[[], Any]], Any], cores: int, **settings: Any):
        super().__init__(**settings)
        self.start, self.cores = start, cores
        self._futures: set[Any] = set()

    def effective_n_jobs(self, n_jobs: int) -> int:
        """As many as asked for, −1 for all cores of the cluster."""
        return self.cores if n_jobs < 0 else n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None]) -> Any:
        """Start a batch of tasks."""
        future = self.start(func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        """The result of a finished batch, or the error that ended it."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Give up what is not finished."""
        for future in tuple(self._futures):
            future.cancel()


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
        When results cannot be written, another process writes into the folder, or workers keep
        dying.
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
    """Do the runs that are not in the store, and return the results of all.

    Whoever plays them, a run gives the same numbers. What cannot travel, such as a policy that does
    not pickle or that was defined in ``__main__``, is played in this process.

    Parameters
    ----------
    experiment : mapping
        What the plan says beside the runs; at least its ``name``.
    specs : sequence of RunSpec
    store : Store
    workers : Workers
    progress : callable, optional
        ``progress(what, done, of)``, in runs.
    slotwise : bool
        Progress in slots instead.

    Raises
    ------
    StoreError
        When results cannot be written, another process writes into the folder, or workers keep
        dying.
    GangwiseError
        Of the first run that failed, after all others are done.
    Interrupted
        On Ctrl-C, with the run in hand saved if it was played in this process.
    """
    name, here = str(experiment["name"]), workers.here()
    keys = [spec.key() for spec in specs]
    wanted = dict(zip(keys, specs))
    with store.lock():
        store.write_plan(name, _plan(experiment, specs, keys))
        left = {key: spec for key, spec in wanted.items() if not store.finished(key)}
        tell = _Teller(progress or silent, name, list(wanted.values()), slotwise)
        for key in wanted.keys() - left.keys():
            store.forget_checkpoint(key)  # killed between the two, a run leaves it behind
            tell.finished(wanted[key])
        tell.now()
        failed: dict[str, Failure] = {}

        def take(key: str, outcome: Rows | Failure) -> None:
            spec = left.pop(key)
            if isinstance(outcome, Failure):
                failed[key] = outcome
            else:
                store.write(key, spec.identity(), outcome)
            tell.finished(spec)
            tell.now()

        if not here:
            if workers.backend == "loky":  # for these, threads: nothing is to be started or sent
                whole = {key for key, spec in left.items() if spec.whole}
                _send(whole, left, store, Workers(workers.jobs, "threading"), take)
            away = {key for key, spec in left.items() if _travels(spec)}
            _send(away, left, store, workers, take)
        for key, spec in list(left.items()):
            slots_played = partial(tell.now, spec) if slotwise else None
            take(key, _attempt(key, spec, store.checkpoint(key), slots_played)[1])
    if failed:
        raise _error_of(failed, wanted)
    return Results.open(store, name)


def _error_of(failed: Mapping[str, Failure], wanted: Mapping[str, RunSpec]) -> GangwiseError:
    """One error for all runs that failed: of their kind, where that is gangwise's own."""
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


def _send(
    away: set[str],
    left: dict[str, RunSpec],
    store: Store,
    workers: Workers,
    take: Callable[[str, Rows | Failure], None],
) -> None:
    """Have workers play what is left, as often as they die."""
    attempts, local = 0, workers.backend in ("loky", "threading")
    total = len(left)
    while away & left.keys():
        before = len(left)
        tasks = [
            (key, spec, store.checkpoint(key) if local else None, None, local, os.getpid())
            for key, spec in left.items()
            if key in away
        ]
        try:
            with closing(parallel(_attempt, tasks, workers)) as finished:
                for key, outcome in finished:
                    take(key, outcome)
        except WorkersLost as lost:
            attempts = attempts + 1 if len(left) == before else 0
            if attempts == ATTEMPTS:
                raise StoreError(
                    f"workers died {ATTEMPTS} times without finishing a run ({lost}); "
                    f"{total - len(left)} of {total} runs are stored, start again to do the rest"
                ) from lost


class _Teller:
    """How far a sweep is, in runs or in slots."""

    def __init__(self, tell: Progress, what: str, specs: Sequence[RunSpec], slotwise: bool):
        self._tell, self._what, self._slotwise = tell, what, slotwise
        self._of, self._done = sum(map(self._size, specs)), 0

    def _size(self, spec: RunSpec) -> int:
        return spec.slots if self._slotwise else 1

    def finished(self, spec: RunSpec) -> None:
        self._done += self._size(spec)

    def now(self, spec: RunSpec | None = None, slots: int = 0) -> None:
        """Tell, with the slots of the run in hand."""
        self._tell(self._what, self._done + slots, self._of)


def check_names(spec: RunSpec, comparators: Sequence[str], metrics: Sequence[str]) -> None:
    """Comparators and metrics are those of an instance, so one is drawn.

    Raises
    ------
    UnknownName
        For one that it does not have.
    """
    if isinstance(spec.source.scenario(), Replay):
        return
    instance = spec.source.instance(spec.seed)
    known = list(dict.fromkeys([*instance.comparators, *registered_comparators(instance.family)]))
    for name in comparators:
        if name not in known:
            raise UnknownName("comparator", name, known)
    if metrics:
        known = ["reward", *instance.environment().metrics]
        for name in metrics:
            if name not in known:
                raise UnknownName("metric", name, known)


@dataclass(frozen=True)
class Failure:
    """Why a run failed, in words: not every exception survives the way back from a worker.

    Attributes
    ----------
    cause : Exception, optional
        The exception itself, where the run was played in this process.
    """

    error: str
    traceback: str
    cause: Exception | None = None


def _travels(spec: RunSpec) -> bool:
    """Whether a worker can be given a run: its classes can be imported there.

    A comparator that a user registered is known in this process alone.
    """
    if spec.policy is None and (judge := spec.registered) and not judge.built_in:
        return False
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
        told = f"{type(error).__name__}: {error}"
        return key, Failure(told, traceback.format_exc(), None if away else error)


def _plan(
    experiment: Mapping[str, Any], specs: Sequence[RunSpec], keys: Sequence[str]
) -> dict[str, object]:
    return {
        "experiment": dict(experiment),
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
        **({"fidelity": told} if (told := _fidelity(specs)) else {}),
    }


def _fidelity(specs: Sequence[RunSpec]) -> list[dict[str, object]]:
    """How much of a log each cell plays; nothing where none is played."""
    cells = {(str(spec.cell), spec.slots): spec for spec in specs}.values()
    found = [(spec.cell, fidelity_of(spec.source.scenario(), spec.slots)) for spec in cells]
    return [{"cell": dict(cell), **told} for cell, told in found if told is not None]
