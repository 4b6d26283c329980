"""What a site file says of who comes first: QOS, a tree of accounts, and weights of priority."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Qos(Strict):
    """A quality of service: what it adds to priority, and what a job of it may ask for."""

    name: str = Field(min_length=1)
    priority: Amount = 0.0
    usage_factor: Amount = 1.0
    most_time: float = Field(np.inf, gt=0)
    most_nodes: int = Field(0, ge=0)


class AccountRule(Strict):
    """An account in the tree of accounts, with the users whose shares in it are not 1."""

    name: str = Field(min_length=1)
    parent: str = ""
    shares: Amount = 1.0
    users: Mapping[str, Amount] = Field(default_factory=dict)


class Priority(Strict):
    """Weights of the order ``multifactor``, named as Slurm's, and how use is counted."""

    age: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    pool: float = 0.0
    qos: float = 0.0
    tres: Mapping[str, float] = Field(default_factory=dict)
    max_age: float = Field(604_800.0, gt=0)
    favor_small: bool = False
    fair: Literal["tree", "classic"] = "tree"
    damping: float = Field(1.0, gt=0)
    half_life: float = Field(604_800.0, gt=0)
    period: float = Field(300.0, gt=0)
    billing: Mapping[str, Amount] = Field(default_factory=dict)


def check_tree(accounts: tuple[AccountRule, ...]) -> None:
    """Raises ValueError where a parent is not there or below its own account."""
    parents = {account.name: account.parent for account in accounts}
    for account in accounts:
        seen, at = [account.name], account.parent
        while at:
            if at not in parents:
                raise ValueError(f"account {seen[-1]!r} has a parent {at!r}, which is not there")
            if at in seen:
                raise ValueError(f"account {at!r} is below itself")
            seen.append(at)
            at = parents[at]


def below(accounts: tuple[AccountRule, ...], name: str) -> tuple[str, ...]:
    """An account and all those below it.

    >>> tree = AccountRule(name="a"), AccountRule(name="b", parent="a")
    >>> below(tree, "a")
    ('a', 'b')
    """
    found = [name]
    for at in found:
        found += [account.name for account in accounts if account.parent == at]
    return tuple(found)
