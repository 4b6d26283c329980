"""What gangs gain by being near one another, on drawn worlds, against rivals; and its picture.

    python -m benchmarks.distance [--seeds 8] [--first 100] [--jobs 2000] [--svg FILE]

Like nodes in racks and blocks; job types mind distance by shares that are drawn. Rivals are EASY
with best-fit, by declared rates, with Kueue's topology-aware scheduling, and Slurm's topology/tree.
Nothing was tuned on the worlds of seeds from 100 on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from gangwise.jobs.books import Books
from gangwise.jobs.choice import placed
from gangwise.jobs.distance import Distance, level_on, levels_of
from gangwise.jobs.distance import domains as domains_of
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from gangwise.study.statistics import estimate_text, mean_and_interval

RIVALS = (
    "fcfs+easy+best-fit",
    "fcfs+easy+labels",
    "fcfs+easy+best-fit:ends=learned",
    "slurm",
    "fcfs+easy+tas-preferred",
    "fcfs+easy+distance",
)


def drawn(seed: int, J: int, apart: float, load: float) -> tuple[Jobs, Nodes, Conditions]:
    """64 nodes of 8 GPUs in racks of 8, blocks of 4 racks; 8 job types.

    ``apart`` is the mean over job types of the overhead across the cluster, lognormal with a
    standard deviation of 1; 0.3 and 0.6 of it in one rack and in one block.
    """
    rng = np.random.default_rng(seed)
    nodes = Nodes.of(
        Node(f"n{n}", {"gpu": 8}, {"rack": f"r{n // 8}", "block": f"b{n // 32}"}) for n in range(64)
    )
    tasks = rng.choice([1, 2, 4, 8, 16, 32], p=[0.4, 0.15, 0.15, 0.15, 0.1, 0.05], size=J)
    run = rng.lognormal(7, 1.2, J)
    submit = np.sort(rng.uniform(0, (run * tasks).sum() / (64 * 8 * load), J))
    types = rng.integers(0, 8, J)
    limit = run * rng.uniform(1, 5, J)
    names = [f"t{l}" for l in types]
    jobs = Jobs.of(submit, run, tasks, {"gpu": 1.0}, limit=limit, type=names)
    overhead = apart * np.exp(rng.normal(size=8) - 0.5)[:, None] * np.array([0, 0.3, 0.6, 1.0])
    distance = Distance(("rack", "block"), overhead, np.zeros((8, 4)))
    return jobs, nodes, Conditions(noise=np.exp(rng.normal(0, 0.1, J)), distance=distance)


def switched(nodes: Nodes) -> Nodes:
    """The same nodes as topology.conf has them: leaf switches for racks."""
    racks = {labels["rack"]: i for i, labels in reversed(list(enumerate(nodes.labels)))}
    order = sorted(racks, key=racks.__getitem__)
    labels = tuple(
        {**of, "switch": f"{order.index(of['rack'])}:top/{of['block']}/{of['rack']}"}
        for of in nodes.labels
    )
    return Nodes(nodes.names, nodes.devices, nodes.capacity, labels, nodes.rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    if options.svg is not None:
        options.svg.write_text(picture(), encoding="utf-8")
        return
    for load in (0.5, 0.8):
        for apart in (0.0, 0.1, 0.3, 1.0):
            rows: dict[str, list[tuple[float, float, float]]] = {}
            for seed in range(options.first, options.first + options.seeds):
                jobs, nodes, c = drawn(seed, options.jobs, apart, load)
                for name in options.rivals.split(","):
                    began = time.process_time()
                    mine = switched(nodes) if name == "slurm" else nodes
                    played = simulate_jobs(jobs, mine, name, c)
                    spent = time.process_time() - began
                    done = float(np.nanmean(played.end - jobs.submit))
                    rows.setdefault(name, []).append((done, spent, len(jobs)))
            first = np.array(next(iter(rows.values())))[:, 0]
            print(f"load {load}, apart {apart}")
            for name, values in rows.items():
                done = np.array(values)
                change = 100 * (done[:, 0] / first - 1)
                rate = done[1:, 2].sum() / done[1:, 1].sum() / 1000
                than_first = estimate_text(mean_and_interval(change), 2, True)
                mean = f"{done[:, 0].mean():8,.0f} s {than_first:>14} %"
                print(f"  {name:34} {mean} {rate:7,.0f} thousand jobs per CPU second", flush=True)


def picture() -> str:
    """A gang of 16 on 16 nodes of 8 GPUs, half in use, placed by best-fit and by ``distance``."""
    labels = [{"rack": f"r{n // 4}", "block": f"b{n // 8}"} for n in range(16)]
    nodes = Nodes.of(Node(f"n{n}", {"gpu": 8}, of) for n, of in enumerate(labels))
    jobs = Jobs.of(submit=[0.0], run=[36_000.0], tasks=[16], demand={"gpu": 1.0}, limit=[72_000.0])
    job = Tables.of(jobs, nodes, Conditions(), Options()).job(0)
    books = Books.opened(nodes)
    used = np.array([5, 6, 0, 1, 6, 5, 7, 5, 4, 6, 5, 8, 2, 0, 7, 6])
    books.free[:, 0] -= 1000 * used
    parts = []
    for column, choice in enumerate(("best-fit", "distance")):
        scheduler = create_scheduler(f"fcfs+easy+{choice}")
        scheduler.resize(nodes, jobs.types)
        placement = placed(scheduler.choice, job, books, 0.0)
        assert placement is not None
        taken = dict(placement[0])
        level = level_on(domains_of(nodes, levels_of(nodes)), list(taken))
        across = ("on one node", "in one rack", "in one block", "across blocks")[level]
        x0 = 20 + 300 * column
        parts.append(f'<text x="{x0}" y="24">{choice}: {len(taken)} nodes, {across}</text>')
        for n in range(16):
            x, y = x0 + 68 * (n // 4), 40 + 30 * (n % 4)
            for g in range(8):
                kind = (
                    "used" if g < used[n] else "gang" if g < used[n] + taken.get(n, 0) else "free"
                )
                parts.append(
                    f'<rect class="{kind}" x="{x + 7 * g}" y="{y}" width="6" height="20"/>'
                )
        for rack in range(4):
            parts.append(f'<text class="small" x="{x0 + 68 * rack}" y="172">rack {rack + 1}</text>')
    style = (
        "text{font:13px sans-serif;fill:currentColor}.small{font-size:11px}"
        ".used{fill:#9aa5b1}.gang{fill:#d1495b}.free{fill:none;stroke:#9aa5b1;stroke-width:.7}"
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 184" role="img">'
        f"<title>A gang of 16 GPUs, before and after</title><style>{style}</style>"
        + "".join(parts)
        + "</svg>\n"
    )


if __name__ == "__main__":
    main()
