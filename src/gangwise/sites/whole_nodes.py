"""Jobs that have their nodes alone, and jobs on nodes that they name.

Where all nodes that such a job may use are alike, it asks each for all its cores: every job asks
for some. Where they are not, nodes get a device more: a job that shares its nodes takes a small
part of it, one that does not takes all.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Ints, distinct_pairs
from gangwise.jobs.books import Books
from gangwise.jobs.model import ALONE, Jobs, Nodes, Shape, terms_of
from gangwise.jobs.tenancy import allowed_on, having

MEMORY = "memory"
"""In the term ``whole``: a job that has all memory of its nodes, so that no other fits there."""
CONTIGUOUS, SPREAD = ("contiguous=", "yes"), ("spread=", "yes")
"""Labels, which all nodes have, of jobs that under ``slurm`` take nodes side by side, or one by one
in order."""
FREE = "free="
"""Label of nodes of which a job could have what must be free on each, see :func:`free_of`."""
WHOLE = 1_000_000  # thousandths of it on each node: more than jobs that could ever share one


def split_jobs(jobs: Jobs, code: Ints, change: Callable[[Shape, int], Shape]) -> Jobs:
    """Jobs whose shapes also differ by a code [J], each changed by its own."""
    kinds, place = distinct_pairs(jobs.shape, code)
    shapes = tuple(change(jobs.shapes[s], c) for s, c in kinds.T.tolist())
    return replace(jobs, shape=place, shapes=shapes)


def on_asked_nodes(jobs: Jobs, nodes: Nodes) -> tuple[Jobs, Nodes]:
    """What jobs ask of the nodes they run on becomes a label of those that are so.

    That are features, nodes by name and all but some. Nodes that are asked for in brackets, all of
    one feature or so many of each, are those of any; the scheduler ``slurm`` chooses among them as
    asked, and as many nodes as a job asks for.
    """
    terms = [terms_of(text) for text in jobs.terms]
    # A site that names no features cannot refuse a node for lack of them.
    features = any("features" in has for has in nodes.labels)

    def labels_of(term: dict[str, str]) -> list[tuple[str, str]]:
        mine = [(f"{kind}={term[kind]}", "yes") for kind in ("on", "not") if kind in term]
        mine += [label for label in (CONTIGUOUS, SPREAD) if label[0][:-1] in term]
        mine += [(f"{FREE}{term['free']}", "yes")] if "free" in term else []
        own = term.get("features", "") if features else ""
        return [*mine, *[(own, own)] * bool(own)]

    # Of each text of terms, those of groups as well: labels, and their values.
    wanted_labels = [labels_of(term) for term in terms]
    parts = (part.terms for shape in jobs.shapes for _, part in shape.groups)
    of_part = {text: labels_of(terms_of(text)) for text in parts if text}
    bounds = [_bounds(term.get("nodes", "0-0")) for term in terms]
    jobs = _with_threads(jobs, nodes, terms)
    if not any((*wanted_labels, *of_part.values())) and not any(map(any, bounds)):
        return jobs, nodes
    every = dict(label for some in (*wanted_labels, *of_part.values()) for label in some)

    def holds(label: str, n: int, has: str) -> bool:
        kind, equals, names = label.partition("=")
        name = nodes.names[n]
        if equals and kind == "free":
            return bool((nodes.capacity[n] >= free_of(label, nodes.devices)).all())
        # Names between bars: the node is one of them, or none of them.
        if equals and kind in ("on", "not"):
            return (name in names.split("|")) == (kind == "on")
        if label in (CONTIGUOUS[0], SPREAD[0]):
            return True
        return having(label, has)

    labels = tuple(
        {**has, **{k: v for k, v in every.items() if holds(k, n, has.get("features", ""))}}
        for n, has in enumerate(nodes.labels)
    )

    def changed(shape: Shape, t: int) -> Shape:
        def labelled(part: Shape) -> Shape:
            own = of_part.get(part.terms, ())
            return part._replace(constraint=(*part.constraint, *wanted_labels[t], *own))

        return shape.each(labelled)._replace(nodes=bounds[t])

    nodes = replace(nodes, labels=labels)
    return _without_what_never_holds(split_jobs(jobs, jobs.term, changed), nodes), nodes


def free_of(label: str, devices: Sequence[str]) -> Ints:
    """Thousandths of each device that must be free on a node for a job to have any of it.

    >>> free_of("free=cpu:4|mem:7.5", ("cpu", "gpu", "mem")).tolist()
    [4000, 0, 7500]
    """
    amounts = dict(part.split(":") for part in label.removeprefix(FREE).split("|"))
    return np.array([round(1000 * float(amounts.get(kind, 0))) for kind in devices])


def _with_threads(jobs: Jobs, nodes: Nodes, terms: Sequence[dict[str, str]]) -> Jobs:
    """Jobs with all threads of their cores, where the log does not say that they were given them.

    Nodes give out single threads, cores, or cores of which tasks share none (CR_CPU, CR_Core,
    CR_ONE_TASK_PER_CORE); of a job that never ran the log has what it asked for.
    """
    # `2 of a core`: threads of a core, and what is given out.
    several = max((has.get("threads", "") for has in nodes.labels), default="")
    if not several or "cpu" not in jobs.devices:
        return jobs
    threads, unit = int(several.split()[0]), several.split()[-1]
    never = np.isnan(jobs.recorded_start)
    of_cores = np.array(["cores" in term for term in terms])[jobs.term]
    of_task = np.array([int(term.get("task", 1)) for term in terms])[jobs.term]
    # No two processors are threads of one core: each takes all threads of its own.
    apart = of_cores & (never | (unit == "cpu"))
    code = np.where(apart, 1, np.where(never & (unit == "task"), of_task, 0))

    def changed(shape: Shape, c: int) -> Shape:
        each = -(-c // threads) * threads  # threads for c processors on cores of their own
        amounts = zip(jobs.devices, shape.demand)
        return shape._replace(demand=tuple(d * each // c if k == "cpu" else d for k, d in amounts))

    return split_jobs(jobs, code, lambda s, c: s.each(lambda part: changed(part, c)) if c else s)


def _without_what_never_holds(jobs: Jobs, nodes: Nodes) -> Jobs:
    """Jobs that their number of nodes could never hold take any: equal parts may need more.

    So do jobs of which the nodes that they name hold a part alone: they have other nodes as well.
    """
    kinds, place = distinct_pairs(jobs.shape, jobs.tasks)
    empty, shapes = Books.opened(nodes), jobs.shapes_on(nodes.devices)
    never = np.zeros(kinds.shape[1], dtype=np.int64)
    for k, (s, tasks) in enumerate(kinds.T.tolist()):
        fewest, most = shapes[s].nodes
        named = any(label.startswith("on=") for label, _ in shapes[s].constraint)
        if (fewest or most or named) and not shapes[s].groups:
            # On the empty cluster, the roomiest nodes first: no better case exists.
            fits = np.sort(np.minimum(empty.fits(shapes[s]), tasks))[::-1]
            never[k] = (fits > 0).sum() < fewest or fits[: most or None].sum() < tasks

    def changed(shape: Shape, c: int) -> Shape:
        kept = tuple(pair for pair in shape.constraint if not pair[0].startswith("on="))
        return shape._replace(nodes=(0, 0), constraint=kept) if c else shape

    return split_jobs(jobs, never[place], changed) if never.any() else jobs


def on_unlike_nodes(jobs: Jobs, nodes: Nodes) -> Jobs:
    """Jobs that ran, though their number of nodes cannot hold them in equal parts, in smaller ones.

    Of whole sockets or whole nodes a large node gives more than a small one. A part becomes what
    each of so many nodes has: on a larger one the job holds less than Slurm gave it.
    """
    # A job that never ran may not have had the parts that the log says.
    several = np.where(np.isfinite(jobs.recorded_start), jobs.tasks, 1)
    kinds, place = distinct_pairs(jobs.shape, several)
    empty, shapes = Books.opened(nodes), jobs.shapes_on(nodes.devices)
    smaller = dict[int, tuple[int, ...]]()
    for k, (s, count) in enumerate(kinds.T.tolist()):
        large = nodes.capacity[allowed_on(nodes, jobs.shapes[s])]
        alike = shapes[s].per_node != 1 or shapes[s].groups or (large == large[:1]).all()
        if count == 1 or count > len(large) or alike:
            continue
        if np.count_nonzero(empty.fits(shapes[s])) < count:
            # What the smallest of the largest ``count`` nodes has: so many nodes have at least
            # that.
            least = dict(zip(nodes.devices, np.sort(large, axis=0)[-count].tolist()))
            amounts = zip(jobs.devices, jobs.shapes[s].demand)
            smaller[k] = tuple(min(amount, least.get(kind, amount)) for kind, amount in amounts)
    code = np.array([k if k in smaller else -1 for k in range(kinds.shape[1])], dtype=np.int64)

    def changed(shape: Shape, c: int) -> Shape:
        return shape._replace(demand=smaller[c]) if c >= 0 else shape

    return split_jobs(jobs, code[place], changed) if smaller else jobs


def _bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high)


class _Alone(NamedTuple):
    """How a job that has its nodes alone is played: its nodes, and what it asks each for."""

    nodes: int
    demand: tuple[int, ...]
    unlike: bool  # the nodes that it may use are not alike


def with_nodes_alone(jobs: Jobs, nodes: Nodes, pools: Sequence[str]) -> tuple[Jobs, Nodes]:
    """Jobs of these pools, and those that ask for it, each with its nodes to itself."""
    terms = [terms_of(text).get("whole", "") for text in jobs.terms]
    own, memory = (np.array([text == word for text in terms])[jobs.term] for word in ("1", MEMORY))
    if "mem" in jobs.devices:  # where memory is given out
        of_memory = jobs.devices.index("mem")
        memory &= np.array([shape.demand[of_memory] > 0 for shape in jobs.shapes])[jobs.shape]
    of_pool = np.array([name in pools for name in jobs.pools])[jobs.pool]
    memory &= ~of_pool
    alone: Bools = own | memory | of_pool
    if not alone.any() or "cpu" not in jobs.devices or "cpu" not in nodes.devices:
        return jobs, nodes
    rows = np.flatnonzero(alone)
    sizes = [terms_of(text).get("size", "") for text in jobs.terms]
    size = np.array([round(1000 * float(text.partition("x")[0] or 0)) for text in sizes])
    # −1 marks jobs that have all memory of their nodes.
    size = np.where(memory, -1, size[jobs.term])
    nodes_given = np.array([int(terms_of(text).get("given", 0)) for text in jobs.terms])
    memory_asked = [round(1000 * float(terms_of(text).get("mem", 0))) for text in jobs.terms]
    pairs, of_pair = distinct_pairs(jobs.shape[rows], jobs.tasks[rows])
    sizes_given, of_size = distinct_pairs(size[rows], nodes_given[jobs.term[rows]])
    amounts_asked, of_amount = distinct_pairs(of_size, np.array(memory_asked)[jobs.term[rows]])
    kinds, place = distinct_pairs(of_pair, of_amount)
    played: list[list[_Alone]] = []  # of each kind, its groups
    for k, a in kinds.T.tolist():
        (s, count), (z, total) = pairs[:, k].tolist(), amounts_asked[:, a].tolist()
        (cores, several), shape = sizes_given[:, z].tolist(), jobs.shapes[s]
        if shape.groups:  # what a job of groups asked for is not known by group
            cores, several, total = min(cores, 0), 0, 0
        if "mem" in jobs.devices and total > 0 <= cores:
            # Memory of each core was given for all cores of a node: of a smaller one it is less.
            at = jobs.devices.index("mem")
            least = min(shape.demand[at], -(-total // count))
            shape = shape._replace(demand=(*shape.demand[:at], least, *shape.demand[at + 1 :]))
        groups, cpu = shape.groups or ((count, shape),), jobs.devices.index("cpu")
        played.append([_alone(part, many, cpu, nodes, cores, several) for many, part in groups])
    tasks = jobs.tasks.copy()
    # One task for each node; a job of groups is one task of them all.
    counts = np.array([groups[0].nodes if len(groups) == 1 else 1 for groups in played])
    tasks[rows] = counts[place]
    code = np.full(len(jobs), -1)
    code[rows] = place
    unlike = any(group.unlike for groups in played for group in groups)

    def alone_on(shape: Shape, group: _Alone) -> Shape:
        demand = (*group.demand, *[WHOLE] * unlike)
        return shape._replace(demand=demand, per_node=1, nodes=(0, 0))

    def changed(shape: Shape, c: int) -> Shape:
        if c < 0:
            return shape.each(lambda s: s._replace(demand=(*s.demand, *[1] * unlike)))
        if not shape.groups:
            return alone_on(shape, played[c][0])
        parts = zip((part for _, part in shape.groups), played[c])
        groups = tuple((group.nodes, alone_on(part, group)) for part, group in parts)
        every = np.sum([many * np.array(part.demand) for many, part in groups], axis=0)
        return shape._replace(demand=tuple(every.tolist()), groups=groups, nodes=(0, 0))

    jobs = replace(split_jobs(jobs, code, changed), tasks=tasks)
    if unlike:
        capacity = np.column_stack([nodes.capacity, np.full(len(nodes), WHOLE)])
        nodes = replace(nodes, devices=(*nodes.devices, ALONE), capacity=capacity)
        jobs = replace(jobs, devices=(*jobs.devices, ALONE))
    return jobs, nodes


def _alone(shape: Shape, tasks: int, cpu: int, nodes: Nodes, asked: int, given: int) -> _Alone:
    """``asked`` are the thousandths of cores that it asked for, 0 where that is not known.

    −1 for a job that has all memory of its nodes, and of their cores what it holds. ``given`` are
    the nodes that it was given, 0 where that is not known: of unlike nodes it depends on which.
    """
    # Only nodes that the job may use: unlike others do not matter.
    cores = nodes.capacity[allowed_on(nodes, shape), nodes.devices.index("cpu")]
    total = np.array(shape.demand) * tasks
    unlike = asked < 0 or bool(cores.size and (cores != cores[0]).any())
    if unlike and asked > 0:  # it was given all cores of nodes that others need not be as large as
        total[cpu] = min(total[cpu], asked)
    most, least = int(cores.max(initial=1)), int(cores.min(initial=10**9))
    fewest = max(-(-int(total[cpu]) // most), 1)
    several = max(tasks, fewest) if shape.per_node == 1 else max(fewest, shape.nodes[0])
    several = max(several, given) if unlike else several
    # Equal parts, rounded up.
    demand = -(-total // several)
    if not unlike and cores.size:
        demand[cpu] = max(int(demand[cpu]), most)
    elif several > 1:  # some have more than their part, where others have too little
        demand[cpu] = min(int(demand[cpu]), least)
    return _Alone(several, tuple(demand.tolist()), unlike)
