"""Compiled parts of the queue: keys by formula, multifactor priority, caps, and who is in line.

Compiled schedulers and those that decide in Python call the same functions.

*Multifactor priority* is a named tuple of arrays, :class:`~gangwise.jobs.kernels.Standing`, that
is changed in place: the account tree with its decaying use. Its nodes are numbered from the root,
0, so that each comes behind its parent; *leaves* are users within accounts.

*Caps*: a job at its cap is passed over. What is in use of a cap grows while jobs start, and shrinks
only where a job leaves its nodes (:func:`wake`). Until then the jobs that it holds need not be
looked at: they are put aside, by claim, for those of a claim take the same of the same counters
and are capped together. Of each claim that has some aside, at any time between two looks of a
round,

- it is shut: listed with a counter of which its jobs would take too much; or
- one of its jobs in line comes before all that are aside, and once that was looked at, or has left
  the line, :func:`follow` brings back the next of them, or shuts the claim.

So in a round everyone in the order of the queue is looked at but those who are capped as their turn
comes: the same are tried, on the same devices, against the same promises. Those aside count in
`Counters.waiting`. Where keys change in every round, all of a claim are brought back at once.
"""

from __future__ import annotations

import math

from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs.kernels import (
    ASIDE,
    DROPPED,
    F1,
    F2,
    F3,
    F4,
    FAIR_SHARE,
    IN_LINE,
    MULTIFACTOR,
    SAF,
    SJF,
    UNICEP,
    WAITING,
    WFP3,
    Given,
    Rows,
    Standing,
    State,
    devices_of,
    enter_row,
    following,
    insert,
    int64,
    length,
    merge_sort,
    put,
    remove,
    smallest,
)


@lean_kernel
def formula_key(
    order: int, length: float, size: float, submitted: float, wait: float, weight: float
) -> float:
    """Key of a waiting job; the smallest is first. Times are in seconds.

    r is the ``length`` that the job is expected to take, n its ``size`` in devices of the dominant
    type, s the time from the first submission of all to its own, under a second counted as one.
    ``saf`` is smallest area first, r·n. F1 to F4 are of Carastan-Santos and de Camargo (SC 2017),
    UNICEP is −wait / (log₂(n)·r) as in Zhang et al. (RLScheduler, SC 2020), WFP3 is
    −(wait / r)³·n of Tang et al. (2009). AGED is r − weight·wait.
    """
    r, s = max(length, 1.0), max(submitted, 1.0)
    if order == SJF:
        return length
    if order == WFP3:
        stretch = wait / r
        return -(stretch * stretch * stretch) * size
    if order == SAF:
        return length * size
    if order == F1:
        return math.log10(r) * size + 870.0 * math.log10(s)
    if order == F2:
        return math.sqrt(r) * size + 25_600.0 * math.log10(s)
    if order == F3:
        return r * size + 6_860_000.0 * math.log10(s)
    if order == F4:
        return r * math.sqrt(size) + 530_000.0 * math.log10(s)
    if order == UNICEP:
        return -wait / (max(math.log2(max(size, 1.0)), 1e-9) * r)
    return length - weight * wait


# ---------------------------------------------------------------------------- multifactor priority

HIGHEST = 2.0**32 - 1.0
TIER = 2.0**33
"""Priorities are whole numbers of 32 bits, at least 1, as in Slurm."""


def copy_of(s: Standing) -> Standing:
    """A deep copy of the mutable arrays."""
    own = "eligible", "clock", "use", "rate", "since", "total", "level", "factor", "order"
    return s._replace(**{name: getattr(s, name).copy() for name in own})


@lean_kernel
def decayed(use: float, rate: float, seconds: float, decay: float) -> float:
    """Use after so many seconds at a rate of use, while e^(−decay) of it is left each second."""
    if decay == 0.0:
        return use + rate * seconds
    kept = math.exp(-decay * seconds)
    return use * kept + rate * (1.0 - kept) / decay


@lean_kernel
def use_at(s: Standing, a: int, now: float) -> float:
    """Use of a leaf: it halves every half-life."""
    gone = now - s.since[a]
    if gone <= 0.0 or (s.use[a] == 0.0 and s.rate[a] == 0.0):
        return float(s.use[a])
    return float(decayed(s.use[a], s.rate[a], gone, s.decay))


