"""What changes the identity of a run, and what does not."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from gangwise import catalogue  # noqa: F401 - registers the built-ins
from gangwise.core import registry
from gangwise.core.contracts import identify, plain
from gangwise.core.errors import ScenarioError
from gangwise.core.registry import entries, register
from gangwise.study.sweep import Experiment, sweep

POLICY = """
    from dataclasses import dataclass

    import numpy as np

    from gangwise.papers.gain_overhead.policies import Fairness
    from {package}helpers import shrink

    MEMO = {{}}

    @dataclass
    class Mine(Fairness):
        share: str = "all"

        def decide(self, observation):
            MEMO[len(MEMO)] = observation
            return shrink(super().decide(observation))
"""
HELPERS = """
    FACTOR = {factor}

    def shrink(decision):
        return FACTOR * decision
"""


class Files:
    """Modules of a user, which are written, edited and imported again."""

    def __init__(self, path, monkeypatch):
        self.path = path
        monkeypatch.syspath_prepend(str(path))
        monkeypatch.setenv("PYTHONPATH", f"{path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def write(self, name, text):
        file = self.path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(textwrap.dedent(text))
        os.utime(file, ns=(0, len(list(self.path.rglob("*"))) + hash(text) % 10**9))
        for cached in self.path.rglob("*.pyc"):
            cached.unlink()

    def load(self, name):
        for known in [m for m in sys.modules if m.split(".")[0] in ("users", "helpers", "own")]:
            del sys.modules[known]
        importlib.invalidate_caches()
        return importlib.import_module(name)


@pytest.fixture
def own(tmp_path, monkeypatch):
    found = Files(tmp_path / "code", monkeypatch)
    found.write("helpers.py", HELPERS.format(factor=0.5))
    found.write("users.py", POLICY.format(package=""))
    return found


def registered(name, target):
    registry._entries["policy"].pop(name, None)
    register("policy", name, target, family="gain_overhead")


def total(folder, jobs=1):
    experiment = Experiment(
        name="edited",
        scenario="ogasched-default-v1:servers=8,job_types=3",
        policies=["users-own"],
        slots=10,
        seeds=1,
    )
    return sweep(experiment, folder, jobs=jobs).per_seed()["value"].item()


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_edited_policy_gets_its_new_number(own, tmp_path, jobs):
    registered("users-own", own.load("users").Mine)
    half = total(tmp_path / "out", jobs)
    assert total(tmp_path / "out", jobs) == half
    assert len(list((tmp_path / "out" / "runs").glob("*.parquet"))) == 1
    own.write("users.py", POLICY.format(package="").replace("shrink(s", "0.5 * shrink(s"))
    registered("users-own", own.load("users").Mine)
    if jobs == 1:
        assert total(tmp_path / "out", jobs) != half
        assert len(list((tmp_path / "out" / "runs").glob("*.parquet"))) == 2
    own.write("users.py", POLICY.format(package=""))
    registered("users-own", own.load("users").Mine)
    assert total(tmp_path / "out", jobs) == half


JUDGE = """
from gangwise import Comparator

def share(instance, slots, seed, sample=None):
    best = instance.comparator("per_slot_optimum", slots, seed, sample)
    return Comparator("users-share", best.slots, 0.5 * best.rewards, best.gap)
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_own_comparator_is_named_like_gangwises_own_and_an_edit_is_noticed(own, tmp_path, jobs):
    experiment = Experiment(
        name="judged",
        scenario="ogasched-default-v1:servers=8,job_types=3",
        policies=["drf"],
        comparators=["per_slot_optimum", "users-share"],
        slots=10,
        seeds=1,
    )

    def means():
        frame = sweep(experiment, tmp_path / "out", jobs=jobs).rows().collect()
        found = frame.filter((frame["metric"] == "reward.mean") & frame["comparator"])
        return dict(found.select("policy", "value").iter_rows())

    for text, share in ((JUDGE, 0.5), (JUDGE.replace("0.5", "0.25"), 0.25), (JUDGE, 0.5)):
        own.write("users.py", text)
        registry._entries["comparator"].pop("gain_overhead/users-share", None)
        register("comparator", "users-share", own.load("users").share, family="gain_overhead")
        found = means()
        assert found["users-share"] == pytest.approx(share * found["per_slot_optimum"])
    assert len(list((tmp_path / "out" / "runs").glob("*.parquet"))) == 4
    registry._entries["comparator"].pop("gain_overhead/users-share")


def test_an_edited_module_that_the_policy_imports_changes_it(own):
    before = identify(own.load("users").Mine)
    assert identify(own.load("users").Mine) == before
    own.write("helpers.py", HELPERS.format(factor=0.25))
    after = identify(own.load("users").Mine)
    assert before.startswith("users.Mine ")
    assert after.split()[0] == "users.Mine"
    assert after != before


