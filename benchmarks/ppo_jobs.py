"""PPO where the choice is whom to start next, on logs that it was not trained on.

Trained on ``gangwise/JobsVector-v1`` with episodes of one log, judged on episodes of others, with
the same choice of nodes for all. The network scores every waiting job alike: from its features,
those of the cluster, and the means of all that wait; letting time go on is scored as a job of which
nothing is known. Everything is NumPy, so that nothing else has to be installed.

Run by hand: ``python -m benchmarks.ppo_jobs --steps 2000000``; ``--json FILE`` keeps numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import gangwise.gym  # noqa: F401 - registers the ids
from gangwise.gym_kernels import FEATURES, TOTALS
from gangwise.jobs import simulate_jobs
from gangwise.study.statistics import estimate_text, mean_and_interval

WINDOW, ENVS, SLOTS, EPOCHS, PARTS = 16, 256, 64, 3, 8
GAMMA, LAMBDA, CLIP, ENTROPY, RATE = 0.999, 0.97, 0.2, 0.005, 1e-3
F, T, H = len(FEATURES), len(TOTALS), 32
WORLD = {"jobs": 200, "window": WINDOW, "nodes": 4, "load": 3.0}
TRAINED, HELD_OUT = "twin:alibaba-gpu-v2023", ("twin:alibaba-gpu-v2020", "twin:google-2011")
RIVALS = {
    "fcfs+none+best-fit": "first come, first served",
    "fcfs+easy+best-fit": "the same with backfilling",
    "sjf+none+best-fit": "shortest limit first",
    "sjf+easy+best-fit": "the same with backfilling",
    "sjf+easy+best-fit:ends=true": "oracle: true run times",
}

Grads = dict[str, np.ndarray]


class Net:
    """Two layers of tanh for the score of a row, one for the value, and Adam."""

    def __init__(self, rng: np.random.Generator):
        sizes = {"a": (2 * F + T, H), "b": (H, H), "c": (H, 1), "v": (F + T, H), "w": (H, 1)}
        self.of = {k: rng.normal(0, n[0] ** -0.5, n).astype(np.float32) for k, n in sizes.items()}
        self.of["c"] *= 0.01
        self.of |= {f"{k}0": np.zeros(n[1], np.float32) for k, n in sizes.items()}
        self.mean = {k: np.zeros_like(v) for k, v in self.of.items()}
        self.square = {k: np.zeros_like(v) for k, v in self.of.items()}
        self.steps = 0

    def forward(self, seen: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Log probabilities [B, window + 1], values [B], and what the gradient needs."""
        p, n = self.of, len(seen)
        rows = seen[:, : F * WINDOW].reshape(n, WINDOW, F)
        mean = rows.sum(1) / np.maximum(rows[:, :, :1].sum(1), 1)
        about = np.concatenate([mean, seen[:, F * WINDOW :]], 1)
        rows = np.concatenate([rows, np.zeros((n, 1, F), np.float32)], 1)
        x = np.concatenate([rows, np.broadcast_to(about[:, None], (n, WINDOW + 1, F + T))], 2)
        one = np.tanh(x @ p["a"] + p["a0"])
        two = np.tanh(one @ p["b"] + p["b0"])
        score = np.where(mask, (two @ p["c"] + p["c0"])[..., 0], -1e9)
        score -= score.max(1, keepdims=True)
        log = score - np.log(np.exp(score).sum(1, keepdims=True))
        hidden = np.tanh(about @ p["v"] + p["v0"])
        return log, (hidden @ p["w"] + p["w0"])[:, 0], (x, one, two, about, hidden)

    def backward(self, kept: Any, of_score: np.ndarray, of_value: np.ndarray) -> Grads:
        """Gradients of the weights from those of scores [B, window + 1] and values [B]."""
        p, (x, one, two, about, hidden) = self.of, kept
        g: Grads = {}

        def flat(array: np.ndarray) -> np.ndarray:
            return array.reshape(-1, array.shape[-1])

        def layer(name: str, below: np.ndarray, above: np.ndarray) -> np.ndarray:
            g[name], g[f"{name}0"] = flat(below).T @ flat(above), flat(above).sum(0)
            return above @ p[name].T

        two_ = layer("c", two, of_score[..., None]) * (1 - two**2)
        one_ = layer("b", one, two_) * (1 - one**2)
        layer("a", x, one_)
        hidden_ = layer("w", hidden, of_value[:, None]) * (1 - hidden**2)
        layer("v", about, hidden_)
        return g

    def step(self, grads: Grads, rate: float) -> None:
        """Adam, with gradients cut to a norm of 1/2."""
        self.steps += 1
        norm = float(np.sqrt(sum((g**2).sum() for g in grads.values())))
        for k, g in grads.items():
            g = g * min(1.0, 0.5 / (norm + 1e-9))
            self.mean[k] = 0.9 * self.mean[k] + 0.1 * g
            self.square[k] = 0.999 * self.square[k] + 0.001 * g**2
            size = rate * np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
            self.of[k] -= size * self.mean[k] / (np.sqrt(self.square[k]) + 1e-8)


