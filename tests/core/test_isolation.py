"""Policies and schedulers of strangers: alone in a process, they see what they are shown."""

from __future__ import annotations

import gc
import io
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise import (
    PolicyCheckFailed,
    SchedulerCheckFailed,
    check_policy,
    check_scheduler,
    compare,
    create_policy,
    replay,
    simulate,
)
from gangwise.cli import app
from gangwise.core.errors import ScenarioError
from gangwise.core.isolation import IsolatedError, IsolatedPolicy, IsolatedProcess, _end
from gangwise.core.registry import create
from gangwise.core.settings import machine_memory
from gangwise.core.simulation import Simulation
from gangwise.engines.launch import birth
from gangwise.jobs import Composed, Place
from gangwise.jobs.choice import BestFit, WorstFit
from gangwise.papers.gain_overhead import Fairness

pytestmark = pytest.mark.full

HERE = __name__


@dataclass
class OwnFairness(Fairness):
    """Right, and not gangwise's."""


def world_in_reach() -> object:
    """An environment of these slots, wherever it lies: on the stack, or among all objects."""
    frame = sys._getframe(2)
    while frame is not None:
        for value in frame.f_locals.values():
            if hasattr(value, "_arrivals"):
                return value
        frame = frame.f_back
    every = gc.get_objects()
    return next((found for found in every if type(found).__name__.endswith("Environment")), None)


@dataclass
class WalksTheStack(Fairness):
    """Reserves, and looks up what will come where the environment keeps it."""

    timing = "reserve"

    def decide(self, observation):
        world = world_in_reach()
        coming = np.ones(self._problem.L, dtype=np.int64)
        if hasattr(world, "_arrivals"):
            coming = world._arrivals.at(observation.slot)
        return super().decide(type(observation)(observation.slot, coming))


@dataclass
class LooksBehindTheArray(Fairness):
    """Arrivals of a slot are a row of a block: the next rows are those to come."""

    def decide(self, observation):
        block = observation.arrivals.base
        return super().decide(observation) * (0.5 if block is not None else 1.0)


@dataclass
class KnowsTheSeed(Fairness):
    """The generator of a policy was spawned from the seed of all."""

    def start(self, problem, rng):
        super().start(problem, rng)
        self.lucky = rng.bit_generator.seed_seq.entropy < 1000

    def decide(self, observation):
        return super().decide(observation) * (0.5 if self.lucky else 1.0)


@pytest.mark.parametrize("wrong", [WalksTheStack, LooksBehindTheArray, KnowsTheSeed])
def test_a_policy_that_reads_what_it_is_not_shown_is_named(wrong: type) -> None:
    with pytest.raises(PolicyCheckFailed, match="shown"):
        check_policy(f"{HERE}:{wrong.__name__}", problems=3, isolated=True)


@dataclass
class Random(Fairness):
    """Draws from a generator that nobody gave it, and only now and then."""

    def decide(self, observation):
        return super().decide(observation) * (0.5 if random.random() < 0.2 else 1.0)


@dataclass
class RandomComposed(Composed):
    """Chooses nodes by chance."""

    def place(self, queue, books, now):
        self.choice = random.choice([BestFit(), WorstFit()])
        return super().place(queue, books, now)


def test_chance_is_no_peek() -> None:
    with pytest.raises(PolicyCheckFailed, match="not deterministic") as caught:
        check_policy(f"{HERE}:Random", problems=3, isolated=True)
    assert "reads what it is not shown" not in str(caught.value)
    with pytest.raises(SchedulerCheckFailed, match="not deterministic") as told:
        check_scheduler(f"{HERE}:RandomComposed", cases=3, isolated=True)
    assert "reads what it is not shown" not in str(told.value)