def test_a_file_that_was_edited_but_not_imported_again_is_not_the_new_one(own):
    """Otherwise numbers of the old code would be stored as those of the new one."""
    old = own.load("users").Mine
    before = identify(old)
    own.write("users.py", POLICY.format(package="").replace("shrink(s", "2 * shrink(s"))
    stale = identify(old)
    assert len({before, stale, identify(own.load("users").Mine)}) == 3


def test_packages_are_followed_through_relative_imports(own):
    for name, text in (
        ("__init__", ""),
        ("sub", "from . import helpers\nfrom .deep import x\n"),
        ("deep", "x = 1"),
        ("helpers", HELPERS.format(factor=0.5)),
        ("users", POLICY.format(package=".")),
    ):
        own.write(f"own/{name}.py", text)
    before = identify(own.load("own.users").Mine)
    own.write("own/deep.py", "x = 2")  # nobody asks for it
    assert identify(own.load("own.users").Mine) == before
    own.write("own/helpers.py", "    from .sub import x" + HELPERS.format(factor=0.5))
    between = identify(own.load("own.users").Mine)
    own.write("own/deep.py", "x = 3")
    assert len({before, between, identify(own.load("own.users").Mine)}) == 3


def test_what_a_policy_remembers_while_it_runs_does_not_change_it(own):
    users = own.load("users")
    before = identify(users.Mine)
    users.MEMO["a"] = 1
    assert identify(users.Mine) == before


def test_functions_and_dataclasses_in_settings_are_identified_by_their_source(own):
    own.write(
        "users.py",
        "from dataclasses import dataclass\n\ndef u(x):\n    return x\n\n"
        "@dataclass\nclass Log:\n    base: float = 2.0\n",
    )
    users = own.load("users")
    before = plain({"utility": users.u, "other": users.Log()})
    own.write(
        "users.py",
        "from dataclasses import dataclass\n\ndef u(x):\n    return 2 * x\n\n"
        "@dataclass\nclass Log:\n    base: float = 2.0\n",
    )
    users = own.load("users")
    after = plain({"utility": users.u, "other": users.Log()})
    assert before["utility"] != after["utility"]
    assert before["other"]["type"] != after["other"]["type"]
    assert json.loads(json.dumps(after)) == after


SCRIPT = """
import sys
from dataclasses import dataclass
import numpy as np
from gangwise import register
from gangwise.core.contracts import identify
from gangwise.study.sweep import Experiment
from gangwise.study.sweep import sweep
from gangwise.papers.gain_overhead.policies import Fairness

WEIGHTS = [{weight}, 1.0]

def weighed(decision):
    return WEIGHTS[0] * decision

@dataclass
class Mine(Fairness):
    share: str = "all"
    def decide(self, observation):
        return weighed(super().decide(observation))

register("policy", "mine", Mine, family="gain_overhead")

if __name__ == "__main__":
    experiment = Experiment(name="main", scenario="ogasched-default-v1:servers=8,job_types=3",
                            policies=["mine"], slots=10, seeds=[{seed}])
    print(sweep(experiment, sys.argv[1], jobs=2).per_seed()["value"].item(), identify(Mine))
"""


@pytest.mark.full
def test_a_class_of_a_script_is_identified_by_its_code_in_every_process(tmp_path):
    found = []
    for weight, seed in ((0.5, 0), (0.5, 1), (0.25, 0)):
        script = tmp_path / f"{weight}-{seed}.py"
        script.write_text(SCRIPT.format(weight=weight, seed=seed))
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path / "out")], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    assert found[0][2] == found[1][2] != found[2][2]  # another seed is no other policy
    assert found[0][0] != found[2][0]
    assert len(list((tmp_path / "out" / "runs").glob("*.parquet"))) == 3


def made(factor):
    class Scaled:
        def decide(self, x):
            return factor * x

    return Scaled


def test_what_a_class_of_a_function_closes_over_is_part_of_it():
    assert identify(made(1)) == identify(made(1)) != identify(made(2))


def test_built_ins_are_identified_by_name_and_revision_wherever_they_live(monkeypatch):
    for name, entry in entries("policy").items():
        if isinstance(entry.target, str) and entry.target.startswith("gangwise."):
            found = identify(entry.load(), "policy")
            named, revision = found.split()
            assert revision == f"r{entries('policy')[named].revision}", name
            assert "gangwise" not in found
    entry = entries("policy")["drf"]
    monkeypatch.setitem(
        registry._entries["policy"], "drf", type(entry)(**{**vars(entry), "revision": 9})
    )
    assert identify(entry.load(), "policy") == "drf r9"


def test_an_alias_does_not_rename_a_built_in():
    from gangwise.papers.gain_overhead.policies import Fairness

    register("policy", "a-alias", Fairness, "another name", "gain_overhead", share="all")
    assert identify(Fairness, "policy") == "fairness r1"


@pytest.mark.parametrize("thing", [lambda x: x, object(), np.random.default_rng(0)])
def test_what_has_no_lasting_name_is_refused(thing):
    with pytest.raises(ScenarioError, match="no lasting name"):
        plain(thing)
