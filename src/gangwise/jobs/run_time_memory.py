"""How long a job will take, as a distribution: histograms shrunk towards one another.

The logarithm of a run time falls into one of ``BINS`` cells, and between two centres it counts for
both. Four histograms are kept or made, each of fewer jobs, which are more alike:

1. all jobs with about the same request, of which the newest count most;
2. the user's last ``LAST`` jobs;
3. those of them with the same name (the job type);
4. those with the same name, request and size.

What is believed of a job is a chain of Dirichlet posteriors. With h the weights of a histogram, n
their sum and q what the one before it says, p = (h + c q) / (n + c): where nothing is known p = q,
and h alone counts when there is much. In a histogram the k-th newest job weighs γᵏ, more if it has
just ended: jobs of a session are alike. Constants were chosen by the continuous ranked probability
score of ln seconds on LLNL-Atlas, NASA-iPSC and an XDMoD log (``benchmarks/run_times.py``).

The distribution is recalibrated (Kuleshov, Fenner and Ermon 2018): of jobs that have ended it is
counted in which of ``CELLS`` cells of equal probability each run time lay (its PIT), and a cell
then has the probability with which run times lay in it, apart for users of whom little was known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import inner_kernel, shared_kernel

BINS, WIDTH = 64, 0.25  # centres are 0, 1/4, …, 63/4 in ln seconds: one second to 80 days
REQUESTS = 48  # classes of requests: none, then half octaves
LAST = 64
FORGET = 0.937  # what a job weighs less, among all, for each one that ended after it
# c of the histogram of all jobs, of those with such a request, and of histograms 2 to 4
UNIFORM, ALL, USER, NAME, SAME = 2.0, 0.57, 1.4, 0.53, 7.9
OF_USER, OF_NAME, OF_SAME = 0.636, 0.683, 0.994  # γ of histograms 2 to 4
BLUR = 0.52  # share of a job's weight that its cell gives to the two beside it
# Weight of a job that ended long ago, where one that just ended has 1; seconds between.
OLD, SESSION = 0.314, 150.0
CELLS = 20  # of equal probability, in which run times are counted
# Jobs with which counting begins, evenly spread; what a job weighs less for each later one.
EVEN, FADE = 20.0, 0.998
TO_THE_END = 0.97  # share of the request from which on a job counts as one that ran to its end


class Memory(NamedTuple):
    """What is kept of jobs that have ended, for U users, and work space."""

    first: Ints  # [U + 1] user u's jobs stand at first[u] to first[u + 1], in turn
    ended: Ints  # [U] how many have ended
    length: Floats  # [M] ln seconds, inf where it ran to its request
    request: Floats  # [M] seconds, inf where none was asked for
    size: Floats  # [M]
    name: Ints  # [M]
    when: Floats  # [M] when it ended
    all: Floats  # [REQUESTS, BINS] weights; [0] of all jobs
    weights: Floats  # [3, BINS] work space
    mass: Floats  # [BINS] of the distribution that was asked for last
    places: Floats  # [3, CELLS] jobs by cell; of users with none, up to four, more that had ended


def memory_of(jobs_of_users: Ints) -> Memory:
    """A memory in which nothing has ended, for users with so many jobs to come [U]."""
    first = np.concatenate([[0], np.cumsum(np.minimum(jobs_of_users, LAST))])
    M = int(first[-1])
    kept = np.zeros(M), np.zeros(M), np.zeros(M), np.zeros(M, np.int64), np.zeros(M)
    space = np.zeros((REQUESTS, BINS)), np.zeros((3, BINS)), np.zeros(BINS)
    places = np.full((3, CELLS), EVEN / CELLS)
    return Memory(first, np.zeros(len(jobs_of_users), np.int64), *kept, *space, places)


def grown_memory(m: Memory, users: int) -> Memory:
    """The same memory with room for at least so many users; new ones may have many jobs."""
    more = max(users - m.ended.size, 0)
    first = np.concatenate([m.first, m.first[-1] + LAST * np.arange(1, more + 1)])
    new = {"first": first, "ended": np.concatenate([m.ended, np.zeros(more, np.int64)])}
    for name in ("length", "request", "size", "name", "when"):
        old = getattr(m, name)
        new[name] = np.concatenate([old, np.zeros(LAST * more, old.dtype)])
    return m._replace(**new)


@inner_kernel
def class_of(request: float) -> int:
    """Class of a request in ``Memory.all``: its half octave of seconds, 0 where none was asked."""
    if request == math.inf:
        return 0
    return min(REQUESTS - 1, max(1, int(2.0 * math.log2(max(request, 1.0)))))


@inner_kernel
def add(weights: Floats, length: float, weight: float) -> None:
    """Add a job of so many ln seconds to the two cells about it."""
    at = min(max(length / WIDTH, 0.0), BINS - 1.001)
    b = int(at)
    weights[b] += weight * (b + 1.0 - at)
    weights[b + 1] += weight * (at - b)


@inner_kernel
def remember(
    m: Memory, user: int, name: int, request: float, size: float, seconds: float, now: float
) -> None:
    """Take a job that has ended into the histograms of all, and into its user's last."""
    length = math.log(max(seconds, 1.0))
    c = class_of(request)
    for b in range(BINS):
        m.all[0, b] *= FORGET
    add(m.all[0], length, 1.0)
    if c > 0:
        for b in range(BINS):
            m.all[c, b] *= FORGET
        add(m.all[c], length, 1.0)
    i = m.first[user] + m.ended[user] % (m.first[user + 1] - m.first[user])
    m.length[i] = math.inf if seconds >= TO_THE_END * request else length
    m.request[i], m.size[i], m.name[i], m.when[i] = request, size, name, now
    m.ended[user] += 1


