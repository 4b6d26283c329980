"""Inner loops that improve placed gangs: a task put where it wants to be, jobs built anew.

They judge by Σ_e w_e n_e, and move tasks by :mod:`gangwise.kernels.gang_prices` and
:mod:`gangwise.kernels.gang` only. Nothing is ever made worse.
"""

from __future__ import annotations

from gangwise.kernels import Floats, Ints, kernel
from gangwise.kernels.gang import Gangs, Held, clear, fits, put, take
from gangwise.kernels.gang_prices import build, total, undo

__all__ = ["insert", "rearrange"]


@kernel
def settle(g: Gangs, h: Held, arrivals: Ints, worth: Floats, price: Floats) -> float:
    """Complete or roll back every gang, let everybody use what is left; the worth of it all."""
    for l in range(g.minimum.size):  # those that hold something first
        if h.placed[l] > 0:
            build(g, h, l, worth, price, 0.0)
    for l in range(g.minimum.size):
        if arrivals[l] != 0:
            build(g, h, l, worth, price, 0.0)
    return total(h, worth)


@kernel
def insert(g: Gangs, h: Held, arrivals: Ints, worth: Floats, price: Floats, passes: int) -> int:
    """Put one task on one of its channels, whoever must leave for it; complete or roll back gangs.

    Those leave first that are worth least there. Kept where Σ w_e n_e rises, undone where not.
    Returns how often it rose.
    """
    Q = g.job_type.size
    helped, now = 0, total(h, worth)
    for _ in range(passes):
        before = helped
        for q in range(Q):
            if arrivals[g.job_type[q]] == 0:
                continue
            for i in range(g.pair_first[q], g.pair_first[q + 1]):
                e = g.pair_channel[i]
                if e == h.channel[q]:
                    continue
                for p in range(Q):
                    h.saved[p] = h.channel[p]
                if h.channel[q] >= 0:
                    take(g, h, q)
                while not fits(g, h, q, e):
                    least = -1
                    for p in range(Q):
                        if h.channel[p] >= 0 and g.server[h.channel[p]] == g.server[e] and (
                            least < 0 or worth[h.channel[p]] < worth[h.channel[least]]
                        ):
                            least = p
                    if least < 0:
                        break
                    take(g, h, least)
                put(g, h, q, e)
                build(g, h, g.job_type[q], worth, price, 0.0)
                after = settle(g, h, arrivals, worth, price)
                if after > now + 1e-9 * (1.0 + abs(now)):
                    helped, now = helped + 1, after
                else:
                    undo(g, h)
        if helped == before:
            break
    return helped


@kernel
def rearrange(
    g: Gangs, h: Held, arrivals: Ints, worth: Floats, price: Floats, scale: float, passes: int,
) -> int:
    """Take one or two jobs off, build them anew under prices, let everybody use what is left.

    Kept where Σ w_e n_e rises, undone where not. Returns how often it rose.
    """
    L, Q = g.minimum.size, g.job_type.size
    helped, now = 0, total(h, worth)
    for _ in range(passes):
        before = helped
        for one in range(L):
            for step in range(L):
                other = (one + step) % L
                if arrivals[one] == 0 or arrivals[other] == 0:
                    continue
                for q in range(Q):
                    h.saved[q] = h.channel[q]
                clear(g, h, one)
                clear(g, h, other)
                build(g, h, one, worth, price, scale)
                build(g, h, other, worth, price, scale)
                after = settle(g, h, arrivals, worth, price)
                if after > now + 1e-9 * (1.0 + abs(now)):
                    helped, now = helped + 1, after
                else:
                    undo(g, h)
        if helped == before:
            break
    return helped
