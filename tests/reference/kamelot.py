"""OAR's scheduler Kamelot, plainly: the time ahead as a chain of slots, made anew at each event.

A slot has a begin, a last second and the nodes that are free throughout. Running jobs are entered
in the order of their starts. The search for the slots that a job covers does not go back to the
first slot: it goes on from the slot object that the job before ended in. Waiting jobs then get, in
the order of their numbers, the first slot from which enough nodes are free for their whole limit.
Nodes hold one job each; times are whole seconds. Nothing is shared with the package.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

FOREVER = 2**31


@dataclass
class Slot:
    begin: int
    last: int
    free: set[int]
    next: Slot | None = None


class Chain:
    def __init__(self, nodes: int, now: int):
        self.first = Slot(now, FOREVER, set(range(nodes)))

    def take(self, left: Slot, right: Slot, start: int, seconds: int, nodes: set[int]) -> None:
        """Take nodes off the slots from left to right, which are split at both ends."""
        slot: Slot | None = left
        while slot is not None:
            following = None if slot is right else slot.next
            if start > slot.begin:
                before = Slot(slot.begin, start - 1, set(slot.free), slot)
                if slot is self.first:
                    self.first = before
                else:
                    at = self.first
                    while at.next is not slot:
                        assert at.next is not None
                        at = at.next
                    at.next = before
                slot.begin = start
            if start + seconds - 1 < slot.last:
                slot.next = Slot(start + seconds, slot.last, set(slot.free), slot.next)
                slot.last = start + seconds - 1
            slot.free -= nodes
            slot = following

    def enter_running(self, running: list[tuple[int, int, set[int]]]) -> None:
        """Enter (start, seconds, nodes) in the order of starts."""
        at = self.first
        for start, seconds, nodes in running:
            left = right = self.first
            while at.last < start + seconds:
                assert at.next is not None
                at = right = at.next
            self.take(left, right, start, seconds, nodes)

    def earliest(self, size: int, seconds: int) -> tuple[int, set[int]]:
        left: Slot | None = self.first
        while left is not None:
            if left.last < left.begin:  # of no seconds, where two ends coincide: see the docs
                left = left.next
                continue
            right, free = left, set(left.free)
            while right.last - left.begin + 1 < seconds:
                assert right.next is not None
                right = right.next
                free &= right.free
            if len(free) >= size:
                nodes = set(sorted(free)[:size])
                self.take(left, right, left.begin, seconds, nodes)
                return left.begin, nodes
            left = left.next
        raise AssertionError("no slot lasts for ever")


def play(
    submit: list[int], run: list[int], limit: list[int], size: list[int], nodes: int
) -> list[int]:
    """When each job starts."""
    start = [-1] * len(submit)
    on: dict[int, set[int]] = {}
    waiting: list[int] = []
    events = [(at, j) for j, at in enumerate(submit)]
    heapq.heapify(events)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, j = heapq.heappop(events)
            if j in on:
                del on[j]
            else:
                waiting.append(j)
        chain = Chain(nodes, now)
        by_start = sorted(on, key=lambda j: (start[j], j))
        chain.enter_running([(start[j], limit[j], on[j]) for j in by_start])
        for j in sorted(waiting):
            when, where = chain.earliest(size[j], limit[j])
            if when == now:
                start[j], on[j] = now, where
                waiting.remove(j)
                heapq.heappush(events, (now + run[j], j))
    return start
