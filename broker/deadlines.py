"""When connections have been silent for too long, without a timer each.

Links wait in buckets, four a second. When a bucket is due, each link in it says when it
will really be due; most have been heard of meanwhile and move to a later bucket. Reading
data costs a link one assignment and nothing here.
"""

from collections.abc import Callable
from typing import Protocol

BUCKET_S = 0.25


class Mortal(Protocol):
    """Something that ends unless it keeps showing signs of life."""

    bucket: int  # where it waits; -1 in the beginning

    def due_at(self) -> float | None:
        """Tell when it ends as things stand; None: never."""

    def expire(self) -> None:
        """End it."""


class Deadlines:
    """Buckets of things that may end, by quarter second of the monotonic clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[int, set[Mortal]] = {}
        self._next = int(clock() / BUCKET_S)

    def watch(self, mortal: Mortal) -> None:
        """Look at something again when it is due."""
        due_at = mortal.due_at()
        if due_at is not None:
            bucket = max(int(due_at / BUCKET_S) + 1, self._next)
            if mortal.bucket >= self._next:
                if mortal.bucket <= bucket:
                    return  # it is looked at before that anyway
                self.forget(mortal)
            mortal.bucket = bucket
            self._buckets.setdefault(bucket, set()).add(mortal)

    def forget(self, mortal: Mortal) -> None:
        """Let go of something that has ended, however far its deadline lies ahead."""
        if mortal.bucket >= self._next:
            others = self._buckets[mortal.bucket]
            others.discard(mortal)
            if not others:
                del self._buckets[mortal.bucket]
            mortal.bucket = -1

    def tick(self) -> None:
        """End what is due; call as often as there are buckets."""
        now = self._clock()
        while self._next * BUCKET_S <= now:
            bucket = self._next
            self._next += 1
            for mortal in self._buckets.pop(bucket, ()):
                due_at = mortal.due_at()
                if due_at is None:
                    continue
                if due_at <= now:
                    mortal.expire()
                else:
                    self.watch(mortal)
