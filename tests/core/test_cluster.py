from __future__ import annotations

import numpy as np
import pytest

from gangwise import Channels, Cluster, JobType, ScenarioError, Server
from gangwise.core.workload import request_matrix
from gangwise.papers.gain_overhead.problem import GainOverheadProblem, Utilities
from tests.conftest import tiny


def test_servers_become_an_array_in_the_order_of_the_device_types():
    cluster = Cluster.of(
        [Server("a", {"gpu": 8}), Server("b", {"gpu": 4, "cpu": 64})], ["cpu", "gpu"]
    )
    np.testing.assert_array_equal(cluster.capacity, [[0, 8], [64, 4]])
    assert cluster.devices == ("cpu", "gpu")
    assert not cluster.capacity.flags.writeable


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_bad_capacities_name_server_and_device(bad):
    with pytest.raises(ScenarioError, match="'gpu'"):
        Cluster.of([Server("a", {"gpu": 1}), Server("b", {"gpu": bad})])
    with pytest.raises(ScenarioError, match="'server-1'"):
        Cluster(np.array([[1.0], [bad]]), ("gpu",))


def test_names_are_checked():
    with pytest.raises(ScenarioError, match="'a'"):
        Cluster.of([Server("a", {"gpu": 1}), Server("a", {"gpu": 1})])
    names = (*(f"x{i}" for i in range(200)), "x3")
    with pytest.raises(ScenarioError, match="'x3'"):
        Cluster(np.ones((201, 1)), ("gpu",), names)
    with pytest.raises(ScenarioError, match="mean"):
        Cluster.of([Server("a", {"gpus": 1})], ["gpu"])
    with pytest.raises(ScenarioError, match="at least one"):
        Cluster(np.empty((0, 2)), ("cpu", "gpu"))


def test_requests_of_unknown_devices_are_named():
    with pytest.raises(ScenarioError, match=r"job type 'train'.*'tpu'"):
        request_matrix([JobType("train", {"tpu": 1})], ["cpu", "gpu"])
    with pytest.raises(ScenarioError, match="'gpu'"):
        request_matrix([JobType("train", {"gpu": -1})], ["cpu", "gpu"])


def test_channels_by_fit():
    cluster = Cluster.of([Server("a", {"gpu": 8, "cpu": 4}), Server("b", {"gpu": 2, "cpu": 64})])
    channels = Channels.by_fit(cluster, np.array([[1.0, 1.0], [2.001, 0.0], [0.0, 50.0]]))
    assert list(zip(channels.job_type.tolist(), channels.server.tolist())) == [
        (0, 0),
        (1, 0),
        (0, 1),
        (2, 1),
    ]
    with pytest.raises(ScenarioError, match="'big'"):
        Channels.by_fit(cluster, np.array([[9.0, 0.0]]), ["big"])
    with pytest.raises(ScenarioError, match="combination"):
        Channels.by_fit(cluster, np.array([[8.0, 64.0]]), ["both"])


def test_channels_are_sorted_and_checked():
    channels = Channels(np.array([1, 0, 0]), np.array([1, 1, 0]), (2, 2))
    assert channels.job_type.tolist() == [0, 0, 1]
    assert channels.server.tolist() == [0, 1, 1]
    assert channels.starts.tolist() == [0, 1, 3]
    with pytest.raises(ScenarioError, match="given twice"):
        Channels(np.array([1, 1]), np.array([0, 0]), (2, 2))
    with pytest.raises(ScenarioError, match="server 2"):
        Channels(np.array([1]), np.array([2]), (2, 2))


def test_a_job_type_without_channels_is_refused():
    with pytest.raises(ScenarioError, match="'job-type-1'"):
        tiny([[1.0], [1.0]], [[2.0]], channels=[[True], [False]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": [[-1.0, 1.0]]}, "job type 'job-type-0': request of device type 'device-0' is -1"),
        ({"a": [[np.nan, 1.0]]}, "is nan"),
        ({"a": [[0.0, 0.0]]}, "requests no devices"),
        ({"a": [[1.0]]}, "2 device types"),
        ({"beta": [0.1, -0.1]}, "overhead coefficients"),
        ({"beta": [0.1]}, "overhead coefficients"),
        ({"alpha": 0.0}, "alpha of server 0, device type 0"),
    ],
)
def test_problems_are_checked(change, message):
    with pytest.raises(ScenarioError, match=message):
        tiny(**{"a": [[1.0, 1.0]], "c": [[2.0, 2.0]], **change})


def test_channels_name_what_is_astray():
    with pytest.raises(ScenarioError, match="type -1"):
        Channels([0, -1], [0, 0], (1, 1))
    with pytest.raises(ScenarioError, match="server 4"):
        Channels([0, 0], [0, 4], (1, 2))
    with pytest.raises(ScenarioError, match="server"):
        Channels([0], [0, 1], (1, 2))


def test_arrays_of_the_caller_stay_the_callers():
    capacity, requests, alpha = np.ones((2, 1)), np.ones((1, 1)), np.ones((2, 1))
    cluster = Cluster(capacity, ("gpu",))
    channels = Channels.of_mask(np.ones((1, 2), dtype=bool))
    problem = GainOverheadProblem(
        cluster, requests, channels, Utilities.of("log", alpha), np.zeros(1)
    )
    for given in (capacity, requests, alpha):
        given[0, 0] = 9.0
    assert cluster.capacity[0, 0] == problem.requests[0, 0] == 1.0
    assert problem.utilities.alpha[0, 0] == 1.0
