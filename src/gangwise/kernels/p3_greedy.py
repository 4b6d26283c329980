"""A good feasible choice for P3: greedy by density under given prices, then small exchanges."""

from __future__ import annotations

import math

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["exchange", "fill", "sort_descending"]


@kernel
def sort_descending(key: Floats, order: Ints, n: int) -> None:
    """Order 0 … n-1 by falling ``key``, ties by rising number (heap sort)."""
    for i in range(n):
        order[i] = i
    end, start = n, n // 2
    while end > 1:
        if start > 0:
            start -= 1
        else:
            end -= 1
            order[end], order[0] = order[0], order[end]
        root = start
        while True:
            child = 2 * root + 1
            if child >= end:
                break
            if child + 1 < end:
                x, y = order[child], order[child + 1]
                if key[y] < key[x] or (key[y] == key[x] and y > x):
                    child += 1
            x, y = order[root], order[child]
            if key[y] < key[x] or (key[y] == key[x] and y > x):
                order[root], order[child] = y, x
                root = child
            else:
                break


@kernel
def fill(
    v: Floats, s: Floats, a: Floats, order: Ints, n: int, chosen: Ints, left: Floats, sums: Floats
) -> int:
    """Add channels in ``order`` while they fit and pay; the place of the first one left out.

    ``chosen`` [E], ``left`` [K] (capacity left) and ``sums`` (Σ v x, Σ s x) are carried on.
    """
    K = a.shape[1]
    border = n
    for j in range(n):
        e = order[j]
        if chosen[e] != 0:
            continue
        take = v[e] + math.sqrt(sums[1] + s[e]) > math.sqrt(sums[1])
        for k in range(K):
            take = take and a[e, k] <= left[k]
        if take:
            chosen[e] = 1
            sums[0] += v[e]
            sums[1] += s[e]
            for k in range(K):
                left[k] -= a[e, k]
        elif border == n:
            border = j
    return border


@kernel
def exchange(
    v: Floats, s: Floats, a: Floats, order: Ints, low: int, high: int,
    chosen: Ints, left: Floats, sums: Floats, passes: int,
) -> None:
    """Adds, drops and swaps among ``order[low:high]`` for as long as they pay."""
    K = a.shape[1]
    for _ in range(passes):
        changed = False
        for i in range(low, high):
            out = order[i]
            if chosen[out] == 0:
                fits = True
                for k in range(K):
                    fits = fits and a[out, k] <= left[k]
                now = math.sqrt(sums[1])
                if fits and v[out] + math.sqrt(sums[1] + s[out]) - now > 1e-12 * (now + 1e-300):
                    chosen[out] = 1
                    sums[0] += v[out]
                    sums[1] += s[out]
                    for k in range(K):
                        left[k] -= a[out, k]
                    changed = True
                continue
            now = sums[0] + math.sqrt(max(sums[1], 0.0))
            v_rest, s_rest = sums[0] - v[out], max(sums[1] - s[out], 0.0)
            most, into = now * (1.0 + 1e-12), -2
            if v_rest + math.sqrt(s_rest) > most:
                most, into = v_rest + math.sqrt(s_rest), -1
            for j in range(low, high):
                e = order[j]
                if chosen[e] == 0 and (v[e] > v[out] or s[e] > s[out]):
                    fits = True
                    for k in range(K):
                        fits = fits and a[e, k] <= left[k] + a[out, k]
                    if fits:
                        worth = v_rest + v[e] + math.sqrt(s_rest + s[e])
                        if worth > most:
                            most, into = worth, e
            if into == -2:
                continue
            changed = True
            chosen[out] = 0
            sums[0], sums[1] = v_rest, s_rest
            for k in range(K):
                left[k] += a[out, k]
            if into >= 0:
                chosen[into] = 1
                sums[0] += v[into]
                sums[1] += s[into]
                for k in range(K):
                    left[k] -= a[into, k]
        if not changed:
            return