def trained(steps: int, seed: int = 0) -> tuple[Net, list[tuple[int, float]]]:
    """The network, and the mean completion of finished episodes as it learned."""
    rng = np.random.default_rng(seed)
    env: Any = gymnasium.make_vec(
        "gangwise/JobsVector-v1", ENVS, episodes=512, source=TRAINED, **WORLD
    )
    seen, info = env.reset(seed=seed)
    mask, net, scale = info["action_mask"], Net(rng), 1.0
    sums, ended, curve = np.zeros(ENVS), [0.0], []
    rounds = max(1, steps // (ENVS * SLOTS))
    for r in range(rounds):
        kept: dict[str, list[np.ndarray]] = {k: [] for k in ("seen", "mask", "act", "log", "v")}
        rewards, overs = np.zeros((SLOTS, ENVS)), np.zeros((SLOTS, ENVS))
        for t in range(SLOTS):
            log, value, _ = net.forward(seen, mask)
            act = (log + rng.gumbel(size=log.shape)).argmax(1)
            row = (seen, mask, act, log[np.arange(ENVS), act], value)
            for k, each in zip(kept, row):
                kept[k].append(each)
            seen, rewards[t], overs[t], _, info = env.step(act)
            mask, sums = info["action_mask"], sums - rewards[t]
            ended = (ended + sums[overs[t] > 0].tolist())[-300:]
            sums[overs[t] > 0] = 0.0
        scale = 0.9 * scale + 0.1 * float(rewards.std() + 1e-9) if r else float(rewards.std())
        last = net.forward(seen, mask)[1]
        gains, gain = np.zeros((SLOTS, ENVS)), np.zeros(ENVS)
        values = np.array([*kept["v"], last])
        for t in reversed(range(SLOTS)):  # generalised advantages
            on = 1 - overs[t]
            error = rewards[t] / scale + GAMMA * values[t + 1] * on - values[t]
            gain = error + GAMMA * LAMBDA * on * gain
            gains[t] = gain
        flat = {k: np.concatenate(v) for k, v in kept.items()}
        goal, gains = (gains + values[:-1]).ravel(), gains.ravel()
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        for _ in range(EPOCHS):
            for part in np.array_split(rng.permutation(gains.size), PARTS):
                learn(net, flat, part, gains[part], goal[part], RATE * (1 - r / rounds))
        curve.append(((r + 1) * ENVS * SLOTS, float(np.mean(ended))))
        if r % 10 == 9:
            print(f"{curve[-1][0]:>9,} steps: {curve[-1][1]:.3f} hours", flush=True)
    return net, curve


def learn(net: Net, flat: Any, part: Any, gain: Any, goal: Any, rate: float) -> None:
    """One step of PPO's clipped objective, with a bonus for entropy."""
    log, value, kept = net.forward(flat["seen"][part], flat["mask"][part])
    rows, act, n = np.arange(part.size), flat["act"][part], part.size
    ratio = np.exp(log[rows, act] - flat["log"][part])
    inside = np.where(gain > 0, ratio < 1 + CLIP, ratio > 1 - CLIP)
    share = np.exp(log)
    push = np.where(inside, ratio * gain, 0.0)[:, None]
    of_score = -push * ((np.arange(log.shape[1]) == act[:, None]) - share)
    entropy = -(share * np.maximum(log, -50)).sum(1, keepdims=True)
    of_score += ENTROPY * share * (np.maximum(log, -50) + entropy)
    of_value = 0.5 * np.clip(value - goal, -10, 10)
    grads = net.backward(kept, (of_score / n).astype(np.float32), (of_value / n).astype(np.float32))
    net.step(grads, rate)


def judged(source: str, net: Net, episodes: int) -> dict[str, np.ndarray]:
    """Mean completion of each episode in hours: PPO's, that of random choices, of schedulers."""
    env: Any = gymnasium.make_vec(
        "gangwise/JobsVector-v1", episodes, episodes=episodes, draw=1, source=source, **WORLD
    )
    found, rng = {}, np.random.default_rng(1)
    for name in ("PPO", "random"):
        seen, info = env.reset(seed=0, options={"episodes": np.arange(episodes)})
        hours, over = np.zeros(episodes), np.zeros(episodes, bool)
        while not over.all():
            mask = info["action_mask"]
            score = net.forward(seen, mask)[0] if name == "PPO" else rng.random(mask.shape) * mask
            seen, reward, ends, _, info = env.step(score.argmax(1))
            hours -= np.where(over, 0.0, reward)
            over |= ends
        found[name] = hours
    for name in RIVALS:
        played = [simulate_jobs(t.jobs, t.nodes, name, t.conditions, t.options) for t in env.tables]
        # Jobs that no node can run count as 0, as in the rewards.
        found[name] = (
            np.array(
                [np.mean(np.where(np.isnan(p.end), 0.0, p.end - p.jobs.submit)) for p in played]
            )
            / 3600
        )
    return found


def main() -> None:
    """Train, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000_000)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began, spent = time.perf_counter(), time.process_time()
    net, curve = trained(given.steps)
    told: dict[str, Any] = {"steps": given.steps, "curve": curve, "load": os.getloadavg()[0]}
    told |= {"seconds": time.perf_counter() - began, "cpu": time.process_time() - spent}
    print(f"{given.steps:,} steps in {told['seconds']:.0f} s, {told['cpu']:.0f} CPU seconds")
    for source in (TRAINED, *HELD_OUT):
        found = judged(source, net, given.episodes)
        print(f"\n{source}{' (trained on)' if source == TRAINED else ''}: mean completion, hours")
        for name, hours in sorted(found.items(), key=lambda row: float(row[1].mean())):
            more = mean_and_interval(hours - found["PPO"])
            of = mean_and_interval(hours)
            beside = "" if name == "PPO" else f"{estimate_text(more, 3, True)} beside PPO"
            print(f"  {name:28} {estimate_text(of, 3):>16}  {beside:26} {RIVALS.get(name, '')}")
        told[source] = {name: hours.tolist() for name, hours in found.items()}
    if given.json:
        given.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
