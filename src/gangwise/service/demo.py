"""A simulated cluster with users, so that the service can be tried where there is none."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np

from gangwise.engines import rank
from gangwise.engines.local import LocalEngine
from gangwise.service.loop import Service

NODES = 6
SLOW = {"n4": 0.5}  # declared like the others, and slower


class Demo:
    """Six nodes of two generations, one of them half as fast as its label says.

    Users submit gangs of one to four ranks, a few seconds each, forty in a hundred seconds.
    Declared rates: ``model=new:2`` and 1 for the rest. Where it is ``served``, the cluster has a
    scheduler of its own (EASY with best-fit), as one that is only watched needs.
    """

    rates = ("model=new:2",)

    def __init__(self, folder: Path, served: bool, jobs: int = 40, seed: int = 0):
        self.folder = folder
        if not (folder / "nodes.json").exists():
            LocalEngine.create(
                folder,
                [
                    {
                        "name": f"n{i}",
                        "devices": {"cpu": 8, "gpu": 4},
                        "labels": {"model": "new" if i < NODES // 2 else "old"},
                        "speed": SLOW.get(f"n{i}", 2.0 if i < NODES // 2 else 1.0),
                    }
                    for i in range(NODES)
                ],
            )
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._users, args=(jobs, seed), daemon=True)]
        if served:
            self._threads.append(threading.Thread(target=self._serve, daemon=True))
        for thread in self._threads:
            thread.start()

    def _users(self, jobs: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(jobs):
            if self._stop.wait(float(rng.exponential(2.5))):
                return
            work = float(rng.uniform(4.0, 16.0))
            LocalEngine.submit(
                self.folder,
                [sys.executable, "-S", rank.__file__, "--every", "1", "--sleep", f"{work:.2f}"],
                tasks=int(rng.integers(1, 5)),
                demand={"gpu": int(rng.choice([1, 2, 4]))},
                job_type=str(rng.choice(["train", "tune"])),
                user=str(rng.choice(["ada", "bo", "cy"])),
                limit=round(2 * work + 10, 1),
                work=work,
            )

    def _serve(self) -> None:
        engine = LocalEngine(self.folder)
        own = Service(engine, self.folder / "own", "fcfs+easy+best-fit", act=True)
        while not self._stop.is_set():
            own.tick(0.2)
        own.close()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5.0)
        engine = LocalEngine(self.folder)
        for row in engine.jobs():
            engine.cancel(row.job.id)
