import numpy as np
import pytest

from gangwise import ScenarioError, UnknownName, create_scenario


def test_default_size_and_what_is_stated():
    scenario = create_scenario("ogasched-gang-v1")
    p = scenario.instance(0).problem
    assert p.cluster.capacity.shape == (128, 6)
    assert p.L == 10
    tasks = np.diff(p.first)
    assert (tasks >= 2).all()
    assert (tasks <= 6).all()
    assert (p.minimum >= 1).all()
    assert (p.minimum <= tasks).all()
    assert p.fits.any(axis=1).all()
    assert len(p.channels) == 10 * 16
    assert scenario.describe()["contention"] == 5.0


def test_the_same_seed_draws_the_same_instance():
    one, two, other = (create_scenario("ogasched-gang-small-v1").instance(s) for s in (3, 3, 4))
    np.testing.assert_array_equal(one.problem.task_requests, two.problem.task_requests)
    np.testing.assert_array_equal(one.problem.cluster.capacity, two.problem.cluster.capacity)
    assert not np.array_equal(one.problem.cluster.capacity, other.problem.cluster.capacity)


@pytest.mark.parametrize("contention", [2.0, 5.0, 10.0])
def test_contention_is_job_types_per_server(contention):
    p = create_scenario("ogasched-gang-v1", contention=contention).instance(0).problem
    wanted = np.unique(p.channels.server).size
    pool = 10 * 16 / contention
    assert 0.8 * pool <= wanted <= pool  # a server of the pool may stay without a channel


def test_equal_and_different_tasks():
    alike = create_scenario("ogasched-gang-v1", equal=1.0).instance(0).problem
    for l in range(alike.L):
        assert len(np.unique(alike.task_requests[alike.task_job_type == l], axis=0)) == 1
    mixed = create_scenario("ogasched-gang-v1", equal=0.0).instance(0).problem
    assert len(np.unique(mixed.task_requests, axis=0)) > mixed.Q / 2


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("ogasched-gang-v1", "share", (0.5, 1.5)),
        ("ogasched-gang-v1", "alpha", (0, 1)),
        ("ogasched-gang-v1", "alpha", (1, float("inf"))),
        ("ogasched-gang-v1", "tasks", (4, 2)),
        ("ogasched-gang-v1", "most", ()),
        ("esdp-gang-v1", "share", (0.5, 1.5)),
        ("esdp-gang-v1", "mean", (0.0, 1.0)),
        ("esdp-gang-v1", "most", ()),
        ("ogasched-default-v1", "beta", (0.5, float("inf"))),
        ("ogasched-default-v1", "most", ()),
        ("esdp-default-v1", "mean", (0.1, float("inf"))),
        ("esdp-default-v1", "requests", (2, 1)),
    ],
)
def test_settings_that_make_no_sense(name, setting, value):
    with pytest.raises(ScenarioError, match=setting):
        create_scenario(name, **{setting: value})


def test_a_setting_that_does_not_exist():
    with pytest.raises(UnknownName, match="contention"):
        create_scenario("ogasched-gang-v1", contension=3)
