"""Workers: processes of this machine, or those of a Dask or Ray cluster.

All are joblib's. A cluster must exist already and have this version of gangwise installed. Dask and
Ray start a task again when its worker dies; of the processes of this machine, joblib's loky gives
up all of them, which is reported as :class:`WorkersLost`.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.process_executor import BrokenProcessPool, ShutdownExecutorError
from joblib.parallel import ParallelBackendBase

from gangwise.core.errors import ScenarioError, StoreError, to_install
from gangwise.core.terminal import children_left_alone

T = TypeVar("T")

CONNECT = 30  # seconds to wait for a cluster

Cluster = tuple[Any, tuple[type[BaseException], ...]]
"""A backend for joblib, and the errors that say that workers died."""


class WorkersLost(Exception):  # noqa: N818 - the name says what it is
    """Workers died; tasks that are not finished must be started again."""


def parallel(
    function: Callable[..., T],
    tasks: Iterable[tuple[Any, ...]],
    take: Callable[[T], None],
    jobs: int,
    backend: str,
    address: str | None,
) -> None:
    """Let ``take`` have ``function(*task)`` of every task, in the order in which they finish.

    Raises WorkersLost when workers died and the backend does not start their tasks again by itself.
    Raises ScenarioError, StoreError when the backend is not installed, has no address, or does not
    answer.
    """
    if backend == "loky":
        function = partial(_in_folder, os.getcwd(), function)
    with _cluster(backend, address) as (chosen, lost):
        # Workers share the cores, so that none starts threads of its own.
        settings = {"inner_max_num_threads": 1} if chosen == "loky" and jobs != 1 else {}
        with parallel_config(chosen, n_jobs=jobs, **settings):
            if chosen == "loky":  # these two processes, when they are started, unblock signals
                for tracker in (resource_tracker, loky_tracker):
                    tracker.ensure_running()
            # Calling and looping stand in the frame that closes what it loops over: a Ctrl-C that
            # waits until the workers are started strikes as soon as it may, and they would then be
            # left to the end of the interpreter.
            results: Any = None
            try:
                with children_left_alone():
                    results = Parallel(return_as="generator_unordered", batch_size=1)(
                        delayed(function)(*task) for task in tasks
                    )
                for result in results:
                    take(result)
            except lost as error:
                reason = next(iter(str(error).splitlines()), "")
                raise WorkersLost(f"{type(error).__name__}: {reason}") from None
            finally:
                with warnings.catch_warnings():  # joblib's advice to users who stop early
                    warnings.simplefilter("ignore", UserWarning)
                    if results is not None:
                        results.close()


def _in_folder(folder: str, function: Callable[..., T], *task: Any) -> T:
    """A task in the folder of its caller: workers live on in that in which they were started."""
    os.chdir(folder)
    return function(*task)


# A thread of loky logs an error when it hands out a task while the workers are being ended.
logging.getLogger("concurrent.futures").addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], ShutdownExecutorError))
)


@contextmanager
def _cluster(backend: str, address: str | None) -> Iterator[Cluster]:
    if backend == "loky":
        yield backend, (BrokenProcessPool,)
        return
    try:
        package = importlib.import_module({"dask": "distributed", "ray": "ray"}[backend])
    except ImportError as error:
        raise ScenarioError(f"backend {backend} is not installed; {to_install(backend)}") from error
    if not address:
        raise ScenarioError(f"backend {backend} needs the address of a cluster that is running")
    with (_dask if backend == "dask" else _ray)(package, address) as cluster:
        yield cluster


def _require_listener(address: str) -> None:
    """Raise StoreError where nothing listens: Dask and Ray take minutes to notice that."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not (host and port.isdigit()):
        raise ScenarioError(f"address {address!r} has no port: write HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()
    except (OSError, OverflowError) as error:
        raise StoreError(f"nothing answers at {address}: {error}; start the cluster") from error


@contextmanager
def _dask(package: Any, address: str) -> Iterator[Cluster]:
    _require_listener(address)
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
            # Of equal tasks that are pure, Dask would hand out one answer.
            return client.submit(function, pure=False)

        yield ClusterBackend(submit, sum(client.ncores().values())), (package.KilledWorker,)


@contextmanager
def _ray(package: Any, address: str) -> Iterator[Cluster]:
    if address != "auto":
        _require_listener(address)
    try:
        package.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError, package.exceptions.RayError) as error:
        raise StoreError(f"no Ray cluster answers at {address}: {error}") from error
    try:
        remote = package.remote(num_cpus=1, max_retries=3)(_call)

        def start(function: Callable[[], Any]) -> Future[Any]:
            future: Future[Any] = remote.remote(function).future()
            return future

        cores = int(package.cluster_resources().get("CPU", 1))
        yield ClusterBackend(start, cores), (package.exceptions.RayError,)
    finally:
        package.shutdown()


def _call(function: Callable[[], Any]) -> Any:
    return function()


class ClusterBackend(ParallelBackendBase):  # type: ignore[misc]  # joblib ships no types
    """Sends tasks to a cluster, of which so many ``cores`` run one each.

    ``start`` starts a function without arguments there and returns its future.
    """

    supports_retrieve_callback = True

    def __init__(self, start: Callable[[Callable[[], Any]], Any], cores: int, **settings: Any):
        super().__init__(**settings)
        self.start, self.cores = start, cores
        self._futures: set[Any] = set()

    def effective_n_jobs(self, n_jobs: int) -> int:
        return self.cores if n_jobs < 0 else n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None]) -> Any:
        future = self.start(func)
        self._futures.add(future)
        # In this order: joblib may end everything when it is called back.
        future.add_done_callback(self._futures.discard)
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        # A copy, since futures that end leave the set meanwhile.
        for future in tuple(self._futures):
            future.cancel()
