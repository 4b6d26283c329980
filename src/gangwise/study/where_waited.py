"""Where the waiting of a replay went, by scheduler and by group of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.jobs import waiting, waiting_kernels
from gangwise.jobs.metrics import Outcome, size_groups
from gangwise.sites.retelling import periods

GROUPS = 12
"""At most so many groups of a kind are listed: those that waited most."""

HAPPENED = "as it happened"


class GroupWaited(NamedTuple):
    """Seconds that the jobs of a group waited, by cause [causes]."""

    name: str
    jobs: int
    seconds: Floats


def waited_by_group(
    causes: waiting.WaitingCauses, outcome: Outcome, k: int
) -> dict[str, list[GroupWaited]]:
    """By user, account, partition, size and week or day, as far as there are several.

    Sizes are in devices of type ``k``. Groups are those that waited most, that most first; sizes
    and weeks are in their order.
    """
    jobs = causes.jobs
    unit, period = periods(jobs.submit)
    sizes, names = size_groups(np.where(outcome.demand[:, k] > 0, outcome.demand[:, k], 0.0))
    kinds: dict[str, tuple[Ints, Any]] = {
        "user": (jobs.user, jobs.users),
        "account": (jobs.charged, jobs.accounts),
        "partition": (jobs.pool, jobs.pools),
        "size": (sizes, names),
        unit: (period, [str(i + 1) for i in range(int(period.max()) + 1)]),
    }
    if len({np.unique(codes).size for codes in (jobs.user, jobs.charged, causes.owner)}) == 1:
        del kinds["account"]  # every user has its own
    found = {}
    for kind, (codes, labels) in kinds.items():
        group = np.where(outcome.queued, np.broadcast_to(codes, outcome.start.shape), -1)
        seconds = causes.by(group, len(labels))
        count = np.bincount(group[group >= 0], minlength=len(labels))
        most = np.argsort(-seconds.sum(axis=1), kind="stable")[:GROUPS]
        chosen = np.sort(most) if kind in ("size", unit) else most
        rows = [
            GroupWaited(labels[g] or "(not named)", int(count[g]), seconds[g])
            for g in chosen.tolist()
            if count[g] and seconds[g].sum() > 0
        ]
        if len(rows) > 1:
            found[kind] = rows
    return found


def as_dict(causes: waiting.WaitingCauses, outcome: Outcome, k: int) -> dict[str, Any]:
    """Seconds by cause, in all and by group; by cap; by whose jobs held the devices."""

    def named(seconds: Floats) -> dict[str, float]:
        return {cause: float(s) for cause, s in zip(waiting_kernels.CAUSES, seconds) if s}

    def largest(by_name: Mapping[str, float]) -> dict[str, float]:
        return dict(sorted(by_name.items(), key=lambda item: -item[1])[:GROUPS])

    groups = waited_by_group(causes, outcome, k)
    return {
        "seconds": causes.total,
        "caps": largest(causes.caps),
        "held_by": largest(causes.charged(causes.holders)),
        "kept_for": largest(causes.charged(causes.kept_for)),
        "groups": {
            kind: [{"name": r.name, "jobs": r.jobs, "seconds": named(r.seconds)} for r in rows]
            for kind, rows in groups.items()
        },
    }
