"""PPO on ``gangwise/Jobs-v1`` beside schedulers: who starts next, with the same choice of nodes.

Needs ``pip install sb3-contrib`` (MaskablePPO of stable-baselines3). Trains on episodes drawn from
seeds of its own and is judged on others, on which every scheduler plays the same jobs, nodes and
hidden rates. Run by hand: ``python benchmarks/ppo.py --steps 200000``.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import gymnasium
import numpy as np

import gangwise.gym  # noqa: F401 - registers the ids
from gangwise.experiments.statistics import mean_and_interval
from gangwise.jobs import simulate_jobs

RIVALS = (
    "fcfs+none+learned",
    "fcfs+easy+best-fit",
    "fcfs+easy+label",
    "fcfs+easy+learned",
    "sjf+none+learned",
    "sjf+easy+learned",
)
JUDGED = 10_000
"""First seed of the judging episodes; training draws from seed 0 on."""


def played(env: Any, seed: int, decide: Any) -> float:
    """Mean completion time in hours of an episode."""
    seen, info = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        seen, reward, over, _, info = env.step(decide(seen, info["action_mask"]))
        total += reward
    return -total


def main() -> None:
    """Train, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--load", type=float, default=0.9)
    given = parser.parse_args()
    from sb3_contrib import MaskablePPO

    env = gymnasium.make("gangwise/Jobs-v1", jobs=given.jobs, load=given.load).unwrapped
    began = time.perf_counter()
    model = MaskablePPO(
        "MlpPolicy", env, n_steps=2048, batch_size=256, gamma=1.0, gae_lambda=0.98, seed=0
    )
    model.learn(given.steps)
    trained = time.perf_counter() - began

    def of_ppo(seen: Any, mask: Any) -> int:
        return int(model.predict(seen, action_masks=mask, deterministic=True)[0])

    hours: dict[str, list[float]] = {"ppo": []}
    for seed in range(JUDGED, JUDGED + given.seeds):
        hours["ppo"].append(played(env, seed, of_ppo))
        t = env.tables
        for name in RIVALS:
            found = simulate_jobs(t.jobs, t.nodes, name, t.conditions, t.options)
            hours.setdefault(name, []).append(float((found.end - t.jobs.submit).mean()) / 3600)
    base = np.array(hours["fcfs+easy+label"])
    rows = []
    for name, each in hours.items():
        over = mean_and_interval(100 * (np.array(each) / base - 1))
        rows.append(
            {"name": name, "hours": float(np.mean(each)), "percent": over.mean, "half": over.half}
        )
    print(json.dumps({"steps": given.steps, "seconds": trained, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
