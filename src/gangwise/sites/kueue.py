"""Kueue: a site as kubectl prints it, and admission by quotas in a tree of cohorts.

A folder has any of these, in YAML or JSON, under any names; lists and single objects alike::

    kubectl get clusterqueues,cohorts,localqueues,resourceflavors -A -o yaml > queues.yaml
    kubectl -n kueue-system get configmap kueue-manager-config -o yaml > config.yaml

In each cycle the first workload of every ClusterQueue gets flavors, and perhaps workloads that give
way to it; those that do not borrow go first, or with fair sharing those whose queue then has the
smallest share. Cycles follow one another until nothing changes. Who is admitted holds its quota,
and starts once all its pods find nodes together. https://kueue.sigs.k8s.io/docs/concepts
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gangwise import notation
from gangwise.core.errors import ScenarioError, UnknownName, to_install
from gangwise.jobs.books import Ask, Books, Explanation, Place, Preempt, Queue, Rate
from gangwise.jobs.choice import WorstFit, placed
from gangwise.jobs.model import Job, Nodes

Key = tuple[str, str]
"""A flavor, and a resource of it."""
Amounts = dict[Key, float]
SMALL = 1e-9  # amounts are sums of thousandths


class Quota(NamedTuple):
    """What a queue has of a resource in a flavor: devices, memory in GiB; inf is no limit."""

    nominal: float = 0.0
    borrowing: float = math.inf
    lending: float = math.inf


class Holder:
    """A ClusterQueue or a cohort: what it has, lends, borrows and uses.

    What a child does not keep for itself belongs to its parent as well; only what it uses beyond
    what it keeps counts there.
    """

    def __init__(self, spec: Mapping[str, Any]):
        self.name, self.above = str(spec["name"]), str(spec.get("cohort", ""))
        self.parent: Holder | None = None
        self.children: list[Holder] = []
        self.weight = float(spec.get("weight", 1.0))
        self.rules = {key: str(spec.get(key, rule.split()[1])) for key, rule in RULES.items()}
        self.threshold = float(spec.get("threshold", math.inf))
        self.groups: list[tuple[list[str], list[str]]] = []  # resources, and their flavors
        self.quota: dict[Key, Quota] = {}
        for group in spec.get("groups", ()):
            self.groups.append((group["resources"], [f["name"] for f in group["flavors"]]))
            for flavor in group["flavors"]:
                for kind, rule in flavor["quotas"].items():
                    self.quota[flavor["name"], kind] = Quota(**rule)
        self.own: Amounts = {}
        self._subtree_quota: Amounts = {}

    def limit(self, k: Key) -> Quota:
        return self.quota.get(k, Quota())

    def subtree_quota(self, k: Key) -> float:
        """Nominal quota, and what the children lend: what can be used here and below."""
        # Quotas do not change while the tree lives, so sums are kept.
        if k not in self._subtree_quota:
            lent = sum(child.subtree_quota(k) - child.guaranteed(k) for child in self.children)
            self._subtree_quota[k] = self.limit(k).nominal + lent
        return self._subtree_quota[k]

    def guaranteed(self, k: Key) -> float:
        """The part of its total above the lending limit, which no other may borrow."""
        return max(0.0, self.subtree_quota(k) - self.limit(k).lending)

    def usage(self, k: Key) -> float:
        # Only what a child uses beyond its guaranteed quota is taken from the parent's.
        below = (max(0.0, child.usage(k) - child.guaranteed(k)) for child in self.children)
        return self.own.get(k, 0.0) + sum(below)

    def available(self, k: Key) -> float:
        """What may be used in addition to what is in use: its own, and borrowed."""
        if self.parent is None:
            return self.subtree_quota(k) - self.usage(k)
        own, used = self.guaranteed(k), self.usage(k)
        # What the parent holds for it, less what it uses of that, plus what it may borrow.
        room = self.subtree_quota(k) - own - max(0.0, used - own) + self.limit(k).borrowing
        return max(0.0, own - used) + min(self.parent.available(k), room)

    def potential_available(self, k: Key) -> float:
        """What could be used if no other queue used anything."""
        if self.parent is None:
            return self.subtree_quota(k)
        return min(
            self.guaranteed(k) + self.parent.potential_available(k),
            self.subtree_quota(k) + self.limit(k).borrowing,
        )

    def borrows(self, k: Key, more: float = 0.0) -> bool:
        return self.parent is not None and self.usage(k) + more > self.subtree_quota(k) + SMALL

    def take(self, amounts: Amounts, sign: int = 1) -> None:
        for k, amount in amounts.items():
            self.own[k] = self.own.get(k, 0.0) + sign * amount

    def dominant_share(self) -> float:
        """Dominant resource share: borrowed ÷ what the parent could lend ÷ weight, the largest.

        Amounts of a resource are summed over its flavors.
        """
        if self.parent is None:
            return 0.0
        over: dict[str, float] = {}
        lent: dict[str, float] = {}
        for k in keys_below(self.root):
            over[k[1]] = over.get(k[1], 0.0) + max(0.0, self.usage(k) - self.subtree_quota(k))
            lent[k[1]] = lent.get(k[1], 0.0) + self.parent.potential_available(k)
        # Where the parent can lend nothing of a resource, nothing of it is borrowed either.
        most = max(
            (over[r] / lent[r] for r in over if over[r] > SMALL and lent[r] > 0), default=0.0
        )
        return most / self.weight if self.weight > 0 else math.inf if most > 0 else 0.0

    def ancestry(self) -> list[Holder]:
        """The queue or cohort itself, its parent, and so on up to the root."""
        return [self, *(self.parent.ancestry() if self.parent else ())]

    @property
    def root(self) -> Holder:
        return self.parent.root if self.parent else self


def keys_below(holder: Holder) -> list[Key]:
    # In the order of the file: shares are sums, whose rounding depends on it.
    below = (k for child in holder.children for k in keys_below(child))
    return list(dict.fromkeys([*holder.quota, *below]))


def tree_of(quotas: Mapping[str, Any]) -> dict[str, Holder]:
    """ClusterQueues by name, within their cohorts; one that is only mentioned has no quota."""
    cohorts, queues = (
        {q["name"]: Holder(q) for q in quotas.get(kind, ())} for kind in ("cohorts", "queues")
    )
    for holder in [*cohorts.values(), *queues.values()]:
        if holder.above:
            holder.parent = cohorts.setdefault(holder.above, Holder({"name": holder.above}))
            holder.parent.children.append(holder)
    for holder in cohorts.values():
        at: Holder | None = holder
        # As many steps up as there are cohorts end above the root, unless the way is a circle.
        for _ in range(len(cohorts)):
            at = at.parent if at else None
        if at is not None:
            raise ScenarioError(f"cohort {holder.name} is below itself")
    return queues


@dataclass
class QueuedWorkload:
    job: Job
    queue: Holder
    # Of each pod set: pods for each of ``tasks``, and what a pod asks of each resource, in
    # thousandths; itself is one of ``pods``.
    asks: list[tuple[int, dict[str, int]]]
    tasks: int  # pods to be admitted: all, or with partial admission fewer; 1 of several pod sets
    needs: Amounts = field(default_factory=dict)  # by the flavors it was assigned
    flavors: list[set[str]] = field(default_factory=list)  # of each pod set
    admitted: float = -math.inf

    @property
    # Priority first, then age, then the order of the log.
    def rank(self) -> tuple[float, float, int]:
        return -self.job.priority, self.job.submitted, self.job.row

    def fits(self, borrowing: bool = True) -> bool:
        queue = self.queue
        return all(
            amount <= queue.available(k) + SMALL and (borrowing or not queue.borrows(k, amount))
            for k, amount in self.needs.items()
        )


FIT, PREEMPT, NO_FIT = range(3)


def assign(w: QueuedWorkload, fair: bool) -> int:
    """Give every resource a flavor, the first or best of its group: FIT, PREEMPT or NO_FIT.

    Pod sets get theirs one after another, each with what those before it need taken.
    """
    w.needs, w.flavors = {}, []
    return max(_assign_set(w, count, asks, fair) for count, asks in w.asks)


def _assign_set(w: QueuedWorkload, many: int, asks: dict[str, int], fair: bool) -> int:
    queue, rules, worst = w.queue, w.queue.rules, FIT
    preempts = rules["borrow"] != "Never" or (fair and rules["reclaim"] != "Never")
    w.flavors.append(set())
    for resources, flavors in queue.groups:
        mine = {kind: many * w.tasks * asks[kind] / 1000 for kind in resources if asks.get(kind)}
        best: tuple[int, bool, str] | None = None
        for flavor in flavors if mine else ():
            how, borrows = FIT, False
            # All resources of a group get one flavor, so the worst of them decides.
            for kind, amount in mine.items():
                k = flavor, kind
                amount += w.needs.get(k, 0.0)
                borrows |= queue.borrows(k, amount)
                if amount > queue.available(k) + SMALL:
                    able = amount <= queue.potential_available(k) + SMALL
                    able &= amount <= queue.limit(k).nominal + SMALL or preempts
                    how = max(how, PREEMPT if able else NO_FIT)
            outcome = how, borrows, flavor
            if best is None or outcome[:2] < best[:2]:
                best = outcome
            # The first flavor that fits is taken, unless the next might do without borrowing.
            if how == FIT and not (borrows and rules["when_borrow"] == "TryNextFlavor"):
                break
            if how == PREEMPT and rules["when_preempt"] == "Preempt":
                best = outcome
                break
        if best is not None:
            worst = max(worst, best[0])
            w.flavors[-1].add(best[2])
            for kind, amount in mine.items():
                k = best[2], kind
                w.needs[k] = w.needs.get(k, 0.0) + amount
    return worst


def nominate(
    w: QueuedWorkload, old: Sequence[QueuedWorkload], fair: Sequence[str]
) -> tuple[int, list[QueuedWorkload]]:
    """How a workload fits, and which admitted ones are preempted for it.

    Partial admission: where neither borrowing nor preemption helps all pods, the most that can be
    admitted are found by binary search, down to the minimum; where that is too much as well, it is
    all again.
    """

    def without(fewer: int) -> tuple[int, list[QueuedWorkload]]:
        w.tasks = w.job.tasks - fewer
        how = assign(w, bool(fair))
        return how, targets_of(w, old, fair) if how == PREEMPT else []

    def able(fewer: int) -> bool:
        how, out = without(fewer)
        return how == FIT or bool(out)

    spare = w.job.tasks - w.job.fewest
    # Fewer pods never fit worse, so that binary search finds the most that do.
    # The key is False, …, True: the first True is the least reduction that is enough.
    fewer = bisect_left(range(spare + 1), True, key=able) if spare and not able(0) else 0
    return without(fewer if fewer <= spare else 0)


def candidates_of(w: QueuedWorkload, admitted: Iterable[QueuedWorkload]) -> list[QueuedWorkload]:
    """Workloads that may be preempted for another one, in the order in which they are tried.

    Those of other queues, which borrow, come first; then low priority, then the last admitted.
    """
    queue, priority = w.queue, w.job.priority
    # Only workloads that use what is short can help.
    short = [k for k, amount in w.needs.items() if amount > queue.available(k) + SMALL]
    within, reclaim = queue.rules["within"], queue.rules["reclaim"]
    peers = []
    for workload in admitted:
        if not any(workload.needs.get(k) for k in short):
            continue
        below = workload.job.priority < priority
        newer = workload.job.priority == priority and workload.rank > w.rank
        if workload.queue is queue:
            # Within the queue: lower priority, or the same and later.
            newer &= within == "LowerOrNewerEqualPriority"
            able = within != "Never" and (below or newer)
        else:
            # In other queues: those that borrow from the cohort what this one may reclaim.
            able = workload.queue.root is queue.root and queue.parent is not None
            able = able and any(workload.queue.borrows(k) for k in short)
            able = able and (reclaim == "Any" or (reclaim == "LowerPriority" and below))
        if able:
            peers.append(workload)
    return sorted(peers, key=lambda o: (o.queue is queue, o.job.priority, -o.admitted, o.job.row))


def targets_of(
    w: QueuedWorkload, admitted: Sequence[QueuedWorkload], fair: Sequence[str]
) -> list[QueuedWorkload]:
    """Workloads that are preempted for another one; none where it would not fit even so."""
    candidates = candidates_of(w, admitted)
    if not candidates:
        return []
    if fair:
        return _fair_targets(w, candidates, fair)
    own = [peer for peer in candidates if peer.queue is w.queue]
    # All candidates are of the queue itself.
    if len(own) == len(candidates):
        return _minimal_targets(w, own, True)
    # Within its nominal quota a queue reclaims what is its own; beyond it, it would borrow.
    # Asked without the workload itself: is the queue borrowing already?
    under = all(not w.queue.borrows(k) for k in w.needs)
    if w.queue.rules["borrow"] != "Never":
        below = min(w.job.priority, w.queue.threshold + 1)
        if not under:
            candidates = [o for o in candidates if o.queue is w.queue or o.job.priority < below]
        return _minimal_targets(w, candidates, True, below)
    # First without borrowing, from all; then with it, from the own queue alone.
    if under and (targets := _minimal_targets(w, candidates, False)):
        return targets
    return _minimal_targets(w, own, True)


def _minimal_targets(
    w: QueuedWorkload,
    candidates: Sequence[QueuedWorkload],
    borrowing: bool,
    below: float = math.inf,
) -> list[QueuedWorkload]:
    """Preempt candidates until the workload fits, then give back those that need not go."""
    removed: list[QueuedWorkload] = []
    for peer in candidates:
        if peer.queue is not w.queue:
            if not any(peer.queue.borrows(k) for k in w.needs):
                continue
            # Borrowing ends once a workload at or above the threshold has to go.
            borrowing = borrowing and peer.job.priority < below
        peer.queue.take(peer.needs, -1)
        removed.append(peer)
        if w.fits(borrowing):
            break
    return _restore_others(w, removed, borrowing)


def _restore_others(
    w: QueuedWorkload, gone: list[QueuedWorkload], borrowing: bool
) -> list[QueuedWorkload]:
    """Of the workloads whose quota was taken away those that must go; none where it does not fit.

    They get it back, the last first, unless the workload no longer fits then. When this returns,
    all have their quota again.
    """
    must, fits = list[QueuedWorkload](), w.fits(borrowing)
    # The last one that was taken away was the least wanted as a victim, and is given back first.
    for peer in reversed(gone):
        peer.queue.take(peer.needs)
        if fits and not w.fits(borrowing):
            peer.queue.take(peer.needs, -1)
            must.append(peer)
    # Quotas are as before; the caller takes them away from those who must go.
    for peer in must:
        peer.queue.take(peer.needs)
    return must


def _fair_targets(
    w: QueuedWorkload, candidates: Sequence[QueuedWorkload], strategies: Sequence[str]
) -> list[QueuedWorkload]:
    """Who gives way by dominant resource shares: the queue with the largest share, again and again.

    Its share without the workload, or with it, must not be below that of the one preempting, which
    are compared just below the cohort that both have in common.
    """
    removed: list[QueuedWorkload] = []
    # The second strategy is tried only for what the first has not made room for.
    for strategy in strategies:
        remaining = [peer for peer in candidates if peer not in removed]
        while remaining and not w.fits():
            queue = _largest_share(w.queue.root, {id(o.queue) for o in remaining})
            if queue is None:
                break
            mine = [peer for peer in remaining if peer.queue is queue]
            chosen = next((o for o in mine if _is_fair(w, o, strategy)), None)
            if chosen is None:
                remaining = [peer for peer in remaining if peer.queue is not queue]
                continue
            chosen.queue.take(chosen.needs, -1)
            removed.append(chosen)
            remaining.remove(chosen)
    return _restore_others(w, removed, True)


def _is_fair(w: QueuedWorkload, other: QueuedWorkload, strategy: str) -> bool:
    if other.queue is w.queue:
        return True
    ours, theirs = w.queue.ancestry(), other.queue.ancestry()
    # Shares are compared of the two branches that meet below the common cohort.
    common = next(h for h in ours if h in theirs)
    a, b = ours[ours.index(common) - 1], theirs[theirs.index(common) - 1]
    # As if the one were admitted and the other gone; both are undone below.
    before = b.dominant_share()
    w.queue.take(w.needs)
    other.queue.take(other.needs, -1)
    mine, after = a.dominant_share(), b.dominant_share()
    w.queue.take(w.needs, -1)
    other.queue.take(other.needs)
    if strategy == "LessThanOrEqualToFinalShare":
        return mine <= after + SMALL
    return mine < before - SMALL


def _largest_share(holder: Holder, among: set[int]) -> Holder | None:
    """The queue of ``among`` below the children of largest share, from the root on."""
    if not holder.children:
        return holder if id(holder) in among else None
    for child in sorted(holder.children, key=lambda c: -c.dominant_share()):
        if (share := _largest_share(child, among)) is not None:
            return share
    return None


@dataclass
class Kueue:
    """Admission by Kueue's rules, then all pods at once on nodes of the flavors.

    Pods take the nodes with most free, as kube-scheduler prefers. Pod sets of one workload get
    their flavors and nodes one after another, those of the largest pods first.
    """

    groups: ClassVar[bool] = True
    _choice: WorstFit = field(default_factory=WorstFit, init=False, repr=False)
    _queues: dict[str, Holder] = field(default_factory=dict, init=False, repr=False)
    _held: dict[str, QueuedWorkload] = field(default_factory=dict, init=False, repr=False)
    _why: dict[str, tuple[str, float]] = field(default_factory=dict, init=False, repr=False)
    _quotas: Any = field(default=None, init=False, repr=False)  # those that the tree is made of

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        self._quotas = None

    def observe(self, rate: Rate) -> None: ...

    def place(self, queue: Queue, books: Books, now: float) -> list[Place | Preempt | Ask]:
        """Cycles of admission until nothing changes; then all admitted ones that find nodes."""
        quotas = books.tenancy.quotas if books.tenancy else {}
        if self._quotas is not quotas:
            self._quotas, self._queues = quotas, tree_of(quotas)
            for w in self._held.values():
                w.queue = self._queue_of(w.job)
                w.queue.take(w.needs)
        # Quota is held from admission to the end of the job, not from its start.
        for event in books.events:
            if event.over and event.job is not None and event.job.id in self._held:
                workload = self._held.pop(event.job.id)
                workload.queue.take(workload.needs, -1)
        waiting = []
        for job in queue:
            if job.id not in self._held:
                sets = job.shape.groups or ((1, job.shape),)
                kinds = books.nodes.devices
                asks = [(n, {**dict(zip(kinds, pod.demand)), "pods": 1000}) for n, pod in sets]
                waiting.append(QueuedWorkload(job, self._queue_of(job), asks, job.tasks))
        # Admission decides on a copy: what it takes is the cluster's only once pods are placed.
        trial, before = books.copy(), self._why
        actions: list[Place | Preempt | Ask] = []
        self._why = {}
        self._admit(waiting, trial, now, actions)
        tally = trial.tally()
        for w in sorted(self._held.values(), key=lambda w: w.admitted):
            if w.job.id in trial.running:
                continue
            job = w.job if w.tasks == w.job.tasks else replace(w.job, tasks=w.tasks)
            admitted = "it is admitted" + f" with {w.tasks} of {w.job.tasks} pods" * (job != w.job)
            if tally.holds(job) is not None or books.opens(job, now) > now:
                self._why[job.id] = f"{admitted}; a cap or closed hours keep it", now
                continue
            ups = [trial.up & self._on_flavors(names, books.nodes) for names in w.flavors]
            placing = placed(self._choice, job, trial, now, ups)
            if placing is None:
                self._why[job.id] = f"{admitted}, and its pods do not fit on the nodes", now
                continue
            chosen, pieces = placing
            trial.take(job.shape, pieces)
            tally.take(job)
            actions.append(Place(job.id, tuple(chosen), pieces))
        self._why = {
            name: before[name] if before.get(name, ("",))[0] == reason else (reason, since)
            for name, (reason, since) in self._why.items()
        }
        return actions

    def _queue_of(self, job: Job) -> Holder:
        name = self._quotas.get("local", {}).get(job.pool, job.pool)
        return self._queues.setdefault(name, Holder({"name": name}))

    def _on_flavors(self, names: set[str], nodes: Nodes) -> Any:
        """Nodes that have the labels of every flavor of these [N]."""
        labels = self._quotas.get("flavors", {})
        wanted = [item for flavor in names for item in labels.get(flavor, {}).items()]
        every = {item for of_node in nodes.labels for item in of_node.items()}
        # A label that no node of the log has says nothing there and is not asked for.
        wanted = [item for item in wanted if item in every]
        return np.array([all(of_node.get(k) == v for k, v in wanted) for of_node in nodes.labels])

    def _admit(
        self, waiting: list[QueuedWorkload], books: Books, now: float, actions: list[Any]
    ) -> None:
        """Repeat cycles until no head of a queue is admitted.

        A head that is not admitted lets the next of its queue try, unless the queue is StrictFIFO.
        """
        fair, fresh = list(self._quotas.get("fair", ())), set[str]()
        for w in waiting:
            self._why[w.job.id] = f"an older workload of ClusterQueue {w.queue.name} is first", now
            if w.queue.rules["stop"] != "None":
                self._why[w.job.id] = f"ClusterQueue {w.queue.name} is stopped", now
        passed = set[str]()  # queues, and single workloads, that are out until somebody gives way
        while True:
            heads: dict[str, QueuedWorkload] = {}
            for w in sorted(waiting, key=lambda w: w.rank):
                stopped = w.queue.rules["stop"] != "None"
                if not stopped and not {w.job.id, w.queue.name} & passed:
                    heads.setdefault(w.queue.name, w)
            if not heads:
                return
            # What was admitted in this instant gives way to nobody before the next one.
            stale = [w for name, w in self._held.items() if name not in fresh]
            entries = []
            for w in heads.values():
                how, out = nominate(w, stale, fair)
                if how == FIT or out:
                    entries.append((w, out))
                    continue
                strict = w.queue.rules["strategy"] == "StrictFIFO"
                passed.add(w.queue.name if strict else w.job.id)
                self._why[w.job.id] = shortage(w), now
                if how == PREEMPT and w.queue.rules["reclaim"] != "Any":
                    entries.append((w, []))  # it holds what it could have, in this cycle
            # Later cycles count as later: the last admitted is preempted first.
            admitted = self._cycle(entries, fair, books, now + len(fresh) * SMALL, actions)
            for w, out in admitted:
                waiting.remove(w)
                fresh.add(w.job.id)
                # Preempted workloads wait again, with all their pods.
                waiting += [QueuedWorkload(o.job, o.queue, o.asks, o.job.tasks) for o in out]
                for workload in out:
                    self._why[workload.job.id] = f"it was preempted for {w.job.id}", now
                if out:
                    passed = set()

    def _cycle(
        self,
        entries: list[tuple[QueuedWorkload, list[QueuedWorkload]]],
        fair: Sequence[str],
        books: Books,
        now: float,
        actions: list[Any],
    ) -> list[tuple[QueuedWorkload, list[QueuedWorkload]]]:
        """One cycle: the workloads that it admits, in turn, each with those it preempts."""
        admissions, inadmissible, preempted = [], [], set[str]()
        while entries:
            w, out = entries.pop(next_head([w for w, _ in entries], bool(fair)))
            # A victim already taken in this cycle leaves nothing to take.
            if preempted & {workload.job.id for workload in out}:
                continue  # in the next cycle
            for workload in out:
                workload.queue.take(workload.needs, -1)
            if not w.fits():
                for workload in out:
                    workload.queue.take(workload.needs)
                reserved = {
                    k: max(0.0, min(x, reservable(w.queue, k, x))) for k, x in w.needs.items()
                }
                w.queue.take(reserved)
                inadmissible.append((w.queue, reserved))
                continue
            for workload in out:
                preempted.add(workload.job.id)
                del self._held[workload.job.id]
                if (running := books.running.pop(workload.job.id, None)) is not None:
                    books.take(workload.job.shape, running.pieces, sign=1)
                    actions.append(Preempt(workload.job.id, "requeue"))
            w.queue.take(w.needs)
            w.admitted = now
            self._held[w.job.id] = w
            admissions.append((w, out))
        for queue, reserved in inadmissible:
            queue.take(reserved, -1)
        return admissions

    def explain(self, job: str) -> Explanation:
        """Why a job waits; raises UnknownName for one that did not in the last round."""
        if job not in self._why:
            raise UnknownName("waiting job", job, list(self._why))
        reason, since = self._why[job]
        return Explanation(job, reason, (), since, math.inf)


def reservable(queue: Holder, k: Key, amount: float) -> float:
    """Amount that a workload which stays pending reserves in this cycle, so that others leave it.

    Up to the nominal quota, or where it would borrow, up to the borrowing limit.
    """
    limit = queue.limit(k).borrowing if queue.borrows(k, amount) else 0.0
    return queue.limit(k).nominal + limit - queue.usage(k)


def shortage(w: QueuedWorkload) -> str:
    """Shortage of a workload that preemption does not relieve, in words."""
    queue, lacks = w.queue, list[str]()
    for k, amount in w.needs.items():
        if amount > (free := queue.available(k)) + SMALL:
            quota = f"nominal quota {queue.limit(k).nominal:g}"
            request = f"{amount:g} {k[1]} of flavor {k[0]} asked for"
            lacks.append(f"{request}, {max(free, 0):g} free ({quota})")
    return f"ClusterQueue {queue.name}: {'; '.join(lacks)}; none there may be preempted for it"


def next_head(heads: Sequence[QueuedWorkload], fair: bool) -> int:
    """Place of the head that is next in a cycle: no borrowing, then priority and age; or shares."""
    # Kueue's own order without fair sharing: who stays within his quota, then priority, then age.
    queue = min(
        range(len(heads)),
        key=lambda i: (
            any(heads[i].queue.borrows(k, amount) for k, amount in heads[i].needs.items()),
            heads[i].rank,
        ),
    )
    if not fair:
        return queue
    place = {id(w.queue): i for i, w in enumerate(heads)}

    def winner(holder: Holder) -> int | None:
        """The head below a cohort that leaves the smallest share, at each level of the tree."""
        if not holder.children:
            return place.get(id(holder))
        best: tuple[float, Any, int] | None = None
        for child in holder.children:
            if (i := winner(child)) is not None:
                heads[i].queue.take(heads[i].needs)
                head = child.dominant_share(), heads[i].rank, i
                heads[i].queue.take(heads[i].needs, -1)
                best = head if best is None else min(best, head)
        return None if best is None else best[2]

    # From the root of that head's tree, since fair sharing compares cohorts level by level.
    head = winner(heads[queue].queue.root)
    return queue if head is None else head


# --------------------------------------------------------------------------- what kubectl prints

STRATEGIES = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
VERSIONS = "v1alpha1", "v1beta1", "v1beta2"
KINDS = {  # what of their specification is read
    "ClusterQueue": "cohort cohortName queueingStrategy namespaceSelector resourceGroups "
    "preemption flavorFungibility fairSharing stopPolicy",
    "Cohort": "parent parentName resourceGroups fairSharing",
    "LocalQueue": "clusterQueue",
    "ResourceFlavor": "nodeLabels tolerations",
}
LOGGED = "Workload", "WorkloadPriorityClass", "Pod", "Node"  # a log has them, no site
RULES = {  # of a ClusterQueue: where a rule stands, and its values, the default first
    "strategy": "queueingStrategy BestEffortFIFO StrictFIFO",
    "stop": "stopPolicy None Hold HoldAndDrain",
    "within": "preemption.withinClusterQueue Never LowerPriority LowerOrNewerEqualPriority",
    "reclaim": "preemption.reclaimWithinCohort Never LowerPriority Any",
    "borrow": "preemption.borrowWithinCohort.policy Never LowerPriority",
    "when_borrow": "flavorFungibility.whenCanBorrow Borrow MayStopSearch TryNextFlavor",
    "when_preempt": "flavorFungibility.whenCanPreempt TryNextFlavor Preempt MayStopSearch",
}


class At(dict[str, Any]):
    """A mapping of a file, which knows in which line it begins."""

    where = ""

    def at(self, path: str) -> Any:
        node: Any = self
        for part in path.split("."):
            node = (node or {}).get(part)
        return node


def resource(name: str) -> str:
    """A resource as device types of logs are called.

    >>> resource("nvidia.com/gpu"), resource("memory")
    ('gpu', 'mem')
    """
    return {"memory": "mem"}.get(name, name.rpartition("/")[2])


def documents(file: Path, text: str = "") -> Iterator[Any]:
    """Objects of a file, or of a text in it, each with the line that it begins in."""
    try:
        import yaml  # type: ignore[import-untyped]  # it ships no types
    except ImportError as error:
        raise ScenarioError(f"{file} is YAML; {to_install('live')}") from error

    def mapping(loader: Any, node: Any) -> At:
        node_at = At(loader.construct_mapping(node, deep=True))
        node_at.where = f"{file.name}, line {node.start_mark.line + 1}"
        return node_at

    loader = yaml.SafeLoader(text or file.read_bytes())
    loader.yaml_constructors = {**loader.yaml_constructors, "tag:yaml.org,2002:map": mapping}
    try:
        while loader.check_data():
            yield loader.get_data()
    except yaml.YAMLError as error:
        raise ScenarioError(f"{file}: {error}") from error


class Printed:
    """The objects of a folder by kind, and notes on what of them is not modelled or at fault."""

    def __init__(self, folder: Path):
        self.kinds: dict[str, list[At]] = {}
        self.notes: list[str] = []
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            for document in documents(file) if file.suffix in (".yaml", ".yml", ".json") else ():
                self._take(document, file)
        if not self.kinds.get("ClusterQueue"):
            raise ScenarioError(
                f"{folder} has no ClusterQueue; put there what kubectl get "
                "clusterqueues,cohorts,localqueues,resourceflavors -A -o yaml prints"
            )

    def _take(self, one: Any, file: Path) -> None:
        if not isinstance(one, At):
            return
        kind, version = str(one.get("kind")), str(one.get("apiVersion", "")).rpartition("/")[2]
        if "items" in one:
            for item in one["items"] or ():
                self._take(item, file)
        elif kind == "ConfigMap":
            for text in one.get("data", {}).values():
                for item in documents(file, text):
                    self._take(item, file)
        elif kind in KINDS or kind == "Configuration":
            if version not in VERSIONS:
                self.notes.append(f"{one.where}: {kind} {version} is read as {VERSIONS[-1]}")
            self.kinds.setdefault(kind, []).append(one)
            for name, value in one.get("spec", {}).items() if kind in KINDS else ():
                if name not in KINDS[kind].split() and value not in (None, [], "None"):
                    self.notes.append(f"not modelled: {name} of a {kind}, {one.where}")
        elif kind not in LOGGED:
            self.notes.append(f"{one.where}: {kind} is not read: left out")

    def amount(self, kind: str, of: At, name: str, default: float) -> float:
        """An amount of a resource, memory in GiB; the default where it is not given or at fault."""
        try:
            number = default if of.get(name) is None else float(notation.exact_quantity(of[name]))
        except ValueError as error:
            self.notes.append(f"{of.where}: {name}: {error}; {default:g} is taken")
            return default
        # The default is in GiB already; what a file says is in bytes.
        return number / notation.GIB if kind == "mem" and number is not default else number

    def quota(self, of: At) -> tuple[str, dict[str, float]]:
        """A resource of a flavor, and the fields of its :class:`Quota`."""
        kind, quota = resource(str(of["name"])), {}
        for name, default in Quota._field_defaults.items():
            setting = "nominalQuota" if name == "nominal" else f"{name}Limit"
            quota[name] = self.amount(kind, of, setting, default)
        return kind, quota

    def holder(self, one: At) -> dict[str, Any]:
        """A ClusterQueue or a cohort: where it is, its weight and its quotas."""
        spec = one.get("spec") or At()
        above = [spec.get(name) for name in ("cohortName", "cohort", "parentName", "parent")]
        groups = []
        for group in spec.get("resourceGroups") or ():
            flavors = [
                {
                    "name": str(flavor["name"]),
                    "quotas": dict(map(self.quota, flavor.get("resources", ()))),
                }
                for flavor in group.get("flavors", ())
            ]
            covered = [resource(str(name)) for name in group.get("coveredResources", ())]
            groups.append({"resources": covered, "flavors": flavors})
        return {
            "name": str(one["metadata"]["name"]),
            "cohort": next((str(name) for name in above if name), ""),
            "weight": self.amount("", spec.get("fairSharing") or At(), "weight", 1.0),
            "groups": groups,
        }

    def queue(self, one: At) -> dict[str, Any]:
        """A ClusterQueue, with its rules under the names of :data:`RULES`."""
        queue, spec = self.holder(one), one.get("spec") or At()
        for key, text in RULES.items():
            path, *values = text.split()
            value = str(spec.at(path) or values[0])
            if value not in values:
                self.notes.append(f"{one.where}: {path}: {value} is none of {' '.join(values)}")
                value = values[0]
            if value == "MayStopSearch":  # the word of v1beta2 for Borrow, or Preempt
                value = key.removeprefix("when_").title()
            queue[key] = value
        threshold = spec.at("preemption.borrowWithinCohort.maxPriorityThreshold")
        return queue if threshold is None else queue | {"threshold": float(threshold)}


def read_kueue(folder: Path) -> dict[str, Any]:
    """The parts of a :class:`gangwise.sites.site.Site`, from objects that kubectl printed.

    Raises ScenarioError where there is no ClusterQueue, a cohort is below itself, or a file cannot
    be read.
    """
    r = Printed(folder)
    labels = {
        str(document["metadata"]["name"]): dict(document.get("spec", {}).get("nodeLabels") or {})
        for document in r.kinds.get("ResourceFlavor", ())
    }
    queues = [r.queue(document) for document in r.kinds["ClusterQueue"]]
    for document, built in zip(r.kinds["ClusterQueue"], queues):
        named = {f["name"] for group in built["groups"] for f in group["flavors"]}
        for name in sorted(named - labels.keys()):
            r.notes.append(
                f"{document.where}: there is no ResourceFlavor {name}: it may use any node"
            )
    local: dict[str, str] = {}
    for document in r.kinds.get("LocalQueue", ()):
        name, queue = (
            str(document["metadata"]["name"]),
            str(document.get("spec", {}).get("clusterQueue")),
        )
        if queue not in {built["name"] for built in queues}:
            r.notes.append(f"{document.where}: LocalQueue {name}: there is no ClusterQueue {queue}")
        if local.setdefault(name, queue) != queue:
            r.notes.append(f"{document.where}: {name} without a namespace means {local[name]}")
        local[f"{document['metadata'].get('namespace', 'default')}/{name}"] = queue
    fair: list[str] = []
    for document in r.kinds.get("Configuration", ()):
        if (document.get("fairSharing") or {}).get("enable", bool(document.get("fairSharing"))):
            fair = list(document["fairSharing"].get("preemptionStrategies") or STRATEGIES)
    if not r.kinds.get("Configuration"):
        r.notes.append("no Configuration of Kueue is there: fair sharing is taken to be off")
    cohorts = [r.holder(document) for document in r.kinds.get("Cohort", ())]
    quotas = {"queues": queues, "cohorts": cohorts, "local": local, "flavors": labels, "fair": fair}
    tree_of(quotas)
    return {"rules": {"kueue": quotas}, "scheduler": "kueue", "notes": tuple(r.notes)}
