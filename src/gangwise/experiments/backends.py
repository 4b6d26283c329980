"""Where the runs of a sweep are computed: joblib, with its own processes or a cluster's workers.

A cluster must exist already and have this version of gangwise installed. Dask and Ray start a task
again when its worker dies; of the processes of this machine, joblib's loky gives up all of them,
which is reported as :class:`WorkersLost`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from gangwise.core.errors import ScenarioError, StoreError

__all__ = ["Backend", "WorkersLost", "parallel"]

Backend = Literal["loky", "dask", "ray"]
T = TypeVar("T")

CONNECT = 30
"""Seconds to wait for a cluster."""


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
        When the backend is not installed, has no address, or does not answer.
    """
    from joblib import Parallel, delayed, parallel_config

    if backend not in ("loky", "dask", "ray"):
        raise ScenarioError(f"there is no backend {backend!r}; choose loky, dask or ray")
    with _cluster(backend, address) as (chosen, lost):
        settings = {"inner_max_num_threads": 1} if chosen == "loky" and jobs != 1 else {}
        with parallel_config(chosen, n_jobs=jobs, **settings):
            results = Parallel(return_as="generator_unordered", batch_size=1)(
                delayed(function)(*task) for task in tasks
            )
            try:
                yield from results
            except lost as error:
                raise WorkersLost(f"{type(error).__name__}: {str(error).splitlines()[0]}") from None
            finally:
                results.close()


@contextmanager
def _cluster(
    backend: Backend, address: str | None
) -> Iterator[tuple[Any, tuple[type[BaseException], ...]]]:
    """A backend for joblib, and the errors that say that workers died."""
    if backend == "loky":
        from joblib.externals.loky.process_executor import BrokenProcessPool

        yield "loky", (BrokenProcessPool,)
        return
    package = _package(backend)
    if not address:
        raise ScenarioError(f"backend {backend} needs the address of a cluster that is running")
    if backend == "dask":
        try:
            client = package.Client(address, timeout=CONNECT, set_as_default=False)
        except OSError as error:
            raise StoreError(f"no Dask scheduler answers at {address}: {error}") from error
        with client:
            try:
                client.wait_for_workers(1, timeout=CONNECT)
            except TimeoutError as error:
                raise StoreError(f"the Dask cluster at {address} has no worker") from error

            def submit(function: Callable[[], Any]) -> Any:
                return client.submit(function, pure=False)

            from gangwise.experiments.cluster import ClusterBackend

            cores = sum(client.ncores().values())
            yield ClusterBackend(submit, cores), (package.KilledWorker,)
        return
    try:
        package.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    except ConnectionError as error:
        raise StoreError(f"no Ray cluster answers at {address}: {error}") from error
    try:
        remote = package.remote(num_cpus=1, max_retries=3)(_call)

        def start(function: Callable[[], Any]) -> Future[Any]:
            future: Future[Any] = remote.remote(function).future()
            return future

        from gangwise.experiments.cluster import ClusterBackend

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