@lean_kernel
def hold(s: Standing, j: int, sign: float, now: float) -> None:
    """Job j holds its devices from now on (sign 1), or no longer (−1)."""
    a = s.leaf[j]
    s.use[a] = use_at(s, a, now)
    s.since[a] = now
    s.rate[a] += sign * s.bill[j]


@lean_kernel
def tick(s: Standing, now: float) -> bool:
    """Compute fair shares as of the last multiple of the period; False where that is done."""
    due = math.floor(now / s.period) * s.period
    if due <= s.clock[0]:
        return False
    s.clock[0] = due
    if s.fair_share == 0.0:
        return True
    for a in range(s.total.size):
        s.total[a] = 0.0
    for i in range(s.order.size):
        s.total[s.order[i]] = use_at(s, s.order[i], due)
    for a in range(s.total.size - 1, 0, -1):
        s.total[s.parent[a]] += s.total[a]
    if s.classic:
        effective_use(s)
    else:
        fair_tree(s)
    return True


@lean_kernel
def effective_use(s: Standing) -> None:
    """Classic fair share: 2^(−use / shares / damping).

    Use is of all use. An account's weighs on those below it: they count with what they have not
    used of it, by their shares. Shares are of the whole.
    """
    s.factor[0] = 1.0  # shares of the whole, until leaves get theirs
    for a in range(1, s.total.size):
        p = s.parent[a]
        whole = s.factor[p] * s.share[a]
        s.factor[a] = whole
        norm = s.total[a] / s.total[0] if s.total[0] > 0.0 else 0.0
        s.level[a] = norm if p == 0 else norm + (s.level[p] - norm) * s.share[a]
    for i in range(s.order.size):
        a = s.order[i]
        if s.factor[a] > 0.0:
            s.factor[a] = 2.0 ** (-s.level[a] / s.factor[a] / s.damping)


@lean_kernel
def fair_tree(s: Standing) -> None:
    """Fair tree: leaves in the order of share / use among siblings, level by level.

    Siblings that are level are one, so that those below them compare with one another; the rank is
    the same where all levels are, and of a user who is level with an account and its first.
    """
    for a in range(1, s.total.size):
        of = s.total[s.parent[a]]
        part = s.total[a] / of if of > 0.0 else 0.0
        s.level[a] = 0.0
        if s.share[a] > 0.0:
            s.level[a] = s.share[a] / part if part > 0.0 else math.inf
    L = s.order.size
    for i in range(1, L):
        a = s.order[i]
        m = i
        while m > 0 and compare(s, s.order[m - 1], a) > 0:
            s.order[m] = s.order[m - 1]
            m -= 1
        s.order[m] = a
    rank = L
    for i in range(L):
        if i == 0 or abs(compare(s, s.order[i - 1], s.order[i])) == 2:
            rank = L - i
        s.factor[s.order[i]] = rank / L


@lean_kernel
def compare(s: Standing, a: int, b: int) -> int:
    """Which of two leaves comes first: −2 a, 2 b, 0 neither; −1 and 1 where one is nearer the root.

    The latter are level as far as both go.
    """
    for d in range(s.path.shape[1]):
        p, q = s.path[a, d], s.path[b, d]
        if p < 0 or q < 0:
            return int(p >= 0) - int(q >= 0)
        if s.level[p] != s.level[q]:
            return -2 if s.level[p] > s.level[q] else 2
    return 0


@lean_kernel
def priority_key(s: Standing, j: int) -> float:
    """Key of a job that waits; the smallest is first: the tier, then the priority."""
    age = min(max(s.clock[0] - s.eligible[j], 0.0) / s.max_age, 1.0)
    priority = s.age * age + s.fair_share * s.factor[s.leaf[j]] + s.score[j]
    return float(-(s.tier[j] * TIER + min(max(math.floor(priority), 1.0), HIGHEST)))


# ------------------------------------------------------------------------------------------- caps


@inlined_kernel
def line_stays(g: Given) -> bool:
    """The order is multifactor and `x.sequence` keeps it: keys change at ticks alone."""
    return bool(g.rules.queue == MULTIFACTOR and not g.rules.shortest)


