"""Inner loops of gang placement by prices: devices are rented, jobs answer, prices follow demand.

With a price λ [R, K] on every device, the worth Σ_e w_e n_e of any feasible placement is at most

    D(λ) = Σ_(r,k) λ_rk c_rk + Σ_l max(0, max over gangs of Σ_tasks [w_e − λ_r · a_q]),

and the inner maximum is easy: every task takes its best channel, and the gang takes the tasks that
gain, or the m_l best ones. Prices that make D small also tell which tasks deserve scarce devices.
"""

from __future__ import annotations

from gangwise.kernels import Floats, Ints, kernel
from gangwise.kernels.gang import Gangs, Held, clear, fits, put, take

__all__ = ["answer", "build", "search", "total", "undo"]

NEVER = -1e300


@kernel
def rent(g: Gangs, price: Floats, q: int, r: int) -> float:
    """What a task pays on a server."""
    due = 0.0
    for k in range(g.beta.size):
        due += price[r, k] * g.request[q, k]
    return due


@kernel
def answer(
    g: Gangs, arrivals: Ints, worth: Floats, price: Floats, profit: Floats, demand: Floats,
    best: Floats, where: Ints,
) -> float:
    """Every job's best gang under prices; returns D(λ), which no placement exceeds.

    ``profit`` [L] becomes what each job gains, ``demand`` [R, K] the devices that they ask for;
    ``best`` [Q] and ``where`` [Q] are work space.
    """
    R, K = g.capacity.shape
    bound = 0.0
    for r in range(R):
        for k in range(K):
            demand[r, k] = 0.0
            bound += price[r, k] * g.capacity[r, k]
    for l in range(g.minimum.size):
        profit[l] = 0.0
        if arrivals[l] == 0:
            continue
        gaining, total = 0, 0.0
        for q in range(g.first[l], g.first[l + 1]):
            best[q], where[q] = NEVER, -1
            for i in range(g.pair_first[q], g.pair_first[q + 1]):
                e = g.pair_channel[i]
                gain = worth[e] - rent(g, price, q, g.server[e])
                if gain > best[q]:
                    best[q], where[q] = gain, e
            if best[q] > 0.0:
                gaining += 1
                total += best[q]
        while gaining < g.minimum[l]:  # the best of those that lose
            task = -1
            for q in range(g.first[l], g.first[l + 1]):
                if best[q] <= 0.0 and (task < 0 or best[q] > best[task]):
                    task = q
            total += best[task]
            best[task] = 1e-300  # taken
            gaining += 1
        if total <= 0.0:
            continue
        profit[l] = total
        bound += total
        for q in range(g.first[l], g.first[l + 1]):
            if best[q] > 0.0:
                for k in range(K):
                    demand[g.server[where[q]], k] += g.request[q, k]
    return bound


@kernel
def adjust(g: Gangs, price: Floats, demand: Floats, gap: float) -> bool:
    """One Polyak step of the prices towards a bound lower by ``gap``; False at an optimum."""
    R, K = g.capacity.shape
    norm = 0.0
    for r in range(R):
        for k in range(K):
            over = demand[r, k] - g.capacity[r, k]
            if g.capacity[r, k] > 0.0 and (over > 0.0 or price[r, k] > 0.0):
                norm += (over / g.capacity[r, k]) ** 2
    if norm <= 1e-12:
        return False
    for r in range(R):
        for k in range(K):
            if g.capacity[r, k] > 0.0:
                over = (demand[r, k] - g.capacity[r, k]) / g.capacity[r, k]
                price[r, k] = max(0.0, price[r, k] + gap / norm * over / g.capacity[r, k])
    return True


