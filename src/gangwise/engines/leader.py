"""The lead of a cluster: a lease that one service holds at a time, in a folder or on Slurm.

That of Kubernetes is in :mod:`gangwise.engines.kubernetes`.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gangwise.core.errors import EngineError, Rejected, StandingBy
from gangwise.engines import engine, launch
from gangwise.engines.background import BackgroundLoop, Backoff, clock

DURATION = 10.0  # seconds after which others may take the lead; at most 15 with the time of a look


FASTER = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)
"""Errors of the file system by which another service is seen to have taken the lead."""
END = "now+2hours"
"""End of a reservation, by no calendar, with a margin where our clock is an hour behind Slurm's."""


class Lease(NamedTuple):
    """A lease as the cluster has it."""

    holder: str  # empty where anybody may take it
    mine: bool
    renewal: object  # changes with each renewal
    duration: float  # seconds for which it holds without a renewal
    state: Any = None  # what is to be changed; a change that comes second is refused


class Leader(ABC):
    """A lease that is kept by a loop in the background: ``held`` says whether we may act.

    Where another service leads, :meth:`check` raises StandingBy, which is no fault; where the lease
    cannot be asked for, it raises EngineError.
    """

    what = "the lead"
    duration = DURATION
    wanted = True  # else it is left to other services

    def __init__(self) -> None:
        self._until = -float("inf")
        self._seen: tuple[object, float] = (None, -float("inf"))
        self.why = f"{self.what} is not held yet"
        # Short waits: several tries fit between a renewal that fails and the end of the lease.
        backoff = Backoff(self.duration / 8, self.duration / 6)
        self.loop = BackgroundLoop(self.what, self._renew, 6 * self.duration, backoff)
        # The first try is made here, so that a service knows at its start whether it leads.
        self.loop.start(after=self.loop.once())

    @abstractmethod
    def read(self) -> Lease | None:
        """The lease as the cluster has it; None where it has none."""

    @abstractmethod
    def take(self, found: Lease | None) -> None:
        """Take or renew it; raises StandingBy when another service was faster."""

    @abstractmethod
    def give_up(self) -> None:
        """Free the lease, so that others can take it at once."""

    @property
    def held(self) -> bool:
        return clock() < self._until

    def check(self) -> None:
        """Raise unless we may act."""
        if self.held:
            return
        if trouble := self.loop.trouble:
            raise EngineError(f"{self.what} cannot be asked for: {trouble}")
        raise StandingBy(f"standing by: {self.why}")

    def release(self) -> None:
        """Stop acting, and let another service act at once."""
        # The loop ends first: it would take the lease again.
        self.loop.join()
        if self.held:
            self._until = -float("inf")
            with contextlib.suppress(EngineError):
                self.give_up()

    def _renew(self) -> float:
        if not self.wanted:
            self.why = "it is left to others, for what is decided cannot be written down here"
            if self.held:
                # Acts end before the lease is free.
                self._until = -float("inf")
                self.give_up()
            return self.duration / 4
        try:
            # The lease runs from before the question: the answer may have been long under way.
            began, record = clock(), self.read()
            if record is None or not record.holder:  # a lease is not lost by one reply without it
                record = self.read()
            if record is not None and record.holder and not record.mine:
                # Clocks of two machines differ: another's lease runs from when we first saw this
                # renewal, by our clock.
                if self._seen[0] != record.renewal:
                    self._seen = record.renewal, began
                if began < self._seen[1] + record.duration:
                    self._until = -float("inf")
                    self.why = f"{record.holder} holds {self.what}"
                    return self.duration / 4
            self.take(record)
            # Acts end a third of the duration before others may begin: what is
            # under way is over by then.
            self._until = began + self.duration * 2 / 3
        except StandingBy as error:
            self._until, self.why = -float("inf"), str(error)
        return self.duration / 4