@inlined_kernel
def full_claim(g: Given, x: State, c: int) -> int:
    """The first counter of which jobs of claim c would take too much, −1 for none."""
    for i in range(g.caps.starts[c], g.caps.starts[c + 1]):
        if x.used[g.caps.counter[i]] + g.caps.amount[i] > g.caps.most[i]:
            return int(g.caps.counter[i])
    return -1


@inlined_kernel
def capped(g: Given, x: State, j: int) -> bool:
    """Job j would be more than one of its caps allows at once."""
    return bool(g.caps.most.size > 0 and full_claim(g, x, int64(g.jobs[j].claim)) >= 0)


@inner_kernel
def meld(rows: Rows, a: int, b: int) -> int:
    """Skew heaps with the tops a and b, −1 for none, become one (Sleator and Tarjan, 1986)."""
    top = before = int64(-1)
    while a >= 0 and b >= 0:
        if (rows[b].key, b) < (rows[a].key, a):
            a, b = b, a
        if before < 0:
            top = a
        else:
            rows[before].left = a
        before, a = a, int64(rows[a].right)
        rows[before].right = rows[before].left
    if before < 0:
        return int(max(a, b))
    rows[before].left = max(a, b)
    return int(top)


@inlined_kernel
def shut(x: State, c: int, counter: int) -> None:
    """List claim c with a counter of which its jobs would take too much."""
    watched = x.watched[counter]
    if watched.line != x.at.line:
        watched.line, watched.first = x.at.line, -1
    x.claims[c].next, x.claims[c].shut = watched.first, 1
    watched.first = c


@inner_kernel
def put_aside(g: Given, x: State, j: int) -> None:
    """Job j, which a cap holds, leaves the line."""
    job = g.jobs[j]
    c, at = int64(job.claim), x.at
    claim = x.claims[c]
    if claim.line != at.line:
        claim.line, claim.top, claim.shut = at.line, -1, 0
    x.jobs[j].place = ASIDE
    x.behind[j].left = x.behind[j].right = -1
    if line_stays(g):
        x.behind[j].key = priority_key(x.standing, j)
    else:
        x.behind[j].key = job.rank
        remove(x.words, x.summary, job.rank)
    claim.top = meld(x.behind, int64(claim.top), j)
    at.aside += 1
    if claim.shut == 0:
        shut(x, c, full_claim(g, x, c))


@inner_kernel
def bring_back(g: Given, x: State, c: int) -> None:
    """The first of claim c that are aside stands in line again; all, where keys do not stay."""
    stays, at, claim = line_stays(g), x.at, x.claims[c]
    while claim.top >= 0:
        j = int64(claim.top)
        claim.top = meld(x.behind, int64(x.behind[j].left), int64(x.behind[j].right))
        at.aside -= 1
        if x.jobs[j].phase != WAITING:  # withdrawn
            continue
        if not stays:
            insert(x.words, x.summary, at, g.jobs[j].rank)
        elif x.jobs[j].place == DROPPED and at.anew == 0:
            enter_row(x.sequence, int64(0), at.lined, x.behind[j].key, j)
            at.lined += 1
        x.jobs[j].place = IN_LINE
        if stays or not g.rules.keyed:
            return


@inlined_kernel
def follow(g: Given, x: State, c: int) -> None:
    """A job of claim c was looked at, or has left the line: next is the first that is aside."""
    claim = x.claims[c]
    if claim.line == x.at.line and claim.top >= 0 and claim.shut == 0:
        counter = full_claim(g, x, c)
        if counter >= 0:
            shut(x, c, counter)
        else:
            bring_back(g, x, c)


@inner_kernel
def wake(g: Given, x: State, j: int) -> None:
    """Job j gave back its part of its caps: claims that these shut may be open now."""
    own = g.jobs[j].claim
    for i in range(g.caps.starts[own], g.caps.starts[own + 1]):
        watched = x.watched[g.caps.counter[i]]
        if watched.line != x.at.line:
            continue
        c = int64(watched.first)
        watched.first = -1
        while c >= 0:
            following = int64(x.claims[c].next)
            x.claims[c].shut = 0
            follow(g, x, c)
            c = following


