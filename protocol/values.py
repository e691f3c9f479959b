"""How packets and other small values are declared."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


# dataclass(frozen=True) makes a seven-field packet in 528 ns instead of 116 ns
# (CPython 3.11), so only the type checkers freeze ours.
@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a slotted dataclass that type checkers hold to be immutable."""
    return dataclass(slots=True)(cls)
