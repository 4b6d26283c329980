"""Compare policies on one scenario: the same instances, arrivals and noise for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from gangwise.core.contracts import Comparator, Instance, Policy, Scenario
from gangwise.core.errors import ScenarioError
from gangwise.core.registry import create
from gangwise.core.simulation import Run, Simulation
from gangwise.experiments.comparison import Comparison
from gangwise.experiments.progress import Progress, silent
from gangwise.experiments.store import RunStore


def compare(
    scenario: Scenario | str,
    policies: Sequence[str | Policy[Any, Any, Any]] | Mapping[str, Policy[Any, Any, Any]],
    slots: int | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    comparators: Sequence[str] | None = None,
    optimum_slots: int | None = 200,
    checkpoints: Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run policies on the instances of a scenario.

    Parameters
    ----------
    scenario : Scenario or str
        A scenario or the name of one.
    policies : sequence of str or Policy, or mapping of names to policies
        Names may carry arguments, ``"ogasched-react:steps=5"``.
    slots : int, optional
        Slots per run; the scenario's own number when not given.
    seeds : sequence of int
        One instance, one sequence of arrivals and one run of every policy per seed.
    comparators : sequence of str, optional
        All of the family's when not given.
    optimum_slots : int, optional
        Evaluate comparators that solve a programme per slot on at most so many slots.
    checkpoints : path, optional
        A folder for finished runs and for the one in hand. A comparison that was stopped goes on
        from there when it is started again with the same arguments.
    progress : callable, optional
        ``progress(what, done, of)``.

    Raises
    ------
    ScenarioError
        When a policy belongs to another family, or nothing is left to compare.
    Interrupted
        On Ctrl-C, with the checkpoint written.

    Examples
    --------
    >>> comparison = compare("ogasched-default-v1:servers=16", ["drf", "fairness"], 20, [0, 1])
    >>> len(comparison.runs), comparison.table()[0].policy
    (4, 'fairness')
    """
    if isinstance(scenario, str):
        scenario = create("scenario", scenario)
        assert not isinstance(scenario, str)
    named = _named(policies)
    slots = scenario.slots if slots is None else slots
    seeds = tuple(dict.fromkeys(int(seed) for seed in seeds))
    if optimum_slots is not None and optimum_slots < 1:
        raise ScenarioError(f"the optimum needs at least one slot; got {optimum_slots}")
    if slots < 1 or not seeds:
        raise ScenarioError(f"nothing to run: {slots} slots and {len(seeds)} seeds")
    for name, policy in named.items():
        family = getattr(policy, "family", scenario.family)
        if family != scenario.family:
            raise ScenarioError(
                f"policy {name!r} is for the family {family}; scenario {scenario.name!r} is of "
                f"the family {scenario.family}"
            )
    tell = progress or silent
    store = RunStore(checkpoints, scenario, slots) if checkpoints is not None else None
    runs: dict[tuple[str, int], Run] = {}
    judged: dict[tuple[str, int], Comparator] = {}
    numbers = count(1)
    for seed in seeds:
        instance = scenario.instance(seed)
        names = instance.comparators if comparators is None else comparators
        of = len(seeds) * (len(named) + len(names))
        for name, policy in named.items():
            what = f"{next(numbers)} of {of}: {name}, seed {seed}"
            runs[name, seed] = _run(
                instance, policy, slots, seed, name, store, partial(_tell_slots, tell, what, slots)
            )
        for comparator in names:
            what = f"{next(numbers)} of {of}: {comparator}, seed {seed}"
            tell(what, 0, 1)
            any_run = runs[next(iter(named)), seed]
            judged[comparator, seed] = any_run.comparator(comparator, optimum_slots)
            tell(what, 1, 1)
    return Comparison(scenario, slots, seeds, tuple(named), runs, judged)


def _named(
    policies: Sequence[str | Policy[Any, Any, Any]] | Mapping[str, Policy[Any, Any, Any]],
) -> dict[str, Policy[Any, Any, Any]]:
    if isinstance(policies, Mapping):
        return dict(policies)
    named: dict[str, Policy[Any, Any, Any]] = {}
    for entry in policies:
        if isinstance(entry, str):
            name, policy = entry, create("policy", entry)
        else:
            name, policy = type(entry).__name__, entry
        if name in named:
            raise ScenarioError(f"policy {name!r} is named twice; give a mapping of names instead")
        named[name] = policy
    if not named:
        raise ScenarioError("no policies to compare")
    return named


def _tell_slots(tell: Progress, what: str, slots: int, done: int) -> None:
    tell(what, done, slots)


def _run(
    instance: Instance,
    policy: Policy[Any, Any, Any],
    slots: int,
    seed: int,
    name: str,
    store: RunStore | None,
    tell: Callable[[int], None],
) -> Run:
    if store is None:
        return Simulation(instance, policy, slots, seed, name).run(progress=tell)
    key = store.key(name, policy, seed)
    finished = store.finished(key, instance)
    if finished is not None:
        tell(slots)
        return finished
    checkpoint = store.checkpoint(key)
    if checkpoint.exists():
        simulation = Simulation.load(checkpoint)
    else:
        simulation = Simulation(instance, policy, slots, seed, name)
    run = simulation.run(checkpoint, progress=tell)
    store.finish(key, run)
    return run
