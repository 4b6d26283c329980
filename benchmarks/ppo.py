"""PPO on ``gangwise/Jobs-v1`` beside schedulers: who starts next, with the same choice of nodes.

Needs ``pip install sb3-contrib`` (MaskablePPO of stable-baselines3). Trains on episodes drawn from
seeds of its own and is judged on others, on which every scheduler plays the same jobs, nodes and
hidden rates. Run by hand: ``python benchmarks/ppo.py``; ``--json FILE`` keeps the numbers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import gangwise.gym  # noqa: F401 - registers the ids
from gangwise.experiments.statistics import estimate_text, mean_and_interval
from gangwise.jobs import simulate_jobs

BASE = "fcfs+easy+label"
RIVALS = (
    "fcfs+none+learned",
    "fcfs+easy+best-fit",
    BASE,
    "fcfs+easy+learned",
    "sjf+none+learned",
    "sjf+easy+learned",
)
JUDGED = 10_000
"""First seed of the judging episodes; training draws from seeds below."""

DISCOUNT = 0.99
"""Of a decision. With 0.9995 and a window of 16 jobs a million steps taught nothing."""


def made(given: argparse.Namespace) -> Any:
    """The environment, without the wrappers that check every step."""
    settings = {name: getattr(given, name) for name in ("jobs", "window", "nodes", "load")}
    return gymnasium.make("gangwise/Jobs-v1", **settings).unwrapped


Decide = Callable[[Any, Any], int]


def trained(given: argparse.Namespace) -> tuple[dict[str, Decide], list[Any], float]:
    """What PPO does, surest or drawn, how its return moved, and the seconds of training."""
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

    torch.set_num_threads(1)
    environments = [lambda: made(given) for _ in range(given.envs)]
    inner = VecMonitor(DummyVecEnv(environments))
    vector = VecNormalize(inner, gamma=DISCOUNT)
    vector.seed(0)
    model = MaskablePPO(
        "MlpPolicy",
        vector,
        n_steps=512,
        batch_size=1024,
        n_epochs=5,
        learning_rate=lambda left: 5e-4 * left,
        gamma=DISCOUNT,
        gae_lambda=0.95,
        ent_coef=0.005,
        policy_kwargs={"net_arch": [128, 128]},
        seed=0,
    )
    curve: list[Any] = []

    class Returns(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            seen = [each["r"] for each in self.model.ep_info_buffer]
            if seen:
                curve.append((int(self.num_timesteps), -float(np.mean(seen))))
                if len(curve) % 10 == 0:
                    print(f"{curve[-1][0]:>9,} steps: {curve[-1][1]:.2f} hours", flush=True)

    began = time.perf_counter()
    model.learn(given.steps, callback=Returns())
    seconds = time.perf_counter() - began
    vector.training = False

    def decide(seen: Any, mask: Any, surest: bool) -> int:
        known = vector.normalize_obs(seen)
        return int(model.predict(known, action_masks=mask, deterministic=surest)[0])

    both = {"ppo": partial(decide, surest=True), "ppo, drawn": partial(decide, surest=False)}
    return both, curve, seconds


def played(env: Any, seed: int, decide: Decide) -> float:
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
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--load", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    both, curve, seconds = trained(given)
    env = made(given)
    hours: dict[str, list[float]] = {name: [] for name in both}
    for seed in range(JUDGED, JUDGED + given.seeds):
        for name, decide in both.items():
            hours[name].append(played(env, seed, decide))
        t = env.tables
        for name in RIVALS:
            found = simulate_jobs(t.jobs, t.nodes, name, t.conditions, t.options)
            hours.setdefault(name, []).append(float((found.end - t.jobs.submit).mean()) / 3600)
    base, ppo = np.array(hours[BASE]), np.array(hours["ppo"])
    rows = []
    for name, each in sorted(hours.items(), key=lambda row: np.mean(row[1])):
        less, than = (mean_and_interval(other - np.array(each)) for other in (base, ppo))
        rows.append(
            {
                "name": name,
                "hours": float(np.mean(each)),
                f"hours less than {BASE}": [less.mean, less.low, less.high],
                "hours less than ppo": [than.mean, than.low, than.high],
            }
        )
        print(
            f"{name:20} {np.mean(each):6.2f} h, less than {BASE}: {estimate_text(less, 2)}, "
            f"less than ppo: {estimate_text(than, 2)}"
        )
    told = {
        "jobs": given.jobs,
        "window": given.window,
        "nodes": given.nodes,
        "load": given.load,
        "steps": given.steps,
        "training seconds": seconds,
        "judged episodes": given.seeds,
        "rows": rows,
        "learning curve": curve,
    }
    if given.json:
        given.json.write_text(json.dumps(told, indent=2) + "\n")
    print(f"{given.steps:,} steps in {seconds:.0f} s")


if __name__ == "__main__":
    main()
