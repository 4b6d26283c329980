"""Compiled parts of the queue: keys by formula, multifactor priority, caps, and who is in line.

Compiled schedulers and those that decide in Python call the same functions.

*Multifactor priority* is a named tuple of arrays, :class:`~gangwise.jobs.kernels.FairShareState`,
that is changed in place: the account tree with its decaying use. Its nodes are numbered from the
root, 0, so that each comes behind its parent; *leaves* are users within accounts.

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

from gangwise.core.arrays import Floats
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs import kernels
from gangwise.jobs.kernels import Ageing, FairShareState, Inputs, Rows, State, int64


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
    if order == kernels.SJF:
        return length
    if order == kernels.WFP3:
        stretch = wait / r
        return -(stretch * stretch * stretch) * size
    if order == kernels.SAF:
        return length * size
    if order == kernels.F1:
        return math.log10(r) * size + 870.0 * math.log10(s)
    if order == kernels.F2:
        return math.sqrt(r) * size + 25_600.0 * math.log10(s)
    if order == kernels.F3:
        return r * size + 6_860_000.0 * math.log10(s)
    if order == kernels.F4:
        return r * math.sqrt(size) + 530_000.0 * math.log10(s)
    if order == kernels.UNICEP:
        # log₂ of one device is 0: a little more, so that its key is a large negative number.
        return -wait / (max(math.log2(max(size, 1.0)), 1e-9) * r)
    return length - weight * wait


# ---------------------------------------------------------------------------- multifactor priority

HIGHEST = 2.0**32 - 1.0
TIER = 2.0**33
"""Priorities are whole numbers of 32 bits, at least 1, as in Slurm."""


def copy_of(shares: FairShareState) -> FairShareState:
    """A deep copy of the mutable arrays."""
    own = "least", "eligible", "clock", "use", "rate", "since", "total", "level", "factor", "order"
    shares = shares._replace(**{name: getattr(shares, name).copy() for name in own})
    if (limits := shares.ageing) is not None:
        changing = {name: getattr(limits, name).copy() for name in ("used", "line", "size")}
        shares = shares._replace(ageing=limits._replace(**changing))
    return shares


@lean_kernel
def decayed(use: float, rate: float, seconds: float, decay: float) -> float:
    """Use after so many seconds at a rate of use, while e^(−decay) of it is left each second."""
    if decay == 0.0:
        return use + rate * seconds
    # The solution of u' = rate − decay·u from u(0) = use.
    share_kept = math.exp(-decay * seconds)
    return use * share_kept + rate * (1.0 - share_kept) / decay


@lean_kernel
def use_at(shares: FairShareState, a: int, now: float) -> float:
    """Use of a leaf: it halves every half-life."""
    elapsed = now - shares.since[a]
    # A leaf without use needs no exponential: most leaves of a large tree have none.
    if elapsed <= 0.0 or (shares.use[a] == 0.0 and shares.rate[a] == 0.0):
        return float(shares.use[a])
    return float(decayed(shares.use[a], shares.rate[a], elapsed, shares.decay))


@lean_kernel
def hold(shares: FairShareState, j: int, sign: float, now: float) -> None:
    """Job j holds its devices from now on (sign 1), or no longer (−1)."""
    a = shares.leaf[j]
    # Use up to now at the old rate, then the new one.
    shares.use[a] = use_at(shares, a, now)
    shares.since[a] = now
    shares.rate[a] += sign * shares.bill[j]


@lean_kernel
def tick(shares: FairShareState, now: float) -> bool:
    """Compute fair shares as of the last multiple of the period; False where that is done."""
    # Slurm computes priorities every period (PriorityCalcPeriod), not at each event.
    due = math.floor(now / shares.period) * shares.period
    if due <= shares.clock[0]:
        return False
    if any_between(shares.resets, shares.clock[0], due):
        for a in range(shares.use.size):
            shares.use[a], shares.since[a] = 0.0, due
    shares.clock[0] = due
    # Use weighs nothing, but ages grow with the clock all the same.
    if shares.fair_share == 0.0:
        return True
    for a in range(shares.total.size):
        shares.total[a] = 0.0
    for i in range(shares.order.size):
        shares.total[shares.order[i]] = use_at(shares, shares.order[i], due)
    # Children stand behind their parents, so one walk from the back adds up the tree.
    for a in range(shares.total.size - 1, 0, -1):
        shares.total[shares.parent[a]] += shares.total[a]
    if shares.classic:
        effective_use(shares)
    else:
        fair_tree(shares)
    return True


@lean_kernel
def any_between(times: Floats, after: float, until: float) -> bool:
    """Whether one of the times is behind the first, and not behind the second."""
    for time in times:  # noqa: SIM110 - generators do not compile
        if after < time <= until:
            return True
    return False


@lean_kernel
def effective_use(shares: FairShareState) -> None:
    """Classic fair share: 2^(−use / shares / damping).

    Use is of all use. An account's weighs on those below it: they count with what they have not
    used of it, by their shares. Shares are of the whole.
    """
    shares.factor[0] = 1.0  # shares of the whole, until leaves get theirs
    # Parents have smaller numbers, so theirs are ready.
    for a in range(1, shares.total.size):
        p = shares.parent[a]
        share = shares.factor[p] * shares.share[a]
        shares.factor[a] = share
        # Share of all use so far; without any, nobody is charged.
        norm = shares.total[a] / shares.total[0] if shares.total[0] > 0.0 else 0.0
        # U_eff = U + (U_eff of the parent − U) · share among siblings.
        shares.level[a] = norm if p == 0 else norm + (shares.level[p] - norm) * shares.share[a]
    for i in range(shares.order.size):
        a = shares.order[i]
        if shares.factor[a] > 0.0:
            shares.factor[a] = 2.0 ** (-shares.level[a] / shares.factor[a] / shares.damping)


@lean_kernel
def fair_tree(shares: FairShareState) -> None:
    """Fair tree: leaves in the order of share / use among siblings, level by level.

    Siblings that are level are one, so that those below them compare with one another; the rank is
    the same where all levels are, and of a user who is level with an account and its first.
    """
    for a in range(1, shares.total.size):
        of_parent = shares.total[shares.parent[a]]
        # Its part of what all siblings have used together.
        part = shares.total[a] / of_parent if of_parent > 0.0 else 0.0
        shares.level[a] = 0.0
        if shares.share[a] > 0.0:
            # inf for who has used nothing: before all who have.
            shares.level[a] = shares.share[a] / part if part > 0.0 else math.inf
    L = shares.order.size
    # Insertion: from tick to tick few leaves change places.
    for i in range(1, L):
        a = shares.order[i]
        m = i
        while m > 0 and compare(shares, shares.order[m - 1], a) > 0:
            shares.order[m] = shares.order[m - 1]
            m -= 1
        shares.order[m] = a
    # Slurm's rank ÷ number of users; those that are level share the first one's rank.
    rank = L
    for i in range(L):
        if i == 0 or abs(compare(shares, shares.order[i - 1], shares.order[i])) == 2:
            rank = L - i
        shares.factor[shares.order[i]] = rank / L


@lean_kernel
def compare(shares: FairShareState, a: int, b: int) -> int:
    """Which of two leaves comes first: −2 a, 2 b, 0 neither; −1 and 1 where one is nearer the root.

    The latter are level as far as both go.
    """
    for d in range(shares.path.shape[1]):
        p, q = shares.path[a, d], shares.path[b, d]
        # One of the two paths is at its end.
        if p < 0 or q < 0:
            return int(p >= 0) - int(q >= 0)
        if shares.level[p] != shares.level[q]:
            return -2 if shares.level[p] > shares.level[q] else 2
    return 0


@lean_kernel
def priority_key(shares: FairShareState, j: int) -> float:
    """Key of a job that waits; the smallest is first: the tier, then the priority."""
    # Ages saturate at max_age (PriorityMaxAge), so that age alone cannot win for ever.
    age = min(max(shares.clock[0] - shares.eligible[j], 0.0) / shares.max_age, 1.0)
    # Σ weight · factor; what does not change while the job waits is in `score`.
    priority = (
        shares.age * age + shares.fair_share * shares.factor[shares.leaf[j]] + shares.score[j]
    )
    if shares.least.size > 0:
        priority = shares.least[j] = max(priority, shares.least[j])
    # Two tiers are further apart than any two priorities; negative, as the smallest key is first.
    return float(-(shares.tier[j] * TIER + min(max(math.floor(priority), 1.0), HIGHEST)))


@lean_kernel
def join_ageing(shares: FairShareState, j: int, now: float) -> None:
    """Job j waits and is eligible: it ages from now on, or once its limits let it."""
    if shares.ageing is None:
        shares.eligible[j] = now
        return
    g, i = shares.ageing, int64(shares.ageing.size[0])
    # Jobs stand in the order of submission; one that waits again may have to go in between.
    while i > 0 and g.line[i - 1] > j:
        g.line[i] = g.line[i - 1]
        i -= 1
    g.line[i] = j
    g.size[0] += 1
    # Not eligible until its limits let it: an age of 0.
    shares.eligible[j] = math.inf
    let_age(shares, now)


@lean_kernel
def leave_ageing(shares: FairShareState, j: int, now: float) -> None:
    """Job j waits no longer: another may age in its place."""
    if shares.ageing is None:
        return
    g, size = shares.ageing, int64(0)
    # It aged, so its part of the limits is free again.
    if shares.eligible[j] < math.inf:
        count_ageing(g, j, kernels.FREE_CAP)
    for i in range(g.size[0]):
        if g.line[i] != j:
            g.line[size] = g.line[i]
            size += 1
    g.size[0] = size
    let_age(shares, now)


@lean_kernel
def let_age(shares: FairShareState, now: float) -> None:
    """Let jobs age from now on whose limits allow it, the first submitted first."""
    g, size = shares.ageing, int64(0)
    for i in range(g.size[0]):
        j = int64(g.line[i])
        able = True
        for m in range(g.caps.starts[g.claim[j]], g.caps.starts[g.claim[j] + 1]):
            able = able and g.used[g.caps.counter[m]] + g.caps.amount[m] <= g.caps.most[m]
        if able:
            shares.eligible[j] = now
            count_ageing(g, j, kernels.USE_CAP)
        else:
            g.line[size] = j
            size += 1
    g.size[0] = size


@lean_kernel
def count_ageing(limits: Ageing, j: int, sign: int) -> None:
    """Job j takes its part of the limits (sign 1), or gives it back (−1)."""
    for m in range(limits.caps.starts[limits.claim[j]], limits.caps.starts[limits.claim[j] + 1]):
        limits.used[limits.caps.counter[m]] += sign * limits.caps.amount[m]


# ------------------------------------------------------------------------------------------- caps


@inlined_kernel
def line_stays(inputs: Inputs) -> bool:
    """Whether the order is multifactor, kept in `State.sequence`: keys change at ticks alone."""
    return bool(inputs.rules.queue == kernels.MULTIFACTOR and not inputs.rules.shortest)


@inlined_kernel
def full_claim(inputs: Inputs, state: State, c: int) -> int:
    """The first counter of which jobs of claim c would take too much, −1 for none."""
    for i in range(inputs.caps.starts[c], inputs.caps.starts[c + 1]):
        # The job's own amount counts: it must fit under what is left.
        if state.used[inputs.caps.counter[i]] + inputs.caps.amount[i] > inputs.caps.most[i]:
            return int(inputs.caps.counter[i])
    return -1


@inlined_kernel
def capped(inputs: Inputs, state: State, j: int) -> bool:
    """Whether job j would be more than one of its caps allows at once."""
    if inputs.caps is None or inputs.caps.most.size == 0:
        return False
    return bool(full_claim(inputs, state, int64(inputs.jobs[j].claim)) >= 0)


@inner_kernel
def meld(rows: Rows, a: int, b: int) -> int:
    """Skew heaps with the tops a and b, −1 for none, become one (Sleator and Tarjan, 1986)."""
    top = parent = int64(-1)
    # Down the right spines, by key; each node passed has its children exchanged, which keeps spines
    # short on average.
    while a >= 0 and b >= 0:
        if (rows[b].key, b) < (rows[a].key, a):
            a, b = b, a
        if parent < 0:
            top = a
        else:
            rows[parent].left = a
        parent, a = a, int64(rows[a].right)
        rows[parent].right = rows[parent].left
    if parent < 0:
        return int(max(a, b))
    rows[parent].left = max(a, b)
    return int(top)


@inlined_kernel
def shut(state: State, c: int, counter: int) -> None:
    """List claim c with a counter of which its jobs would take too much."""
    watched = state.watched[counter]
    # The list of an older line is void: instead of being cleared it is begun anew.
    if watched.line != state.at.line:
        watched.line, watched.first = state.at.line, -1
    state.claims[c].next, state.claims[c].shut = watched.first, 1
    watched.first = c


@inner_kernel
def put_aside(inputs: Inputs, state: State, j: int) -> None:
    """Job j, which a cap holds, leaves the line."""
    job = inputs.jobs[j]
    c, at = int64(job.claim), state.at
    claim = state.claims[c]
    # Lines are numbered: an older number says that the claim's list is void, without clearing it.
    if claim.line != at.line:
        claim.line, claim.top, claim.shut = at.line, -1, 0
    state.jobs[j].place = kernels.ASIDE
    state.behind[j].left = state.behind[j].right = -1
    # By what the job comes back into the line: its key, or its rank.
    if line_stays(inputs):
        state.behind[j].key = priority_key(state.standing, j)
    else:
        state.behind[j].key = job.rank
        kernels.remove(state.words, state.summary, job.rank)
    claim.top = meld(state.behind, int64(claim.top), j)
    at.aside += 1
    if claim.shut == 0:
        shut(state, c, full_claim(inputs, state, c))


@inner_kernel
def bring_back(inputs: Inputs, state: State, c: int) -> None:
    """The first of claim c that are aside stands in line again; all, where keys do not stay."""
    stays, at, claim = line_stays(inputs), state.at, state.claims[c]
    while claim.top >= 0:
        j = int64(claim.top)
        claim.top = meld(state.behind, int64(state.behind[j].left), int64(state.behind[j].right))
        at.aside -= 1
        # Withdrawn jobs are dropped when they come up: a skew heap cannot remove from within.
        if state.jobs[j].phase != kernels.WAITING:  # withdrawn
            continue
        # Ranks go back into the set; keys into the sorted rows, unless the row is still there.
        if not stays:
            kernels.insert(state.words, state.summary, at, inputs.jobs[j].rank)
        elif state.jobs[j].place == kernels.DROPPED and at.anew == 0:
            kernels.enter_row(state.sequence, int64(0), at.lined, state.behind[j].key, j)
            at.lined += 1
        state.jobs[j].place = kernels.IN_LINE
        # One job is enough where the order stays: the next follows when it has been looked at.
        if stays or not inputs.rules.keyed:
            return


@inner_kernel
def follow(inputs: Inputs, state: State, c: int) -> None:
    """A job of claim c was looked at, or has left the line: next is the first that is aside."""
    claim = state.claims[c]
    if claim.line == state.at.line and claim.top >= 0 and claim.shut == 0:
        counter = full_claim(inputs, state, c)
        if counter >= 0:
            shut(state, c, counter)
        else:
            bring_back(inputs, state, c)


@inner_kernel
def wake(inputs: Inputs, state: State, j: int) -> None:
    """Job j gave back its part of its caps: claims that these shut may be open now."""
    own = inputs.jobs[j].claim
    for i in range(inputs.caps.starts[own], inputs.caps.starts[own + 1]):
        watched = state.watched[inputs.caps.counter[i]]
        if watched.line != state.at.line:
            continue
        c = int64(watched.first)
        watched.first = -1
        # Each claim is taken off the list before it is looked at, and put back by `follow` if it is
        # still shut.
        while c >= 0:
            # Read first: `follow` may list the claim elsewhere.
            following = int64(state.claims[c].next)
            state.claims[c].shut = 0
            follow(inputs, state, c)
            c = following


# --------------------------------------------------------------------------------------- the line


@inner_kernel
def charge(users: Rows, half_life: float, now: float, u: int) -> None:
    """Bring the use of user u up to now: it halves every half-life."""
    elapsed = now - users[u].at
    if elapsed > 0.0:
        users[u].use = decayed(users[u].use, users[u].rate, elapsed, math.log(2.0) / half_life)
    users[u].at = now


@inner_kernel
def keys(inputs: Inputs, state: State) -> int:
    """Fill `state.sequence` with those waiting, in the order of the queue; gives their number."""
    now = state.at.now
    count = 0
    # Use decays all the time, so it is brought up to now once for all keys.
    if state.users is not None and inputs.rules.queue == kernels.FAIR_SHARE:
        for u in range(state.users.size):
            charge(state.users, inputs.rules.half_life, now, u)
    # Rows are sorted by key and job below, so equal keys go to the earlier row.
    rank = kernels.smallest(state.words, state.summary, state.at)
    while rank >= 0:
        j = inputs.by_rank[rank]
        state.sequence[count].item = j
        if state.users is not None and inputs.rules.queue == kernels.FAIR_SHARE:
            state.sequence[count].time = state.users[inputs.jobs[j].user].use
        elif state.standing is not None and inputs.rules.queue == kernels.MULTIFACTOR:
            state.sequence[count].time = priority_key(state.standing, j)
        elif inputs.rules.keyed:
            submitted = inputs.jobs[j].submit
            state.sequence[count].time = formula_key(
                inputs.rules.queue,
                kernels.length(inputs, state, j),
                kernels.devices_of(inputs, j) / 1000.0,
                submitted - state.at.origin,
                now - submitted,
                inputs.rules.weight,
            )
        count += 1
        rank = kernels.following(state.words, state.summary, state.at, rank + 1)
    if inputs.rules.keyed:
        kernels.merge_sort(state.sequence, state.spare_rows, 0, count)
    return count


@inner_kernel
def stand_in_line(inputs: Inputs, state: State, fresh: int) -> None:
    """Multifactor: let `state.sequence` hold all in line by their keys, and those that joined too.

    Some that have left the line are still in it. Where keys have changed, nobody is aside any more.
    """
    at, s = state.at, state.standing
    ticked = at.ordered != s.clock[0]
    # Who stands where is not known any more: the line is made from the set of those who wait.
    if at.anew or fresh > state.fresh.size or (ticked and at.aside > 0):
        at.lined = keys(inputs, state)
        at.line += 1
        at.aside = 0
        for i in range(at.lined):
            state.jobs[state.sequence[i].item].place = kernels.IN_LINE
    else:
        # Keys changed, or most rows are of jobs that have left: compress, then sort anew.
        if ticked or at.lined > 2 * (at.waiting - at.aside) + 64:
            count = 0
            for i in range(at.lined):
                j = state.sequence[i].item
                if state.jobs[j].phase != kernels.WAITING:
                    continue
                if state.jobs[j].place == kernels.IN_LINE:
                    kernels.put(state.sequence, count, priority_key(s, j), j)
                    count += 1
                else:
                    state.jobs[j].place = kernels.DROPPED
            kernels.merge_sort(state.sequence, state.spare_rows, 0, count)
            at.lined = count
        # Those who joined are inserted; between ticks nobody else moves.
        for i in range(fresh):
            j = inputs.by_rank[state.fresh[i]]
            if state.jobs[j].phase == kernels.WAITING:
                kernels.enter_row(state.sequence, int64(0), at.lined, priority_key(s, j), j)
                at.lined += 1
    # The clock of the keys in the line, against which the next call sees a tick.
    at.ordered = s.clock[0]
    at.anew = 0


@inlined_kernel
def before(inputs: Inputs, state: State, i: int, j: int) -> bool:
    """Whether job i comes before job j, in an order that stays or is multifactor."""
    if state.standing is None or inputs.rules.queue != kernels.MULTIFACTOR:
        return bool(inputs.jobs[i].rank < inputs.jobs[j].rank)
    key, other_key = priority_key(state.standing, i), priority_key(state.standing, j)
    return bool(key < other_key or (key == other_key and i < j))


@inner_kernel
def behind(inputs: Inputs, state: State, j: int) -> int:
    """The place behind job j in a line that stays."""
    # A linear search: it is asked once a start behind a promise.
    i = 0
    while state.sequence[i].item != j:
        i += 1
    return i + 1


@inlined_kernel
def nobody_waits(state: State) -> None:
    """Skip the round, and forget what was kept of the last one."""
    state.at.fresh = state.at.lined = 0
    state.at.first = -1
    state.at.again = 0


@inlined_kernel
def shortest_first(inputs: Inputs, state: State, low: int, high: int) -> None:
    """Put `state.sequence[low:high]` in the order of expected lengths, ties by submission."""
    for i in range(low, high):
        state.sequence[i].time = kernels.length(inputs, state, state.sequence[i].item)
    kernels.merge_sort(state.sequence, state.spare_rows, low, high)
