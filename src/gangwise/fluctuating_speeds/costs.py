"""Supply cost Σ_k f_k(a_k^(l,r)) of each channel, (3); no shape of f_k is assumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError

__all__ = ["functional_cost", "linear_cost"]

Floats = npt.NDArray[np.float64]


def linear_cost(requests: Floats, price: npt.ArrayLike) -> Floats:
    """f_k(a) = price_k · a, so that supply is paid by the device.

    Parameters
    ----------
    requests : ndarray of shape [E, K]
    price : array of shape [K]
        Utility per device.

    Examples
    --------
    >>> linear_cost(np.array([[1.0, 2.0], [2.0, 2.0]]), [0.1, 0.2])
    array([0.5, 0.6])
    """
    price = np.asarray(price, dtype=np.float64)
    if price.shape != (requests.shape[1],):
        raise ScenarioError(
            f"prices have shape {price.shape}; expected one for each of {requests.shape[1]} "
            "device types"
        )
    return np.asarray(requests @ price)


def functional_cost(requests: Floats, functions: Sequence[Callable[[float], float]]) -> Floats:
    """f_k as given: any functions at all, one for each device type.

    Examples
    --------
    A fixed part, and a discount from the second device on:

    >>> functional_cost(np.array([[1.0], [3.0]]), [lambda a: 0.1 + 0.2 * a**0.5]).round(3)
    array([0.3  , 0.446])
    """
    if len(functions) != requests.shape[1]:
        raise ScenarioError(
            f"{len(functions)} cost functions are given for {requests.shape[1]} device types"
        )
    return np.array([sum(float(f(float(a))) for f, a in zip(functions, row)) for row in requests])
