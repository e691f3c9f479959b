"""A small fuzzer in plain Python, for where atheris is not, and for a few seconds.

Inputs are made from seeds and from earlier inputs that brought about something new: the
target's outcome stands in for coverage. The same seed gives the same inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

MAX_BYTES = 2000
KEPT = 5000
HANG_S = 2.0
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF)
WORDS = (
    *(b"/", b"+", b"#", b"$geo/", b"$share/", b";", b"=", b"%2F", b"(", b")", b",", b"--", b".."),
    *(b"\x00\x00", b"\xff\xff", b"\xff\xff\xff\x7f", b"\xed\xa0\x80", b"\x00\x04MQTT\x04"),
    *(b"nan", b"1e308", b"-1", b"R/", b"PT1S", b"P9999Y", b"SRID=3857;", b"EMPTY", b"Z"),
    *(b"9" * 25, b"\xf0\x9f\x8c\x8d", b"{", b"}", b"[", b'"'),
)


class Finding(Exception):
    """An input that did what no input may do."""


def mutated(random: Random, data: bytes, other: bytes) -> bytes:
    """Change an input in one to four places."""
    made = bytearray(data)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(made) + 1)
        match random.randrange(8):
            case 0 if made:
                made[place % len(made)] = random.randrange(256)
            case 1 if made:
                made[place % len(made)] ^= 1 << random.randrange(8)
            case 2:
                made[place:place] = random.randbytes(random.randint(1, 4))
            case 3:
                del made[place : place + random.randint(1, 8)]
            case 4:
                made[place:place] = random.choice(WORDS)
            case 5 if made:
                made[place % len(made)] = random.choice(NUMBERS)
            case 6:
                start = random.randrange(len(other) + 1)
                made[place:] = other[start:]
            case _:
                part = made[place : place + random.randint(1, 16)]
                made[place:place] = part * random.randint(1, 20)
    return bytes(made[:MAX_BYTES])


def run(target: Callable[[bytes], str], seeds: list[bytes], *, runs: int, seed: int) -> int:
    """Throw inputs at a target; give how many kinds of outcome there were."""
    random = Random(seed)
    corpus = list(seeds)
    seen: set[str] = set()
    for number in range(runs):
        if number < len(seeds):
            data = seeds[number]
        else:
            data = mutated(random, random.choice(corpus), random.choice(corpus))
        started = time.process_time()
        try:
            outcome = target(data)
        except Exception as error:
            raise Finding(f"input {number}, {data.hex(' ')}: {error!r}") from error
        if time.process_time() - started > HANG_S:
            raise Finding(f"input {number}, {data.hex(' ')}: took over {HANG_S} s")
        if outcome not in seen and len(corpus) < KEPT:
            seen.add(outcome)
            corpus.append(data)
    return len(seen)
