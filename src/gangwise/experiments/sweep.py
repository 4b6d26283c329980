"""Sweeps: all runs of an experiment that are not finished yet, on many cores or machines.

Workers compute, this process writes: a cluster needs no shared folder, and a run is stored once,
however often a worker that died made it be computed.

Where the runs of a sweep are computed: joblib, with its own processes or a cluster's workers.

A cluster must exist already and have this version of gangwise installed. Dask and Ray start a task
again when its worker dies; of the processes of this machine, joblib's loky gives up all of them,
which is reported as :class:`WorkersLost`.

A joblib backend for whatever hands out futures, which Dask and Ray clusters both do.

joblib's own Dask backend leaves its caller waiting for ever once a task has lost too many workers,
and Ray's cannot hand over results as they come.

How what takes long tells how far it is.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from joblib.parallel import ParallelBackendBase

from gangwise.core.errors import GangwiseError, ScenarioError, StoreError, UnknownName
from gangwise.core.interrupt import children_left_alone
from gangwise.experiments.results import Results
from gangwise.experiments.runs import Rows, RunSpec, measure
from gangwise.experiments.specification import Experiment
from gangwise.experiments.store import Store

Backend = Literal["loky", "dask", "ray"]
T = TypeVar("T")

CONNECT = 30
"""Seconds to wait for a cluster."""

Cluster = tuple[Any, tuple[type[BaseException], ...]]
"""A backend for joblib, and the errors that say that workers died."""


class WorkersLost(Exception):  # noqa: N818 - the name says what it is
    """Workers died; tasks that are not finished have to be started again."""


def parallel(
    function: Callable[..., T],
    tasks: Iterable[tuple[Any, ...]],
    jobs: int = -1,
    backend: Backend = "loky",
    address: str | None = None,
) -> Generator[T, None, None]:
    """``function(*task)`` of every task, in the order in which they get finished.

    Raises
    ------
    WorkersLost
        When workers died and the backend does not start their tasks again by itself.
    ScenarioError, StoreError
        When the backend is not installed, has no address, or does not answer; for 0 jobs.
    """
    from joblib import Parallel, delayed, parallel_config

    if backend not in ("loky", "dask", "ray"):
        raise ScenarioError(f"there is no backend {backend!r}; choose loky, dask or ray")
    if backend == "loky" and address:
        raise ScenarioError(f"address {address} is for a cluster: choose the backend dask or ray")
    if jobs == 0:
        raise ScenarioError("jobs is how many workers, or -1 for all cores; not 0")
    with _cluster(backend, address) as (chosen, lost):
        settings = {"inner_max_num_threads": 1} if chosen == "loky" and jobs != 1 else {}
        with parallel_config(chosen, n_jobs=jobs, **settings):
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
    if backend == "loky":
        from joblib.externals.loky.process_executor import BrokenProcessPool

        yield "loky", (BrokenProcessPool,)
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


Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


def silent(what: str, done: int, of: int) -> None:
    """Tell nobody."""


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
    store, tell = Store(Path(out)), progress or silent
    specs = experiment.runs()
    keys = [spec.key() for spec in specs]
    store.write_plan(experiment.name, _plan(experiment, specs, keys))
    wanted = dict(zip(keys, specs))
    left = {key: spec for key, spec in wanted.items() if not store.finished(key)}
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
                        store.write(key, spec.identity(), outcome)
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
    return Results.open(store.folder, experiment.name)


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