def test_what_it_looks_for_is_not_there() -> None:
    """Alone, the one that walks the stack plays as one that assumes that everybody comes."""
    found = compare(
        "ogasched-default-v1:servers=8",
        {"walks": f"{HERE}:WalksTheStack", "blind": f"{HERE}:AssumesAll"},
        10,
        [0],
        [],
        isolated=True,
    )
    assert np.array_equal(found.runs["walks", 0].rewards, found.runs["blind", 0].rewards)
    beside = compare(
        "ogasched-default-v1:servers=8", {"walks": f"{HERE}:WalksTheStack"}, 10, [0], []
    )
    assert not np.array_equal(found.runs["walks", 0].rewards, beside.runs["walks", 0].rewards)


@dataclass
class AssumesAll(Fairness):
    """What is left of the above when there is nothing to be found."""

    timing = "reserve"

    def decide(self, observation):
        everybody = np.ones(self._problem.L, dtype=np.int64)
        return super().decide(type(observation)(observation.slot, everybody))


@pytest.mark.parametrize("name", ["greedy", "esdp", "opm", "ogasched-reserve"])
def test_built_in_policies_decide_the_same_alone(name: str) -> None:
    policy = create_policy(name)
    family = create("family", policy.family)
    instance = family.fuzz(np.random.default_rng([5, 1]))
    here = simulate(instance, policy, 12, 3)
    alone = Simulation(instance, IsolatedPolicy(name), 12, 3)
    for _ in range(6):
        alone.step()
    resumed: Simulation = pickle.loads(pickle.dumps(alone))
    assert np.array_equal(resumed.run().rewards, here.rewards)


def test_a_right_one_passes_alone() -> None:
    check_policy(OwnFairness(), problems=1, isolated=True)
    check_scheduler("fcfs+none+learned", cases=1, isolated=True)


@dataclass
class SeesTheWork(Composed):
    """Reads the work of jobs from the simulation that calls it."""

    def place(self, queue, books, now):
        frame = sys._getframe(1)
        run = None
        while frame is not None and run is None:
            tables = getattr(frame.f_locals.get("self"), "tables", None)
            run = None if tables is None else tables.jobs.run
            frame = frame.f_back
        short = [job for job in queue if run is None or run[job.row] < 150 or now > 900]
        return super().place(short, books, now)


def test_a_scheduler_that_sees_the_work_is_named() -> None:
    with pytest.raises(SchedulerCheckFailed, match="shown"):
        check_scheduler(f"{HERE}:SeesTheWork", cases=3, isolated=True)


@dataclass
class Vanishes(Fairness):
    """Ends its process."""

    def decide(self, observation):
        sys.stdout.write("what is printed does not disturb\n")
        if observation.slot == 2:
            import os

            os._exit(7)
        return super().decide(observation)


@dataclass
class AnswersWithAnObject(Fairness):
    """What comes back is no plain value, so that nothing of it is run here."""

    def decide(self, observation):
        return io.StringIO("a file")


@dataclass
class AnswersWithAPlace(Fairness):
    """A dataclass that nobody asked for."""

    def decide(self, observation):
        return Place("job", ((0, 1),))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Vanishes, "slot 2: Vanishes: its process has ended, with code 7"),
        (AnswersWithAnObject, "slot 0: AnswersWithAnObject: the answer holds a StringIO"),
        (AnswersWithAPlace, "slot 0: AnswersWithAPlace answers a Place, which is not asked for"),
    ],
)
def test_what_goes_wrong_over_there_is_said_here(wrong: type, said: str) -> None:
    with pytest.raises(PolicyCheckFailed, match=said):
        check_policy(f"{HERE}:{wrong.__name__}", problems=1, isolated=True)


@dataclass
class Sleeps(Fairness):
    def decide(self, observation):
        return time.sleep(3600)


