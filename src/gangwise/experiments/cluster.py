"""A joblib backend for whatever hands out futures, which Dask and Ray clusters both do.

joblib's own Dask backend leaves its caller waiting for ever once a task has lost too many workers,
and Ray's cannot hand over results as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joblib.parallel import ParallelBackendBase


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
