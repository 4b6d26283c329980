"""Reading objects, against cases from the Kubernetes documentation worked by hand."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise.core.errors import EngineError
from gangwise.engines.kubernetes_objects import (
    Membership,
    Taint,
    declared_size,
    demand,
    fits_affinity,
    job_type,
    natural,
    not_modelled,
    note,
    per_node,
    quantity,
    seconds,
    selects,
    thousandths,
)


def pod(*requests: dict[str, str], **more: Any) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "default", "uid": "u", **more.pop("metadata", {})}
    containers = [{"name": "c", "resources": {"requests": r}} for r in requests]
    return {"metadata": meta, "spec": {"containers": containers, **more}}


@given(
    st.decimals(0, 10**6, places=3), st.sampled_from(["", "k", "M", "Ki", "Mi", "m", "e3", "E-2"])
)
def test_quantities_are_exact(number: Decimal, suffix: str) -> None:
    worth = {"": 1, "k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20, "e3": 10**3}
    expected = Decimal(number) * Decimal({"m": "0.001", "E-2": "0.01"}.get(suffix) or worth[suffix])
    assert quantity(f"{number}{suffix}") == expected


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1Kb", "--1", "1e", "1e9999999", "0x10", "½"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(EngineError, match="Kubernetes"):
        quantity(text)


def test_requests_are_rounded_up_and_capacity_down() -> None:
    assert thousandths("cpu", "1500u", up=True) == 2
    assert thousandths("memory", "16Gi", up=True) == 16_000
    assert thousandths("memory", "16383Mi", up=False) == 15_999
    assert thousandths("memory", "1", up=True) == 1


def test_a_pod_takes_what_its_containers_ask_for_together() -> None:
    both = pod({"cpu": "500m", "memory": "1Gi"}, {"cpu": "250m", "nvidia.com/gpu": "2"})
    assert demand(both) == {"cpu": 750, "memory": 1000, "gpu": 2000, "pods": 1000}


def test_start_up_containers_count_where_they_ask_for_more() -> None:
    # sidecar 100m stays; start-up asks for 900m beside it; then 200m + 100m run
    initial = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        {"name": "i", "resources": {"requests": {"cpu": "900m"}}},
    ]
    one = pod({"cpu": "200m"}, initContainers=initial, overhead={"cpu": "50m"})
    assert demand(one)["cpu"] == 1050
    assert demand(pod({"cpu": "2"}, initContainers=initial))["cpu"] == 2100


def test_limits_are_requests_where_none_are_given() -> None:
    one = pod({})
    one["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "3"}}
    assert demand(one)["cpu"] == 3000


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        ({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "value": "cpu"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints_are_tolerated(toleration: dict[str, str], holds: bool) -> None:
    taint = Taint("dedicated", "gpu", "NoSchedule")
    assert taint.tolerated(pod({}, tolerations=[toleration])) is holds


def test_soft_taints_keep_nobody_away() -> None:
    taints = [{"key": "a", "effect": "PreferNoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    assert Taint.of({"spec": {"taints": taints}}) == (Taint("b", "", "NoExecute"),)


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ["a100", "h100"], True),
        ("NotIn", ["a100"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_affinity_to_nodes(operator: str, values: list[str], holds: bool) -> None:
    term = {"matchExpressions": [{"key": "gpu", "operator": operator, "values": values}]}
    assert fits_affinity([term], "n1", {"gpu": "a100"}) is holds


def test_affinity_compares_numbers_and_names() -> None:
    more = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["9"]}]}
    assert fits_affinity([more], "n1", {"rank": "10"})
    assert not fits_affinity([more], "n1", {"rank": "ten"})
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert fits_affinity([more, field], "n1", {})
    assert not fits_affinity([{}], "n1", {}), "an empty term fits nothing"


def test_one_a_node() -> None:
    group = {"scheduling.x-k8s.io/pod-group": "g"}
    rule: Any = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": group}}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    assert per_node(pod({}, metadata={"labels": group}, affinity=rules)) == 1
    with pytest.raises(EngineError, match="anti-affinity"):
        per_node(pod({}, affinity=rules))
    rule["labelSelector"] = {"matchLabels": {"app": "a"}}  # pods of other gangs carry it, too
    with pytest.raises(EngineError, match="anti-affinity"):
        per_node(pod({}, metadata={"labels": {**group, "app": "a"}}, affinity=rules))


def test_whom_a_rule_selects() -> None:
    one = pod({}, metadata={"labels": {"app": "a"}})
    in_set = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}
    for selector, expected in (
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        (in_set, True),
        ({}, True),  # an empty selector means all pods, none means nobody
        (None, False),
    ):
        assert selects({"labelSelector": selector}, one) is expected
    there = {"labelSelector": {}, "namespaces": ["elsewhere"]}
    assert not selects(there, one)
    assert selects({"labelSelector": {}, "namespaceSelector": {}, **there}, one)
    assert not selects({"labelSelector": {}}, one, "elsewhere")


def test_gangs_by_label_annotation_and_owner() -> None:
    new = pod({}, metadata={"labels": {"scheduling.x-k8s.io/pod-group": "g"}})
    old = pod({}, metadata={"labels": {"pod-group.scheduling.sigs.k8s.io/name": "g"}})
    volcano = pod({}, metadata={"annotations": {"scheduling.k8s.io/group-name": "g"}})
    assert {Membership.of(p)[:3] for p in (new, old, volcano)} == {("default", "group", "g")}
    assert len({Membership.of(p).api for p in (new, old, volcano)}) == 3
    owner = {"kind": "Job", "name": "train", "controller": True}
    made = pod({}, metadata={"ownerReferences": [owner]})
    assert Membership.of(made) == Membership("default", "job", "train")
    assert Membership.of(pod({})) == Membership("default", "pod", "u")


def test_what_users_write_badly_is_named() -> None:
    for size in ("four", "0", "-1", "1.5"):
        with pytest.raises(EngineError, match=size):
            declared_size(pod({}, metadata={"annotations": {"gangwise.io/tasks": size}}))
    for limit in ("an hour", "-1", "nan"):
        with pytest.raises(EngineError, match=limit):
            note(pod({}, metadata={"annotations": {"gangwise.io/limit": limit}}), "limit", 0.0)


def test_names_and_times() -> None:
    assert sorted(["w-10", "w-9"], key=natural) == ["w-9", "w-10"]
    assert job_type(pod({}, metadata={"name": "resnet50-3-12"})) == "resnet50"
    assert job_type(pod({}, metadata={"labels": {"app": "bert"}})) == "bert"
    assert seconds("1970-01-02T00:00:01Z") == 86_401
    assert math.isnan(seconds(None))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"schedulingGates": [{"name": "g"}]}, "scheduling gates"),
        ({"resourceClaims": [{"name": "g"}]}, "dynamic resource allocation"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "no"}}]}, "a volume"),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {}}]}, ""),
        (
            {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}]},
            "spread over zone",
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
    ],
)
def test_what_is_not_modelled_is_named(spec: dict[str, Any], said: str) -> None:
    assert not_modelled(pod({"cpu": "1"}, **spec)).startswith(said)
    assert bool(not_modelled(pod({"cpu": "1"}, **spec))) == bool(said)


def test_a_port_of_the_node_is_a_device() -> None:
    one = pod({"cpu": "1"})
    one["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    assert demand(one)["gangwise.io/port:TCP:8080"] == 1000
    one["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "protocol": "UDP"}]
    assert not any("port" in kind for kind in demand(one))
    one["spec"]["hostNetwork"] = True
    assert demand(one)["gangwise.io/port:UDP:80"] == 1000
