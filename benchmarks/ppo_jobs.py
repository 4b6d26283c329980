"""PPO that decides which waiting job starts next, in one file, on ``gangwise/JobsVector-v1``.

The form is CleanRL's: everything that learns is in this file. It trains on drawn jobs (gangs of 1
to 64 of 64 nodes, a load of 0.95), never on a public log. A network scores every waiting job alike,
so the scores are an order of the queue: ``--save FILE.npz`` writes the weights that the order
``ppo`` reads (``gangwise replay LOG --policies ppo+easy``), and NumPy is enough to use them.

Needs ``pip install '.[agents]'``. Run: ``python -m benchmarks.ppo_jobs --steps 2000000``. With
``--steps 0 --log LOG`` nothing is trained: the weights that come with gangwise play the log, which
they have not seen, 30 episodes of 400 jobs at a load of 0.9.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import gangwise.gym  # noqa: F401 - registers the ids
from gangwise.gym_kernels import FEATURES, TOTALS
from gangwise.jobs import simulate_jobs
from gangwise.study.statistics import estimate_text, mean_and_interval

WINDOW, ENVS, SLOTS, EPOCHS, PARTS = 16, 256, 64, 3, 8
GAMMA, LAMBDA, CLIP, ENTROPY, RATE, HIDDEN = 0.999, 0.97, 0.2, 0.003, 2e-3, 16
NODES, LOAD = 64, 0.95
F, T = len(FEATURES), len(TOTALS)
RIVALS = "fcfs+none", "fcfs+easy", "sjf+none", "sjf+easy", "ppo+easy"


def drawn_log(path: Path, jobs: int, seed: int) -> str:
    """An SWF of drawn jobs: sizes are mostly powers of two, run times log-normal."""
    rng = np.random.default_rng(seed)
    tasks = np.round(2 ** np.clip(rng.normal(2.0, 1.8, jobs), 0, np.log2(NODES))).astype(int)
    run = np.clip(rng.lognormal(np.log(1800), 1.8, jobs), 10, 200_000).astype(int) + 1
    asked = (run * rng.uniform(1, 5, jobs)).astype(int)
    submit = np.cumsum(rng.exponential(float((tasks * run).mean()) / NODES, jobs)).astype(int)
    lines = [f"; MaxNodes: {NODES}", f"; MaxProcs: {NODES}"]
    rows = zip(submit, run, tasks, asked)
    for j, (s, r, n, a) in enumerate(rows, 1):
        user = 1 + j % 20
        lines.append(f"{j} {s} -1 {r} {n} -1 -1 {n} {a} -1 1 {user} 1 -1 -1 -1 -1 -1")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def environments(log: str, count: int, episodes: int, draw: int = 0, **how: Any) -> Any:
    """Vectorised episodes of 200 jobs of a log."""
    world = {"source": log, "load": LOAD, "jobs": 200, "window": WINDOW, "longest": 0.0, **how}
    return gymnasium.make_vec(
        "gangwise/JobsVector-v1", count, episodes=episodes, draw=draw, nodes=0, world="", **world
    )


class Agent(nn.Module):
    """Scores of waiting jobs and of letting time go on, and the value of a state."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(
            *(nn.Linear(6, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()),
            nn.Linear(HIDDEN, 1),
        )
        self.wait = nn.Sequential(nn.Linear(T, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.critic = nn.Sequential(nn.Linear(T + F, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, seen: Any, mask: Any) -> tuple[Any, Any]:
        rows, totals = seen[:, : F * WINDOW].reshape(-1, WINDOW, F), seen[:, F * WINDOW :]
        cluster = totals[:, None, :2].expand(-1, WINDOW, -1)  # what is free, how many wait
        scores = self.score(torch.cat([rows[:, :, 1:5], cluster], 2))[:, :, 0]
        logits = torch.cat([scores, self.wait(totals)], 1).masked_fill(~mask, -1e9)
        mean = rows.sum(1) / rows[:, :, :1].sum(1).clamp(min=1)
        value = self.critic(torch.cat([totals, mean], 1))[:, 0]
        return torch.distributions.Categorical(logits=logits), value


def trained(log: str, steps: int, seed: int = 0) -> Agent:
    """PPO with generalised advantages."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    envs, agent, scale = environments(log, ENVS, 512), Agent(), 1.0
    optimiser = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
    observation, info = envs.reset(seed=seed)
    seen, mask = torch.from_numpy(observation), torch.from_numpy(info["action_mask"])
    rounds, sums, ended = max(1, steps // (ENVS * SLOTS)), np.zeros(ENVS), [0.0]
    for r in range(rounds):
        optimiser.param_groups[0]["lr"] = RATE * (1 - r / rounds)
        batch: dict[str, list[Any]] = {k: [] for k in ("seen", "mask", "act", "log", "value")}
        rewards, overs = torch.zeros(SLOTS, ENVS), torch.zeros(SLOTS, ENVS)
        for t in range(SLOTS):
            with torch.no_grad():
                policy, value = agent(seen, mask)
                act = policy.sample()
            for name, part in zip(batch, (seen, mask, act, policy.log_prob(act), value)):
                batch[name].append(part)
            observation, reward, over, _, info = envs.step(act.numpy())
            seen, mask = torch.from_numpy(observation), torch.from_numpy(info["action_mask"])
            rewards[t], overs[t] = torch.from_numpy(reward), torch.from_numpy(over)
            sums -= reward
            ended = (ended + sums[over].tolist())[-300:]
            sums[over] = 0.0
        scale = 0.9 * scale + 0.1 * float(rewards.std()) if r else float(rewards.std())
        with torch.no_grad():
            values = torch.stack([*batch["value"], agent(seen, mask)[1]])
        gains, gain = torch.zeros(SLOTS, ENVS), torch.zeros(ENVS)
        for t in reversed(range(SLOTS)):
            on = 1 - overs[t]
            error = rewards[t] / scale + GAMMA * values[t + 1] * on - values[t]
            gains[t] = gain = error + GAMMA * LAMBDA * on * gain
        flat = {name: torch.cat(parts) for name, parts in batch.items()}
        flat |= {"gain": gains.flatten(), "goal": (gains + values[:-1]).flatten()}
        for _ in range(EPOCHS):
            for rows in torch.randperm(SLOTS * ENVS).chunk(PARTS):
                learn(agent, optimiser, {name: part[rows] for name, part in flat.items()})
        if r % 10 == 9:
            print(f"{(r + 1) * ENVS * SLOTS:>9,} steps: {np.mean(ended):.3f} hours", flush=True)
    envs.close()
    return agent


def learn(agent: Agent, optimiser: Any, part: dict[str, Any]) -> None:
    """One step of PPO's clipped objective, with a bonus for entropy."""
    policy, value = agent(part["seen"], part["mask"])
    ratio = (policy.log_prob(part["act"]) - part["log"]).exp()
    gain = (part["gain"] - part["gain"].mean()) / (part["gain"].std() + 1e-8)
    push = torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
    loss = 0.5 * nn.functional.huber_loss(value, part["goal"], delta=10.0)
    optimiser.zero_grad()
    (loss - push - ENTROPY * policy.entropy().mean()).backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimiser.step()


def judged(agent: Agent, log: str, episodes: int) -> dict[str, np.ndarray]:
    """Mean completion of each episode of a log, in hours: the agent's, that of schedulers."""
    envs = environments(log, episodes, episodes, draw=1)
    observation, info = envs.reset(options={"episodes": np.arange(episodes)})
    hours, over = np.zeros(episodes), np.zeros(episodes, bool)
    while not over.all():
        with torch.no_grad():
            policy, _ = agent(*map(torch.from_numpy, (observation, info["action_mask"])))
        observation, reward, ends, _, info = envs.step(policy.probs.argmax(1).numpy())
        hours -= np.where(over, 0.0, reward)
        over |= ends
    return {"the agent itself": hours} | of_rivals(envs.tables)


def of_rivals(episodes: Any) -> dict[str, np.ndarray]:
    """Mean completion of each episode under each scheduler, in hours."""
    results = {}
    for name in RIVALS:
        played = [simulate_jobs(t.jobs, t.nodes, name, t.conditions, t.options) for t in episodes]
        results[name] = np.array([np.nanmean(p.end - p.jobs.submit) for p in played]) / 3600
    return results


def main() -> None:
    """Train, save, judge on other drawn jobs, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000_000)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--log", action="append", default=[], help="judge on this log, too")
    chosen = parser.parse_args()
    for log in chosen.log if chosen.steps == 0 else ():
        of_log = environments(log, 1, 30, 7, jobs=400, load=0.9).unwrapped.tables
        show(log, of_rivals(of_log), "fcfs+easy")
    if chosen.steps == 0:
        return
    folder, began, spent = Path(tempfile.mkdtemp()), time.perf_counter(), time.process_time()
    agent = trained(drawn_log(folder / "train.swf", 20_000, 0), chosen.steps)
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    how = f"{chosen.steps:,} steps in {seconds:.0f} s, {cpu:.0f} CPU seconds"
    print(how)
    if chosen.save:
        weights = {k.removeprefix("score."): v.numpy() for k, v in agent.state_dict().items()}
        kept = {k: v for k, v in weights.items() if "." in k and k[0].isdigit()}
        np.savez(chosen.save, made=f"benchmarks/ppo_jobs.py, seed 0, {how}", **kept)
    for log in (drawn_log(folder / "other-drawn-jobs.swf", 20_000, 1), *chosen.log):
        show(log, judged(agent, log, chosen.episodes), "ppo+easy")


def show(log: str, results: dict[str, np.ndarray], beside: str) -> None:
    """Mean completion by scheduler, and by how much it differs, in hours and in per cent."""
    print(f"\n{Path(log).name}: mean completion, hours")
    for name, hours in sorted(results.items(), key=lambda row: float(row[1].mean())):
        more, share = hours - results[beside], 100 * (hours / results[beside] - 1)
        difference = estimate_text(mean_and_interval(more), 3, True)
        difference += f", {estimate_text(mean_and_interval(share), 2, True)} %"
        print(f"  {name:20} {estimate_text(mean_and_interval(hours), 3):>16}", end="")
        print("" if name == beside else f"  {difference} beside {beside}")


if __name__ == "__main__":
    main()
