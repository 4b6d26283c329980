"""The folder of a sweep made by hand, so that every number of its page can be computed on paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gangwise.study.runs import Rows, Store

HOSTILE = "<script>alert('x')</script>&\"--></style>"

SLOTS = 10
REWARDS = {  # (load, policy): mean per slot for seeds 0 and 1
    (1, "a"): (3.0, 5.0),
    (1, "b"): (2.0, 4.0),
    (2, "a"): (1.0, 2.0),
    (2, "b"): (4.0, 5.0),
}
BEST = {1: (6.0, 6.0), 2: (5.0, 5.0)}


def played(mean: float, bound: float | None = None) -> Rows:
    """A run that earns the same in every slot."""
    rows = Rows()
    rows.add("reward.mean", mean)
    rows.add("reward.total", mean * SLOTS)
    at = np.arange(1, SLOTS + 1)
    rows.add("reward.cumulative", mean * at, at)
    if bound is None:
        rows.add("cost.mean", 2 * mean)
        rows.add("us_per_slot", 7.0)
    else:
        rows.add("gap", 0.0)
        rows.add("bound.theorem-1", bound)
    rows.add("seconds", 0.5)
    return rows


def made_sweep(folder: Path, name: str = "made", rename: dict[str, str] | None = None) -> Path:
    """A sweep's folder made by hand."""
    rename, runs = rename or {}, []
    store = Store(folder)
    means = {**REWARDS, **{(load, "best_fixed"): each for load, each in BEST.items()}}
    for (load, policy), each in means.items():
        best, label = policy == "best_fixed", rename.get(policy, policy)
        for seed, mean in enumerate(each):
            key = f"{name}-{load}-{policy}-{seed}"
            settings = {"load": load, "slots": 99, "files": HOSTILE}
            about = {
                "scenario": "made-v1",
                "settings": settings,
                "seed": seed,
                "slots": SLOTS,
                "version": "0.0.7",
                **(
                    {"comparator": label}
                    if best
                    else {"policy": "made.Policy", "configuration": {"step": 0.25}}
                ),
            }
            store.write(key, about, played(mean, 40.0 if best else None))
            runs.append(
                {
                    "key": key,
                    "cell": {"load": load},
                    "label": label,
                    "comparator": best,
                    "seed": seed,
                    "slots": SLOTS,
                }
            )
    experiment = {
        "name": name,
        "scenario": "made-v1",
        "grid": {"load": [1, 2]},
        "policies": ["a", "b"],
        "seeds": 2,
        "comparators": ["best_fixed"],
    }
    store.write_plan(name, {"experiment": experiment, "runs": runs})
    return folder
