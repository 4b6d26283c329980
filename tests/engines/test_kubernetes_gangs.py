"""What becomes of a gang whose pods end, are deleted and are cancelled in different orders."""

from __future__ import annotations

from typing import Any

import pytest

from gangwise.engines.kubernetes_gangs import ClusterCache, Gang
from tests.engines.hostile import pod

Pods = list[dict[str, Any]]


def running() -> tuple[ClusterCache, Gang, Pods]:
    """A gang of two pods, each on its node, as the watch reports it."""
    table, pods = ClusterCache("gangwise", 30.0, None), []
    for name in ("p0", "p1"):
        one = pod(name, "a")
        notes = {"tasks": "2", "attempt": "1", "placement": '{"n0": 1, "n1": 1}'}
        one["metadata"]["annotations"] |= {f"gangwise.io/{k}": v for k, v in notes.items()}
        one["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "g"
        table.one_pod("ADDED", one)
        pods.append(one)
    for one, node in zip(pods, ("n0", "n1"), strict=True):
        one["spec"]["nodeName"], one["status"] = node, {"phase": "Running"}
        table.one_pod("MODIFIED", one)
    (gang,) = table.gangs.values()
    assert gang.status is not None
    assert gang.status.phase == "running"
    return table, gang, pods


def ended(one: dict[str, Any], phase: str = "Succeeded") -> dict[str, Any]:
    return one | {"status": {"phase": phase}}


@pytest.mark.parametrize("last", ["DELETED", "Succeeded", "Failed"])
def test_a_cancelled_gang_ends_though_one_pod_had_ended_before(last: str) -> None:
    table, gang, (first, second) = running()
    table.one_pod("MODIFIED", ended(first))
    gang.cancelled = True  # the engine deletes the pods that live: the second alone
    if last == "DELETED":
        table.one_pod("DELETED", second)
    else:
        table.one_pod("MODIFIED", ended(second, last))
    assert gang.status is not None
    assert gang.status.phase == "cancelled"
    assert not table.holding(["n0", "n1"])


def test_a_gang_one_of_whose_pods_was_deleted_ends_with_the_others() -> None:
    table, gang, (first, second) = running()
    table.one_pod("DELETED", first)
    assert gang.status is not None
    assert gang.status.phase == "running"
    table.one_pod("MODIFIED", ended(second))
    assert gang.status.phase == "failed"
    assert "1 of its pods" in gang.status.detail
    assert not table.holding(["n0", "n1"])


def test_who_restarts_finds_the_same() -> None:
    _, _, (_, second) = running()
    again = ClusterCache("gangwise", 30.0, None)
    again.all_pods([ended(second)])
    (gang,) = again.gangs.values()
    assert gang.status is not None
    assert gang.status.phase == "failed"


def of_job(name: str, owner: str) -> dict[str, Any]:
    """A pod of the batch Job ``train`` with this uid."""
    one = pod(name, "a")
    about = {"kind": "Job", "name": "train", "uid": owner, "controller": True}
    one["metadata"] |= {"uid": name, "labels": {}, "annotations": {}, "ownerReferences": [about]}
    return one


def test_a_batch_job_of_the_same_name_is_another_gang() -> None:
    """It was deleted and made again: its pods come while those of the first one end."""
    cache = ClusterCache("gangwise", 30.0, None)
    first, second = ([of_job(f"{o}-{i}", o) for i in range(2)] for o in ("u1", "u2"))
    cache.all_pods([*first, *first])  # a list may say a thing twice
    for one in second:
        cache.one_pod("ADDED", one)
    assert [len(gang.pods) for gang in cache.gangs.values()] == [2, 2]
    for one in first:
        cache.one_pod("DELETED", one)
    for gang in cache.gangs.values():
        gang.size = 2
        cache.update(gang)
    assert [gang.phase for gang in cache.gangs.values()] == [None, "pending"]