@kernel
def grow(
    g: Gangs, h: Held, l: int, worth: Floats, price: Floats, scale: float, hardest: bool
) -> None:
    """Place tasks one by one: up to the minimum whatever they gain, then while they gain.

    Next is the task and channel of the largest gain under ``scale`` times the prices; or, up to the
    minimum and if ``hardest``, the task with the fewest channels that have room, on its best one.
    """
    while True:
        task, channel, top, fewest = -1, -1, NEVER, 1 << 30
        hard = hardest and h.placed[l] < g.minimum[l]
        for q in range(g.first[l], g.first[l + 1]):
            if h.channel[q] >= 0:
                continue
            best, most, options = -1, NEVER, 0
            for i in range(g.pair_first[q], g.pair_first[q + 1]):
                e = g.pair_channel[i]
                gain = worth[e] - scale * rent(g, price, q, g.server[e])
                if (hard or gain > top) and fits(g, h, q, e):
                    options += 1
                    if gain > most:
                        best, most = e, gain
            if best >= 0 and (
                (most > top and not hard)
                or (hard and (options < fewest or (options == fewest and most > top)))
            ):
                task, channel, top, fewest = q, best, most, options
        if task < 0 or (h.placed[l] >= g.minimum[l] and top <= 0.0):
            break
        put(g, h, task, channel)


@kernel
def build(g: Gangs, h: Held, l: int, worth: Floats, price: Floats, scale: float) -> None:
    """A gang under ``scale`` times the prices; rolled back if it cannot be completed.

    Easy tasks may take the room of those that fit hardly anywhere, so a gang that fell short is
    tried again from nothing, the hardest task first.
    """
    grow(g, h, l, worth, price, scale, False)
    if h.placed[l] < g.minimum[l]:
        clear(g, h, l)
        grow(g, h, l, worth, price, scale, True)
        if h.placed[l] < g.minimum[l]:
            clear(g, h, l)


@kernel
def place(
    g: Gangs, h: Held, arrivals: Ints, worth: Floats, price: Floats, profit: Floats
) -> None:
    """Whole gangs under prices, those of the largest ``profit`` [L], which is used up, first."""
    while True:
        job = -1
        for l in range(profit.size):
            if arrivals[l] != 0 and profit[l] > 0.0 and (job < 0 or profit[l] > profit[job]):
                job = l
        if job < 0:
            break
        profit[job] = 0.0
        build(g, h, job, worth, price, 1.0)


@kernel
def total(h: Held, worth: Floats) -> float:
    """Σ w_e n_e of what is placed."""
    value = 0.0
    for q in range(h.channel.size):
        if h.channel[q] >= 0:
            value += worth[h.channel[q]]
    return value


@kernel
def undo(g: Gangs, h: Held) -> None:
    """Put everything back as ``saved`` has it."""
    for q in range(h.channel.size):
        if h.channel[q] >= 0 and h.channel[q] != h.saved[q]:
            take(g, h, q)
    for q in range(h.channel.size):
        if h.saved[q] >= 0 and h.channel[q] < 0:
            put(g, h, q, h.saved[q])


@kernel
def search(
    g: Gangs, h: Held, arrivals: Ints, worth: Floats, price: Floats, demand: Floats,
    profit: Floats, best: Floats, where: Ints, steps: int,
) -> float:
    """Step the prices from nought, place gangs at every fourth step, and end with the best of them.

    Steps are halved when the bound has not fallen five times in a row. Returns the lowest bound.
    ``price``, ``demand`` [R, K], ``profit`` [L], ``best`` and ``where`` [Q] are work space; the
    prices of the last step stay in ``price``.
    """
    Q = g.job_type.size
    for r in range(price.shape[0]):
        for k in range(price.shape[1]):
            price[r, k] = 0.0
    for q in range(Q):
        h.saved[q] = -1
    bound, top, pace, stale = 1e300, 0.0, 1.0, 0
    for step in range(steps + 1):
        now = answer(g, arrivals, worth, price, profit, demand, best, where)
        if now < bound - 1e-9 * (1.0 + abs(now)):
            bound, stale = now, 0
        else:
            stale += 1
            if stale == 5:
                pace, stale = 0.5 * pace, 0
        if step % 4 == 0:
            for l in range(g.minimum.size):
                clear(g, h, l)
            place(g, h, arrivals, worth, price, profit)
            for l in range(g.minimum.size):
                if arrivals[l] != 0:
                    build(g, h, l, worth, price, 0.0)
            value = total(h, worth)
            if value > top * (1.0 + 1e-12):
                top = value
                for q in range(Q):
                    h.saved[q] = h.channel[q]
        gap = now - top
        if gap <= 1e-9 * (1.0 + abs(now)) or not adjust(g, price, demand, pace * gap):
            break
    undo(g, h)
    return bound
