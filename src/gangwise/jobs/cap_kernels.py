"""Jobs that wait for a cap: out of the line until something that counts in the cap ends.

A job at its cap is passed over. What is in use of a cap grows while jobs start, and shrinks only
where a job leaves its nodes (:func:`wake`). Until then those that it holds need not be looked at:
they are put aside, by claim, for those of a claim take the same of the same counters and are
capped together. Of each claim that has some aside, at any time between two looks of a round,

- it is shut: listed with a counter of which its jobs would take too much; or
- one of its jobs in line comes before all that are aside, and once that was looked at, or has left
  the line, :func:`follow` brings back the next of them, or shuts the claim.

So in a round everyone in the order of the queue is looked at but those who are capped as their turn
comes: the same are tried, on the same devices, against the same promises. Those aside count in
`Counters.waiting`. Where keys change in every round, all of a claim are brought back at once.
"""

from __future__ import annotations

from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs.kernels import (
    ASIDE,
    DROPPED,
    IN_LINE,
    MULTIFACTOR,
    WAITING,
    Given,
    Rows,
    State,
    enter_row,
    insert,
    int64,
    remove,
)
from gangwise.jobs.priority_kernels import Standing
from gangwise.jobs.priority_kernels import key as priority_key


@inlined_kernel
def line_stays(g: Given, s: Standing | None) -> bool:
    """The order is multifactor and `x.sequence` keeps it: keys change at ticks alone."""
    if s is None:
        return False
    return bool(g.rules.queue == MULTIFACTOR and not g.rules.shortest)


@inlined_kernel
def key_of(s: Standing | None, j: int) -> float:
    """Multifactor: the key of job j."""
    if s is None:
        return 0.0
    return float(priority_key(s, j))


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
def put_aside(g: Given, x: State, s: Standing | None, j: int) -> None:
    """Job j, which a cap holds, leaves the line."""
    c, at = int64(g.jobs[j].claim), x.at
    claim = x.claims[c]
    if claim.line != at.line:
        claim.line, claim.top, claim.shut = at.line, -1, 0
    x.jobs[j].place = ASIDE
    x.behind[j].left = x.behind[j].right = -1
    if line_stays(g, s):
        x.behind[j].key = key_of(s, j)
    else:
        x.behind[j].key = g.jobs[j].rank
        remove(x.words, x.summary, g.jobs[j].rank)
    claim.top = meld(x.behind, int64(claim.top), j)
    at.aside += 1
    if claim.shut == 0:
        shut(x, c, full_claim(g, x, c))


@inner_kernel
def bring_back(g: Given, x: State, s: Standing | None, c: int) -> None:
    """The first of claim c that are aside stands in line again; all, where keys do not stay."""
    stays, at, claim = line_stays(g, s), x.at, x.claims[c]
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
def follow(g: Given, x: State, s: Standing | None, c: int) -> None:
    """A job of claim c was looked at, or has left the line: next is the first that is aside."""
    claim = x.claims[c]
    if claim.line == x.at.line and claim.top >= 0 and claim.shut == 0:
        counter = full_claim(g, x, c)
        if counter >= 0:
            shut(x, c, counter)
        else:
            bring_back(g, x, s, c)


@inner_kernel
def wake(g: Given, x: State, s: Standing | None, j: int) -> None:
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
            follow(g, x, s, c)
            c = following
