"""What watching promises, and what acting keeps: the same gangs on two clusters, seed by seed.

    python -m benchmarks.live_promise --seeds 10 --jobs 70 --mean 40 --load 0.7 --out FOLDER

Each seed of the world of :mod:`benchmarks.live_slurm` is played twice, on a private Slurm each:
by its backfill, with a service of learned rates that watches (``shadow``), and by such a service
that acts (``learned``). The account of the one that watched is held against the mean completion
times of the two. ``begin`` is the median from a decision of the acting service to the start of the
last rank. A cluster whose results lie in FOLDER is not played again. Play a seed alone first: what
is compiled then is not compiled while clusters wait.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import live_slurm
from gangwise.service.account import account

SIDES = "shadow", "learned"


def play(seed: int, who: str, folder: Path, args: argparse.Namespace) -> None:
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    live_slurm.account = lambda *_, **__: {}  # judged afterwards
    world = live_slurm.World.drawn(seed, args.jobs, args.load, args.mean)
    found = live_slurm.live(world, who, folder)
    told = {k: found[k].tolist() for k in ("completion", "begin") if k in found}
    (folder / "found.json").write_text(json.dumps(told))


def played(args: argparse.Namespace) -> None:
    """All clusters, some at once, each in a process of its own."""
    wanted = [(s, who) for s in range(args.first, args.first + args.seeds) for who in SIDES]
    wanted = [(s, w) for s, w in wanted if not (args.out / f"{s}-{w}" / "found.json").exists()]
    running: list[subprocess.Popen[bytes]] = []
    while wanted or running:
        running = [one for one in running if one.poll() is None]
        while wanted and len(running) < args.at_once:
            words = [sys.executable, "-m", "benchmarks.live_promise", *sys.argv[1:], "--one"]
            running.append(subprocess.Popen([*words, *map(str, wanted.pop(0))]))
        time.sleep(1.0)


def judged(seed: int, out: Path) -> dict[str, Any] | None:
    folders = [out / f"{seed}-{who}" for who in SIDES]
    if not all((folder / "found.json").exists() for folder in folders):
        return None
    watched, acted = (json.loads((folder / "found.json").read_text()) for folder in folders)
    os.environ["XDG_CONFIG_HOME"] = str(folders[0] / "config")  # which its checkpoint is sealed by
    found = account(folders[0] / "state", since=0.0)
    before, after = (float(np.mean(each["completion"])) for each in (watched, acted))
    kept = 1.0 - after / before
    return {
        "seed": seed,
        "slurm": before,
        "learned": after,
        "kept": kept,
        "promise": found["saving"],
        "within": found["within"],
        "error": found["error"],
        "told": abs(found["saving"]) > found["within"],
        "covered": abs(kept - found["saving"]) <= found["within"],
        "begin": float(np.median(acted["begin"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=70)
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--mean", type=float, default=40.0, help="seconds of work of a job")
    parser.add_argument("--at-once", type=int, default=8, help="clusters")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        seed, who = int(args.one[0]), args.one[1]
        folder = args.out / f"{seed}-{who}"
        folder.mkdir(parents=True, exist_ok=True)
        play(seed, who, folder, args)
        return
    played(args)
    found = [judged(seed, args.out) for seed in range(args.first, args.first + args.seeds)]
    rows = [row for row in found if row is not None]
    for row in rows:
        plain = {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}
        print(json.dumps(plain))
    print(f"kept within the interval: {sum(row['covered'] for row in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()
