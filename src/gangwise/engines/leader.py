"""One service acts on a cluster, others stand by: a lease that the cluster itself keeps.

Leaders are numbered, and the cluster decides which service gets the next number. A leader renews
its lease. If it has not for the lease's duration, any other may take the next number. Each service
measures that time from the last renewal that it saw, by a clock of its own, which goes on while the
machine sleeps. A leader stops acting after two thirds of the duration.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gangwise.core.errors import EngineError, Rejected, StandingBy
from gangwise.engines import launch

DURATION = 10.0  # seconds after which others may take the lead; at most 15 with the time of a look


def clock() -> float:
    """Seconds that go on while the machine sleeps, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease(NamedTuple):
    """A lease as the cluster has it."""

    holder: str  # empty where anybody may take it
    mine: bool
    renewal: object  # another one after each renewal
    duration: float  # seconds for which it holds without a renewal
    state: Any = None  # what is to be changed; a change that comes second is refused


class Leader(ABC):
    """Keeps a lease in a thread of its own: ``held`` says whether we may act, ``why`` why not."""

    what = "the lead"
    duration = DURATION

    def __init__(self) -> None:
        self._until = -float("inf")
        self._seen: tuple[object, float] = (None, -float("inf"))
        self._over = threading.Event()
        self.why = f"{self.what} is not held yet"
        self._renew()
        threading.Thread(target=self._keep, daemon=True).start()

    @abstractmethod
    def read(self) -> Lease | None:
        """The lease as the cluster has it; None where it has none."""

    @abstractmethod
    def take(self, found: Lease | None) -> None:
        """Take or renew it; raises EngineError when somebody else was faster."""

    @abstractmethod
    def give_up(self) -> None:
        """Free the lease, so that others can take it at once."""

    @property
    def held(self) -> bool:
        return clock() < self._until

    def check(self) -> None:
        """Raise StandingBy unless we may act."""
        if not self.held:
            raise StandingBy(f"standing by: {self.why}")

    def release(self) -> None:
        """Stop acting, and let another service act at once."""
        self._over.set()
        if self.held:
            self._until = -float("inf")
            with contextlib.suppress(EngineError):
                self.give_up()

    def _keep(self) -> None:
        while not self._over.wait(self.duration / 5):
            self._renew()

    def _renew(self) -> None:
        try:
            # The lease runs from before the question: the answer may have been long under way.
            asked, found = clock(), self.read()
            if found is not None and found.holder and not found.mine:
                if self._seen[0] != found.renewal:
                    self._seen = found.renewal, asked
                if asked < self._seen[1] + found.duration:
                    self._until = -float("inf")
                    self.why = f"{found.holder} holds {self.what}"
                    return
            self.take(found)
            self._until = asked + self.duration * 2 / 3
        except EngineError as error:
            self.why = str(error)


