"""Where the runs of a sweep are computed: joblib, with its own processes or a cluster's workers.

A cluster must exist already and have this version of gangwise installed. Dask and Ray start a task
again when its worker dies; of the processes of this machine, joblib's loky gives up all of them,
which is reported as :class:`WorkersLost`.
"""

from __future__ import annotations

import importlib
import socket
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from gangwise.core.errors import ScenarioError, StoreError

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
    from gangwise.experiments.cluster import ClusterBackend

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
    from gangwise.experiments.cluster import ClusterBackend

    if address != "auto":
        _knock(address)
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


def _package(backend: Backend) -> Any:
    """The library of a cluster."""
    name = {"dask": "distributed", "ray": "ray"}[backend]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ScenarioError(
            f"backend {backend} is not installed: pip install 'gangwise[{backend}]'"
        ) from error
