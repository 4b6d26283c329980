"""PPO beside policies and schedulers, on episodes that it was not trained on.

``--world speeds``: which channels go on, ``gangwise/FluctuatingSpeeds-v1``. PPO is trained on other
runs of the very instance that it is judged on; the policies begin every run knowing nothing.
``--world jobs``: which waiting job starts next, ``gangwise/Jobs-v1``, with the same choice of nodes
for all; trained on other places in the log and other hidden rates.

Needs ``pip install sb3-contrib`` (stable-baselines3). All are judged on the same seeds; differences
are paired. Run by hand: ``python benchmarks/ppo.py --world speeds``; ``--json FILE`` keeps numbers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding

import gangwise.gym  # noqa: F401 - registers the ids
from gangwise import create_policy, simulate
from gangwise.jobs import simulate_jobs
from gangwise.study.statistics import estimate_text, mean_and_interval

JUDGED = 10_000
"""First seed of the judging episodes; training draws from seeds of its own."""

Decide = Callable[[Any, Any], Any]


class Speeds:
    """Channels of unknown speed on eight servers; the return is the mean reward of a slot."""

    unit, sign, gamma = "reward per slot", 1.0, 0.0  # slots do not depend on each other
    rivals = ("esdp", "thompson-beta", "cucb", "hauf", "random-channels", "lcf")

    def made(self) -> Any:
        """The environment."""
        scenario = "esdp-default-v1:servers=8"
        return gymnasium.make("gangwise/FluctuatingSpeeds-v1", scenario=scenario, slots=500)

    def scaled(self, total: float) -> float:
        """What is reported of an episode's return."""
        return total / 500

    def rival(self, env: Any, seed: int, name: str) -> float:
        """A policy under the same arrivals and noise."""
        drawn = int(seeding.np_random(seed)[0].integers(2**62))  # as the environment's reset
        run = simulate(env.instance, create_policy(name), slots=500, seed=drawn)
        return run.mean_reward


class Waiting:
    """Two hundred jobs at thrice the load that four nodes bear; mean completion time in hours."""

    unit, sign, gamma = "hours", -1.0, 0.9995
    rivals = (
        "fcfs+easy+label",
        "fcfs+none+learned",
        "fcfs+easy+best-fit",
        "fcfs+easy+learned",
        "sjf+none+learned",
        "sjf+easy+learned",
    )

    def made(self) -> Any:
        """The environment."""
        return gymnasium.make("gangwise/Jobs-v1", jobs=200, window=16, nodes=4, load=3.0)

    def scaled(self, total: float) -> float:
        """What is reported of an episode's return."""
        return -total

    def rival(self, env: Any, seed: int, name: str) -> float:
        """A scheduler on the same jobs, nodes and hidden rates."""
        t = env.tables
        found = simulate_jobs(t.jobs, t.nodes, name, t.conditions, t.options)
        return float((found.end - t.jobs.submit).mean()) / 3600


def trained(world: Any, steps: int, envs: int) -> tuple[Decide, list[Any], float]:
    """What PPO does, how its return moved while it learned, and the seconds of training."""
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

    torch.set_num_threads(1)
    inner = VecMonitor(DummyVecEnv([lambda: world.made().unwrapped for _ in range(envs)]))
    vector = VecNormalize(inner, gamma=world.gamma or 0.01)
    vector.seed(0)
    discrete = isinstance(vector.action_space, gymnasium.spaces.Discrete)
    model = (MaskablePPO if discrete else PPO)(
        "MlpPolicy",
        vector,
        n_steps=512,
        batch_size=1024,
        n_epochs=5,
        learning_rate=lambda left: 5e-4 * left,
        gamma=world.gamma,
        gae_lambda=0.97,
        ent_coef=0.002,
        policy_kwargs={"net_arch": [128, 128]},
        seed=0,
        device="cpu",
    )
    curve: list[Any] = []

    class Returns(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            seen = [each["r"] for each in self.model.ep_info_buffer]
            if seen:
                curve.append((int(self.num_timesteps), world.scaled(float(np.mean(seen)))))
                if len(curve) % 5 == 0:
                    print(f"{curve[-1][0]:>9,} steps: {curve[-1][1]:.3f} {world.unit}", flush=True)

    began = time.perf_counter()
    model.learn(steps, callback=Returns())
    seconds = time.perf_counter() - began
    vector.training = False

    def decide(seen: Any, mask: Any) -> Any:
        known = vector.normalize_obs(seen)
        more = {"action_masks": mask} if discrete else {}
        return model.predict(known, deterministic=True, **more)[0]

    return decide, curve, seconds


def played(env: Any, seed: int, decide: Decide) -> float:
    """The return of an episode."""
    seen, info = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        seen, reward, ended, cut, info = env.step(decide(seen, info["action_mask"]))
        total, over = total + reward, ended or cut
    return total


def main() -> None:
    """Train, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", choices=("speeds", "jobs"), default="speeds")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    world: Any = Speeds() if given.world == "speeds" else Waiting()
    decide, curve, seconds = trained(world, given.steps, given.envs)
    env = world.made().unwrapped
    found: dict[str, list[float]] = {"ppo": []}
    for seed in range(JUDGED, JUDGED + given.seeds):
        found["ppo"].append(world.scaled(played(env, seed, decide)))
        for name in world.rivals:
            found.setdefault(name, []).append(world.rival(env, seed, name))
    ppo, rows = np.array(found["ppo"]), []
    best_first = sorted(found.items(), key=lambda row: -world.sign * np.mean(row[1]))
    for name, each in best_first:
        of, than = mean_and_interval(each), mean_and_interval(np.array(each) - ppo)
        rows.append({"name": name, world.unit: list(of), "more than ppo": list(than)})
        print(f"{name:20} {estimate_text(of, 3)}, more than ppo: {estimate_text(than, 3, True)}")
    told = {
        "world": given.world,
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