class FolderLeader(Leader):
    """The lead of a cluster of local processes: a folder in it whose name has the leader's number.

    Whoever takes the lead renames the folder, and only one can. A leader changes the cluster by
    linking files out of its own folder, which it no longer finds when another has taken the lead:
    the kernel refuses, however long the leader had been stopped before. One that was stopped and
    comes back by the same ``identity`` need not wait.
    """

    def __init__(self, cluster: Path, identity: str):
        self.cluster, self.identity, self.number = cluster, identity, 0
        self.what = f"the lead of {cluster}"
        super().__init__()

    def _folder(self, number: int) -> Path:
        return self.cluster / f"leader.{number}"

    def _newest(self) -> int:
        try:
            names = os.listdir(self.cluster)
        except OSError as error:
            raise EngineError(f"{self.cluster}: {error.strerror}") from error
        return max(
            (int(name[7:]) for name in names if re.fullmatch(r"leader\.\d+", name)), default=0
        )

    def read(self) -> Lease | None:
        if (number := self._newest()) == 0:
            return None
        beat: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            beat = json.loads((self._folder(number) / "beat").read_bytes())
        mine, holder = number == self.number, str(beat.get("holder", "whoever took it"))
        if holder == self.identity and not mine:  # an earlier life of ours, or one that lost it
            holder = "" if not self.number else "another by our name"
        return Lease(holder, mine, (number, beat.get("beat")), self.duration, number)

    def take(self, found: Lease | None) -> None:
        number = found.state if found else 0
        try:
            if found is None:
                os.mkdir(self._folder(1), 0o700)
            elif not found.mine:
                os.rename(self._folder(number), self._folder(number + 1))
            number += found is None or not found.mine
            self._beat(number, self.identity)
        except OSError as error:
            raise EngineError(
                f"{self.what}: somebody else was faster ({error.strerror})"
            ) from error
        if self._newest() != number:  # it was that of an older leader: we had looked too long ago
            raise EngineError(f"{self.what}: somebody else was faster")
        self.number = number

    def _beat(self, number: int, holder: str) -> None:
        beat = {"holder": holder, "beat": secrets.token_hex(4)}
        launch.write_json(self._folder(number) / "beat", beat)

    def give_up(self) -> None:
        with contextlib.suppress(OSError):
            self._beat(self.number, "")

    def write(self, path: Path, content: Any) -> None:
        """Write a file if we lead at that moment; raises Rejected where there is one already."""
        self.check()
        side = self._folder(self.number) / secrets.token_hex(8)
        try:
            side.write_text(json.dumps(content), encoding="utf-8")
            os.link(side, path)
        except FileExistsError:
            raise Rejected(f"{path} is there already: somebody else was faster") from None
        except OSError as error:
            self._until = -float("inf")
            raise StandingBy(f"standing by: {self.what} is lost ({error.strerror})") from error
        finally:
            side.unlink(missing_ok=True)


class ReservationLeader(Leader):
    """The lead of a Slurm cluster: a reservation of no nodes whose name has the leader's number.

    slurmctld refuses a second reservation of a name, so that one alone gets each number. Renewals
    put off its end, an hour from now; after that slurmctld removes it. ``run`` runs a command of
    Slurm's and gives its output.
    """

    prefix = "gangwise-leader-"

    def __init__(self, run: Callable[..., str]):
        self._run, self.number = run, 0
        super().__init__()

    def read(self) -> Lease | None:
        numbers = self._numbers()
        if not numbers:
            return None
        newest = max(numbers)
        holder, mine = f"{self.prefix}{newest}", newest == self.number
        return Lease(holder, mine, numbers[newest], self.duration, newest)

    def _numbers(self) -> dict[int, str]:
        printed = self._run("scontrol", "-o", "show", "reservation")
        pattern = rf"(?m)^ReservationName={self.prefix}(\d+) .*?EndTime=(\S+)"
        return {int(m[1]): m[2] for m in re.finditer(pattern, printed)}

    def take(self, found: Lease | None) -> None:
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 3600.0))
        if found is not None and found.mine:
            name = f"ReservationName={self.prefix}{self.number}"
            self._run("scontrol", "update", name, f"EndTime={end}")
            return
        number = 1 + (found.state if found else int(time.time()))
        what = ("StartTime=now", f"EndTime={end}", "Users=root", "Flags=ANY_NODES", "BurstBuffer=1")
        name = f"ReservationName={self.prefix}{number}"
        self._run("scontrol", "create", "reservation", name, *what)
        numbers = self._numbers()
        if max(numbers, default=0) != number:  # another leads: we had looked too long ago
            self._delete(number)
            raise EngineError(f"{self.what}: somebody else was faster")
        self.number = number
        for older in numbers.keys() - {number}:
            self._delete(older)

    def _delete(self, number: int) -> None:
        with contextlib.suppress(EngineError):
            self._run("scontrol", "delete", f"ReservationName={self.prefix}{number}")

    def give_up(self) -> None:
        self._delete(self.number)