@inner_kernel
def shrink(mass: Floats, weights: Floats, c: float, blur: float) -> None:
    """Put (h + c q) / (n + c) in place of q, with h blurred."""
    n = 0.0
    for b in range(BINS):
        n += weights[b]
    for b in range(BINS):
        beside = 0.5 * (weights[max(b - 1, 0)] + weights[min(b + 1, BINS - 1)])
        mass[b] = ((1.0 - blur) * weights[b] + blur * beside + c * mass[b]) / (n + c)


@inner_kernel
def believe(m: Memory, user: int, name: int, request: float, size: float, now: float) -> None:
    """Put into ``mass`` what is believed of a job that is submitted now."""
    mass, weights = m.mass, m.weights
    for b in range(BINS):
        mass[b] = 1.0 / BINS
        weights[0, b] = weights[1, b] = weights[2, b] = 0.0
    c = class_of(request)
    shrink(mass, m.all[0], UNIFORM, 0.0)
    if c > 0:
        shrink(mass, m.all[c], ALL, 0.0)
    most = math.log(max(request, 1.0))  # it would have been killed there
    of_user = of_name = of_same = 1.0
    room = m.first[user + 1] - m.first[user]
    for k in range(min(m.ended[user], room)):
        i = m.first[user] + (m.ended[user] - 1 - k) % room
        length = m.length[i]
        if length == math.inf:  # such a job runs to its request again, whatever that is
            length = most if most < math.inf else math.log(max(m.request[i], 1.0))
        length = min(length, most)
        recent = OLD + (1.0 - OLD) * math.exp(min(m.when[i] - now, 0.0) / SESSION)
        add(weights[0], length, of_user * recent)
        of_user *= OF_USER
        if m.name[i] == name:
            add(weights[1], length, of_name * recent)
            of_name *= OF_NAME
            if m.request[i] == request and m.size[i] == size:
                add(weights[2], length, of_same * recent)
                of_same *= OF_SAME
    shrink(mass, weights[0], USER, BLUR)
    shrink(mass, weights[1], NAME, BLUR)
    shrink(mass, weights[2], SAME, BLUR)


@shared_kernel
def at_most(mass: Floats, seconds: float) -> float:
    """Probability of at most so many seconds: each cell is even about its centre."""
    if seconds <= 0.0:
        return 0.0
    at = math.log(seconds) / WIDTH + 0.5
    below = 0.0
    for b in range(BINS):
        if at < b + 1.0:
            return float(below + max(at - b, 0.0) * mass[b])
        below += mass[b]
    return 1.0


@inner_kernel
def class_of_user(m: Memory, user: int) -> int:
    """How much is known of a user: nothing, little, more."""
    return int(m.ended[user] > 0) + int(m.ended[user] > 4)


@inner_kernel
def locate(m: Memory, c: int, mass: Floats, request: float, seconds: float) -> None:
    """Count in which cell of the distribution told a run time lay; in all that the request cuts."""
    low = int(at_most(mass, min(seconds, 0.999999 * request)) * CELLS)
    low = min(low, CELLS - 1)
    high = CELLS if seconds >= request else low + 1
    for k in range(CELLS):
        m.places[c, k] = FADE * m.places[c, k] + (low <= k < high) / (high - low)


@inner_kernel
def recalibrate(m: Memory, c: int) -> None:
    """Put G(F) in place of F: G(k / CELLS) is the share of run times in the first k cells."""
    G = m.weights[0]
    G[0] = 0.0
    for k in range(CELLS):
        G[k + 1] = G[k] + m.places[c, k]
    below, before = 0.0, 0.0
    for b in range(BINS):
        below += m.mass[b]
        k = min(int(below * CELLS), CELLS - 1)
        then = (G[k] + (below * CELLS - k) * m.places[c, k]) / G[CELLS]
        m.mass[b] = then - before
        before = then


@shared_kernel
def quantile_of(mass: Floats, p: float, elapsed: float) -> float:
    """Seconds that are not exceeded with probability p by a job that has run for ``elapsed``."""
    below = at_most(mass, elapsed)
    wanted = below + p * (1.0 - below)
    below = 0.0
    for b in range(BINS):
        if below + mass[b] >= wanted and mass[b] > 0.0:
            seconds = math.exp((b - 0.5 + (wanted - below) / mass[b]) * WIDTH)
            return max(seconds, elapsed)
        below += mass[b]
    return max(math.exp((BINS - 0.5) * WIDTH), elapsed)