# --------------------------------------------------------------------------------------- the line


@inner_kernel
def charge(users: Rows, half_life: float, now: float, u: int) -> None:
    """Bring the use of user u up to now: it halves every half-life."""
    gone = now - users[u].at
    if gone > 0.0:
        users[u].use = decayed(users[u].use, users[u].rate, gone, math.log(2.0) / half_life)
    users[u].at = now


@inner_kernel
def keys(g: Given, x: State) -> int:
    """Those waiting in `x.sequence`, in the order of the queue; their number."""
    now = x.at.now
    count = 0
    if g.rules.queue == FAIR_SHARE:
        for u in range(x.users.size):
            charge(x.users, g.rules.half_life, now, u)
    rank = smallest(x.words, x.summary, x.at)
    while rank >= 0:
        j = g.by_rank[rank]
        x.sequence[count].item = j
        if g.rules.queue == FAIR_SHARE:
            x.sequence[count].time = x.users[g.jobs[j].user].use
        elif g.rules.queue == MULTIFACTOR:
            x.sequence[count].time = priority_key(x.standing, j)
        elif g.rules.keyed:
            submitted = g.jobs[j].submit
            x.sequence[count].time = formula_key(
                g.rules.queue,
                length(g, x, j),
                devices_of(g, j) / 1000.0,
                submitted - x.at.origin,
                now - submitted,
                g.rules.weight,
            )
        count += 1
        rank = following(x.words, x.summary, x.at, rank + 1)
    if g.rules.keyed:
        merge_sort(x.sequence, x.spare_rows, 0, count)
    return count


@inner_kernel
def stand_in_line(g: Given, x: State, fresh: int) -> None:
    """Multifactor: let `x.sequence` hold all in line by their keys, and those that joined too.

    Some that have left the line are still in it. Where keys have changed, nobody is aside any more.
    """
    at, s = x.at, x.standing
    ticked = at.ordered != s.clock[0]
    if at.anew or fresh > x.fresh.size or (ticked and at.aside > 0):
        at.lined = keys(g, x)
        at.line += 1
        at.aside = 0
        for i in range(at.lined):
            x.jobs[x.sequence[i].item].place = IN_LINE
    else:
        if ticked or at.lined > 2 * (at.waiting - at.aside) + 64:
            count = 0
            for i in range(at.lined):
                j = x.sequence[i].item
                if x.jobs[j].phase != WAITING:
                    continue
                if x.jobs[j].place == IN_LINE:
                    put(x.sequence, count, priority_key(s, j), j)
                    count += 1
                else:
                    x.jobs[j].place = DROPPED
            merge_sort(x.sequence, x.spare_rows, 0, count)
            at.lined = count
        for i in range(fresh):
            j = g.by_rank[x.fresh[i]]
            if x.jobs[j].phase == WAITING:
                enter_row(x.sequence, int64(0), at.lined, priority_key(s, j), j)
                at.lined += 1
    at.ordered = s.clock[0]
    at.anew = 0


@inlined_kernel
def before(g: Given, x: State, i: int, j: int) -> bool:
    """Job i comes before job j, in an order that stays or is multifactor."""
    if g.rules.queue != MULTIFACTOR:
        return bool(g.jobs[i].rank < g.jobs[j].rank)
    one, two = priority_key(x.standing, i), priority_key(x.standing, j)
    return bool(one < two or (one == two and i < j))


@inner_kernel
def behind(g: Given, x: State, j: int) -> int:
    """The place behind job j in a line that stays."""
    i = 0
    while x.sequence[i].item != j:
        i += 1
    return i + 1


@inlined_kernel
def nobody_waits(x: State) -> None:
    """Skip the round, and forget what was kept of the last one."""
    x.at.fresh = x.at.lined = 0
    x.at.first = -1
    x.at.again = 0


@inlined_kernel
def shortest_first(g: Given, x: State, low: int, high: int) -> None:
    """Put `x.sequence[low:high]` in the order of expected lengths, ties by submission."""
    for i in range(low, high):
        x.sequence[i].time = length(g, x, x.sequence[i].item)
    merge_sort(x.sequence, x.spare_rows, low, high)