class Led:
    """An engine that changes its cluster only while its service leads."""

    _leader: Leader | None = None  # None: no other service acts here

    @property
    def leader(self) -> Leader | None:
        return self._leader

    @property
    def loops(self) -> list[BackgroundLoop]:
        """Loops in the background, which the service watches."""
        return [] if self._leader is None else [self._leader.loop]

    def close(self) -> None:
        if self._leader is not None:
            self._leader.release()

    def _check_lead(self) -> None:
        """Raise where another service leads."""
        if self._leader is not None:
            self._leader.check()

    def _wait_for_lead(self, seconds: float) -> None:
        """Wait where another service leads, and raise if it still does."""
        if self._leader is not None and not self._leader.held:
            time.sleep(seconds)
            self._leader.check()


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
        leaders = [name for name in names if re.fullmatch(r"leader\.\d{1,18}", name)]
        for name in leaders:
            if os.path.islink(self.cluster / name):
                raise EngineError(f"{self.cluster / name} is a link; remove it")
        return max((int(name[7:]) for name in leaders), default=0)

    def read(self) -> Lease | None:
        if (number := self._newest()) == 0:
            return None
        beat: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, engine.Malformed):
            # Of a beat that cannot be read the holder is unknown, which is not nobody.
            beat = dict(engine.read_json(self._folder(number) / "beat", 1 << 16))
        mine, holder = number == self.number, str(beat.get("holder", "whoever took it"))
        # The identity names a locked folder, so that another process of that name is dead.
        if holder == self.identity and not mine:  # an earlier life of ours, or one that lost it
            holder = "" if not self.number else "another by our name"
        return Lease(holder, mine, (number, beat.get("beat")), self.duration, number)

    def take(self, found: Lease | None) -> None:
        number = found.state if found else 0
        try:
            # mkdir and rename each fail for the second who tries: the file system decides.
            if found is None:
                os.mkdir(self._folder(1), 0o700)
            elif not found.mine:
                os.rename(self._folder(number), self._folder(number + 1))
            number += found is None or not found.mine
            self._beat(number, self.identity)
        except OSError as error:
            raise self._lost("another service was faster", error) from error
        if self._newest() != number:  # it was that of an older leader: we had looked too long ago
            raise StandingBy(f"{self.what}: another service was faster")
        self.number = number

    def _lost(self, how: str, error: OSError) -> EngineError:
        """Another service leads, where a folder is not there or there already; else a fault."""
        kind = StandingBy if error.errno in FASTER else EngineError
        return kind(f"{self.what}: {how} ({error.strerror})")

    def _beat(self, number: int, holder: str) -> None:
        beat = {"holder": holder, "beat": secrets.token_hex(4)}
        launch.write_json(self._folder(number) / "beat", beat)

    def give_up(self) -> None:
        with contextlib.suppress(OSError):
            self._beat(self.number, "")

    def write(self, path: Path, content: Any) -> None:
        """Write a file if we lead at that moment; raises Rejected where there is one already."""
        self.check()
        # Our own folder is not found where another service has renamed it: this write comes too
        # late.
        side = self._folder(self.number) / secrets.token_hex(8)
        try:
            side.write_text(json.dumps(content), encoding="utf-8")
            # Unlike a rename, a link fails where there is a file of that name.
            os.link(side, path)
        except FileExistsError:
            raise Rejected(f"{path} is there already: another service was faster") from None
        except OSError as error:
            if error.errno in FASTER:
                self._until = -float("inf")
            raise self._lost("standing by: it is lost", error) from error
        finally:
            side.unlink(missing_ok=True)


class ReservationLeader(Leader):
    """The lead of a Slurm cluster: a reservation of no nodes whose name has the leader's number.

    slurmctld refuses a second reservation of a name, so that one alone gets each number. Renewals
    put off its end, two hours from now; after that slurmctld removes it. ``run`` runs
    a command of Slurm's and gives its output.
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
        if found is not None and found.mine:
            name = f"ReservationName={self.prefix}{self.number}"
            self._run("scontrol", "update", name, f"EndTime={END}")
            return
        # From the clock, as slurmctld may have forgotten all reservations: no number comes again.
        number = 1 + (found.state if found else int(time.time()))
        # Without nodes a reservation has to name something: a burst buffer takes nothing from jobs.
        how = ("StartTime=now", f"EndTime={END}", "Users=root", "Flags=ANY_NODES", "BurstBuffer=1")
        name = f"ReservationName={self.prefix}{number}"
        try:
            self._run("scontrol", "create", "reservation", name, *how)
        except EngineError as error:
            # scontrol has one exit code for all that it refuses.
            if "Duplicate reservation name" in str(error):
                raise StandingBy(f"{self.what}: another service was faster") from error
            raise
        numbers = self._numbers()
        newest = max(numbers, default=0)
        if newest != number:  # another leads: we had looked too long ago
            self._delete(number)
            if newest < number:
                raise EngineError(f"{self.what}: {name} was made, and is not listed")
            raise StandingBy(f"{self.what}: another service was faster")
        self.number = number
        # Those of leaders before this one hold no nodes; they are only taken off the list.
        for older in numbers.keys() - {number}:
            self._delete(older)

    def _delete(self, number: int) -> None:
        with contextlib.suppress(EngineError):
            self._run("scontrol", "delete", f"ReservationName={self.prefix}{number}")

    def give_up(self) -> None:
        self._delete(self.number)
