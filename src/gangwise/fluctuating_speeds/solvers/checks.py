"""Requests, capacities, statistics and masks are looked at before anything is solved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError

__all__ = ["checked_statistics", "mask_of", "requests_and_capacity"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def requests_and_capacity(
    A: npt.ArrayLike,
    c: npt.ArrayLike,
    channels: Sequence[str] | None,
    devices: Sequence[str] | None,
) -> tuple[Floats, Floats]:
    """Copies of requests [E, K] and capacities [K].

    Raises
    ------
    ScenarioError
        When they do not fit together, or for a number that is negative or not finite.
    """
    requests = np.array(A, dtype=np.float64, order="C")
    capacity = np.array(c, dtype=np.float64)
    if requests.ndim != 2 or capacity.shape != requests.shape[1:] or not capacity.size:
        raise ScenarioError(
            f"requests must be an array [channels, device types] and capacities one number for "
            f"each device type; got shapes {requests.shape} and {capacity.shape}"
        )

    def name(kind: str, names: Sequence[str] | None, i: int) -> str:
        return f"{kind} {i}" if names is None else f"{kind} {names[i]!r}"

    for e, k in np.argwhere(~(np.isfinite(requests) & (requests >= 0)))[:1].tolist():
        raise ScenarioError(
            f"{name('channel', channels, e)}: the request of {name('device type', devices, k)} is "
            f"{requests[e, k]}; it must be a finite number, zero or larger"
        )
    for (k,) in np.argwhere(~(np.isfinite(capacity) & (capacity >= 0)))[:1].tolist():
        raise ScenarioError(
            f"{name('device type', devices, k)}: the capacity is {capacity[k]}; it must be a "
            f"finite number, zero or larger"
        )
    return requests, capacity


def mask_of(available: npt.ArrayLike, everyone: Flags) -> Flags:
    """A mask [E] from a mask or from channel numbers.

    Raises
    ------
    ScenarioError
        For a mask of wrong length, or a channel that there is not.
    """
    given = np.asarray(available)
    if given.dtype == np.bool_:
        if given.shape != everyone.shape:
            raise ScenarioError(
                f"available has shape {given.shape}; there are {everyone.size} channels"
            )
        return given
    mask = np.zeros_like(everyone)
    if given.size:
        if given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= mask.size:
            raise ScenarioError(
                f"available must be a mask, or numbers of channels from 0 to {mask.size - 1}"
            )
        mask[given] = True
    return mask


def checked_statistics(v: Floats, s: Floats, mask: Flags) -> None:
    """Look at v and s of the channels in ``mask``.

    Raises
    ------
    ScenarioError
        When a v is not finite, or an s negative or NaN; names the channel.
    """
    for e in np.flatnonzero(mask & ~(np.isfinite(v) & (s >= 0)))[:1]:
        raise ScenarioError(
            f"channel {e}: v must be finite and s zero or larger; got v = {v[e]}, s = {s[e]}"
        )
