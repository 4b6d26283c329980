"""A cluster of local processes, under test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gangwise.engines import rank
from gangwise.engines.local import LocalEngine
from tests.engines.conformance import NODES

RANK = """
import json, os, sys, time
seconds, fails, folder = float(sys.argv[1]), sys.argv[2] == "True", sys.argv[3]
e = os.environ
held = [int(d) for d in e.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
with open(f"{folder}/{e['GANGWISE_JOB']}.{os.getpid()}.ran", "w") as file:
    json.dump([e["GANGWISE_NODE"], held], file)
time.sleep(seconds)
sys.exit(3 if fails else 0)
"""


class LocalLab:
    patience = 60.0
    quiet = 0.3

    def __init__(self, folder: Path):
        self.folder = folder / "cluster"
        self.notes = folder / "notes"
        self.notes.mkdir()
        LocalEngine.create(
            self.folder,
            [
                {
                    "name": n,
                    "devices": {"cpu": 4, "gpu": 4},
                    "labels": {"model": n[0], "rack": n[0]},
                }
                for n in NODES
            ],
        )

    def engine(self) -> LocalEngine:
        return LocalEngine(self.folder)

    def submit(
        self,
        seconds: float,
        tasks: int = 1,
        gpus: int = 1,
        *,
        fails: bool = False,
        model: str = "",
        per_node: int = 0,
        wrapped: bool = False,
        limit: float = 600.0,
        head: int = 0,
    ) -> str:
        command = [sys.executable, "-S", "-c", RANK, str(seconds), str(fails), str(self.notes)]
        if wrapped:
            command = [sys.executable, rank.__file__, "--work", str(seconds), "--", *command]
        workers = {"tasks": tasks, "demand": {"gpu": gpus}}
        unlike = [{"tasks": 1, "demand": {"cpu": head}}, workers] if head else []
        return LocalEngine.submit(
            self.folder,
            command,
            tasks=tasks,
            demand={"gpu": gpus},
            constraint={"model": model} if model else {},
            per_node=per_node,
            limit=limit,
            groups=unlike,
        )

    def ran(self, job: str) -> list[tuple[str, tuple[int, ...]]]:
        notes = [json.loads(p.read_text() or "null") for p in self.notes.glob(f"{job}.*.ran")]
        return [(note[0], tuple(note[1])) for note in notes if note]

    def node_down(self, node: str) -> None:
        (self.folder / "down" / node).touch()

    def node_up(self, node: str) -> None:
        (self.folder / "down" / node).unlink()

    def pause(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def resume(self) -> None:
        self.folder.with_name("away").rename(self.folder)

    def stop(self) -> None:
        engine = self.engine()
        for row in engine.jobs():
            engine.cancel(row.job.id)