def let_loose(told: str) -> None:
    """Loop in a session of one's own, deaf to whoever asks to stop."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with open(told, "a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        pass


@dataclass
class Forks(Fairness):
    """Answers, and leaves orphans behind that compute for ever."""

    told: str = ""

    def decide(self, observation):
        if not (child := os.fork()):
            if not os.fork():
                let_loose(self.told)
            os._exit(0)
        os.waitpid(child, 0)
        while observation.slot >= 3:
            time.sleep(1)
        return super().decide(observation)


@dataclass
class Deaf(Fairness):
    """Ignores what would stop it, and computes where Python looks at no signal."""

    told: str = ""

    def decide(self, observation):
        let_loose(self.told)


@dataclass
class ForksAndReturns(Fairness):
    """Both halves would answer."""

    def decide(self, observation):
        os.fork()
        return super().decide(observation)


@dataclass
class Hoards(Fairness):
    """No process takes much; all of them together do."""

    def decide(self, observation):
        if not os.fork():
            held = np.ones(2**25)  # 256 MiB
            time.sleep(3600)
            held.sum()
        return super().decide(observation)


@dataclass
class LoopsInPlace(Composed):
    """A scheduler that never comes back."""

    def place(self, queue, books, now):
        while True:
            pass


ANSWER = {"GANGWISE_ANSWER_SECONDS": "2"}
CPU = {"GANGWISE_CPU_SECONDS": "8"}
MEMORY = {"GANGWISE_MEMORY_SHARE": str(2**30 / (machine_memory() or 2**62))}


@pytest.mark.parametrize(
    ("wrong", "limits", "said"),
    [
        ("Sleeps", ANSWER, r"decide\(\) of slot 0 takes more than 2 s for one answer \(GANGWISE_A"),
        ("Deaf", ANSWER, r"decide\(\) of slot 0 takes more than 2 s for one answer \(GANGWISE_A"),
        ("Forks", CPU, r"decide\(\) of slot \d takes more than 8 s of CPU time in all \(GANG"),
        ("Hoards", MEMORY, r"\w+\(\).* takes more than .* of this machine's memory \(GANGWISE_M"),
    ],
)
def test_limits_of_time_and_memory(
    wrong: str, limits: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names policy, decision and limit; nothing that it has started is left."""
    for name, value in limits.items():
        monkeypatch.setenv(name, value)
    told = tmp_path / "told"
    told.touch()
    named = f"{HERE}:{wrong}" + (f":told={told}" if wrong in ("Deaf", "Forks") else "")
    with pytest.raises(PolicyCheckFailed, match=f"slot .*: {wrong}.*: {said}"):
        check_policy(named, problems=1, slots=200, isolated=True)
    assert not [pid for pid in told.read_text().split() if birth(int(pid))]
    assert told.read_text() or wrong in ("Sleeps", "Hoards")


def test_a_scheduler_has_limits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWISE_ANSWER_SECONDS", "2")
    said = r"LoopsInPlace: place\(\) at \d+ s takes more than 2 s"
    with pytest.raises(SchedulerCheckFailed, match=said):
        check_scheduler(f"{HERE}:LoopsInPlace", cases=1, isolated=True)
    monkeypatch.delenv("GANGWISE_ANSWER_SECONDS")
    one = IsolatedProcess("scheduler", f"{HERE}:OwnComposed", {})
    _end(one._process)
    other = IsolatedProcess("scheduler", f"{HERE}:OwnComposed", {})
    number = other.new()
    one.forget(number)  # whose pipes had the numbers that those of the other have now
    assert other.save(number)
    with pytest.raises(IsolatedError, match="has ended"):
        one.new()
    monkeypatch.setenv("GANGWISE_ANSWER_SECONDS", "soon")
    with pytest.raises(ScenarioError, match="GANGWISE_ANSWER_SECONDS"):
        check_scheduler(f"{HERE}:OwnComposed", cases=1, isolated=True)


