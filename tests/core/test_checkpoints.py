"""Checkpoints are opened only if this user saved them, whole, for this run."""

from __future__ import annotations

import hashlib
import hmac
import os
import pickle
import stat

import pytest

from gangwise import create_policy, create_scenario
from gangwise.core.errors import StoreError
from gangwise.core.simulation import (
    Simulation,
    key_file,
    read_checkpoint,
    user_key,
    write_checkpoint,
)
from gangwise.study.runs import GivenSource, RunSpec


@pytest.fixture(autouse=True)
def another_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


class Planted:
    """Unpickling it leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def simulation(policy="drf", seed=0, slots=10):
    scenario = create_scenario("ogasched-default-v1:servers=8,job_types=3")
    plays = create_policy(policy)
    identity = RunSpec(
        GivenSource(scenario), {}, seed, slots, label=policy, policy=plays
    ).identity()
    return Simulation(scenario.instance(seed), plays, slots, seed, policy, identity)


def test_the_key_is_made_once_and_is_the_users_alone():
    key = user_key()
    assert user_key() == key
    assert len(key) == 32
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    os.chmod(key_file(), 0o640)
    with pytest.raises(StoreError, match="chmod 600"):
        user_key()


def test_a_key_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="set XDG_CONFIG_HOME"):
        user_key()


@pytest.mark.parametrize("how", ["bare", "own format", "unsigned", "other key", "swapped"])
def test_a_planted_file_is_not_unpickled(how, tmp_path, monkeypatch):
    path, mark = tmp_path / "x", tmp_path / "mark"
    payload = pickle.dumps(Planted(mark))
    if how == "bare":
        path.write_bytes(payload)
    elif how == "own format":
        path.write_bytes(pickle.dumps(("gangwise-simulation-2", Planted(mark))))
    else:
        write_checkpoint(path, "harmless", {"policy": "x"})
        marker, seal, header, _ = path.read_bytes().split(b"\n", 3)
        if how == "other key":
            key = b"k" * 32
            made = hmac.new(key, header + b"\n" + payload, hashlib.sha256).hexdigest()
            seal = f'{{"hmac": "{made}", "key": "01234567"}}'.encode()
        elif how == "unsigned":
            seal = b'{"hmac": "", "key": ""}'
        path.write_bytes(b"\n".join([marker, seal, header, payload]))
    with pytest.raises(StoreError):
        read_checkpoint(path)
    assert not mark.exists()
    if how == "other key":
        with pytest.raises(StoreError, match="by another user"):
            read_checkpoint(path)


def test_another_users_checkpoint_is_refused(tmp_path, monkeypatch):
    simulation().save(tmp_path / "x")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "their config"))
    with pytest.raises(StoreError, match="another user"):
        Simulation.load(tmp_path / "x")


def test_a_flipped_bit_in_any_byte_is_refused(tmp_path):
    path = tmp_path / "x"
    write_checkpoint(path, list(range(50)), {"policy": "x", "seed": 1})
    whole = path.read_bytes()
    for byte in range(len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << byte % 8
        path.write_bytes(damaged)
        try:
            found = read_checkpoint(path)
        except StoreError:
            continue
        assert found == (list(range(50)), {"policy": "x", "seed": 1})
        assert whole[:byte].count(b"\n") == 1  # only the name of the key may be misspelt


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (simulation("fairness"), "policy was drf r3 and is now fairness r1"),
        (simulation(seed=1), "seed was 0 and is now 1"),
        (simulation(slots=12), "slots was 10 and is now 12"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_naming_both(other, told, tmp_path):
    simulation().save(tmp_path / "x")
    with pytest.raises(StoreError, match=told):
        Simulation.load(tmp_path / "x", other.identity)
    assert Simulation.load(tmp_path / "x", simulation().identity).slot == 0


def test_a_checkpoint_of_another_version_is_refused_naming_both(tmp_path, monkeypatch):
    monkeypatch.setattr("gangwise.core.simulation.__version__", "0.0.1")
    simulation().save(tmp_path / "x")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(StoreError, match=r"0\.0\.1"):
        Simulation.load(tmp_path / "x")