def test_half_a_fork_does_not_answer() -> None:
    instance = create("scenario", "ogasched-default-v1:servers=8").instance(seed=0)
    alone = simulate(instance, IsolatedPolicy(f"{HERE}:ForksAndReturns"), slots=5, seed=0)
    assert np.array_equal(
        alone.rewards, simulate(instance, create_policy("fairness"), slots=5, seed=0).rewards
    )


@dataclass
class ComputesForEver(Fairness):
    """Tells that it was asked, forks, and computes where no signal of Python's gets through."""

    told: str = ""

    def decide(self, observation):
        if not os.fork():
            let_loose(self.told)
        while not Path(self.told).exists():
            time.sleep(0.01)
        with open(self.told, "a") as file:
            file.write(f"{os.getpid()}\n")
        sum(range(10**15))


@dataclass
class TakesAll(Fairness):
    def decide(self, observation):
        return bytearray(2**50) and super().decide(observation)


PLAY = """
import sys
from gangwise import simulate, create_scenario
from contextlib import nullcontext
from gangwise.core.stopping import exit_code, requests_to_stop, stop_at_once
from gangwise.core.isolation import IsolatedPolicy
instance = create_scenario("ogasched-default-v1:servers=8").instance(seed=0)
stop_at_once()
try:
    with requests_to_stop() if sys.argv[3] == "ask" else nullcontext():
        simulate(instance, IsolatedPolicy(sys.argv[1], {"told": sys.argv[2]}), slots=5, seed=0)
except KeyboardInterrupt as stop:
    sys.exit(exit_code(stop))
"""


@pytest.mark.parametrize(
    ("number", "how"), [(signal.SIGTERM, "raise"), (signal.SIGINT, "ask"), (signal.SIGKILL, "")]
)
def test_it_holds_off_no_signal_and_dies_with_who_asks(
    tmp_path: Path, number: int, how: str
) -> None:
    told = tmp_path / "told"
    command = [sys.executable, "-c", PLAY, f"{HERE}:ComputesForEver", str(told), how]
    asking = subprocess.Popen(command)
    while not (told.exists() and told.read_text().count("\n") == 2):
        assert asking.poll() is None
        time.sleep(0.05)
    alone = [int(pid) for pid in told.read_text().split()]
    asking.send_signal(number)
    code = asking.wait(60.0)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    for _ in range(600):  # it is its own process group: nobody else would end it
        if not any(map(birth, alone)):
            break
        time.sleep(0.05)
    else:
        for pid in filter(birth, alone):
            os.kill(pid, signal.SIGKILL)
        pytest.fail("it, or what it forked, outlived who asked")


def test_it_takes_no_more_memory_than_it_may() -> None:
    instance = create("scenario", "ogasched-default-v1:servers=8").instance(seed=0)
    with pytest.raises(IsolatedError, match="MemoryError"):
        simulate(instance, IsolatedPolicy(f"{HERE}:TakesAll"), slots=2, seed=0)


def test_replays_and_runs_may_be_isolated() -> None:
    own = f"{HERE}:OwnComposed"
    played = replay("twin:alibaba-gpu-v2023", [own, "fcfs+none+best-fit"], first=40, isolated=True)
    first, second = (each[0].end for each in played.outcomes.values())
    assert np.array_equal(first, second)
    assert played.results.runs[0]["label"] == "OwnComposed"


@dataclass
class OwnComposed(Composed):
    """First come, first served."""


def test_a_class_of_a_function_cannot_be_isolated() -> None:
    @dataclass
    class Local(Fairness):
        pass

    with pytest.raises(ScenarioError, match="class"):
        IsolatedPolicy.of(Local())


def test_the_command_says_it_in_a_sentence() -> None:
    run = CliRunner()
    found = run.invoke(app, ["check", f"{HERE}:LooksBehindTheArray", "--cases", "1", "--json"])
    assert found.exit_code == 1
    assert '"sound": false' in found.output
    assert "reads what it is not shown" in found.output
    assert "did you mean greedy" in str(run.invoke(app, ["check", "gready"]).exception)
