"""An event as the matching room sees it, and the exact tests on it.

`passes` is the whole meaning of a subscription's conditions, one test after the other.
The indexes only save asking it; where they settle a test themselves they say so.
"""

from protocol.conditions import Conditions, Spatial
from protocol.geometry_distance import distance_metres
from protocol.geometry_metres import circle
from protocol.geometry_place import Place
from protocol.relations import COVERS, spatial
from protocol.values import value


@value
class Probe:
    """Where and when something happened, and where its publisher was."""

    place: Place | None  # the event's own place, else its publisher's location
    publisher: Place | None
    start_ms: int
    end_ms: int


def holds(test: Spatial, probe: Probe, here: Place | None) -> bool:
    """Tell whether a spatial test holds; `here` is where the subscriber is."""
    place = probe.publisher if test.of_publisher else probe.place
    if place is None:
        return False
    if test.place is not None:
        return spatial(test.relation, test.place, place, test.operand)
    if here is None:
        return False
    if test.relation == COVERS and not place.is_point:
        return spatial(COVERS, circle(here.x, here.y, test.near_m), place)
    return distance_metres(here, place) <= test.near_m


def in_time(conditions: Conditions, probe: Probe) -> bool:
    """Tell whether all temporal tests hold."""
    for test in conditions.temporal:
        if not test.windows.holds(test.relation, probe.start_ms, probe.end_ms):
            return False
    return True


def passes(
    conditions: Conditions, probe: Probe, here: Place | None, settled: Spatial | None = None
) -> bool:
    """Tell whether all tests hold, except the one that an index has settled already."""
    if conditions.temporal and not in_time(conditions, probe):
        return False
    for test in conditions.spatial:
        if test is not settled and not holds(test, probe, here):
            return False
    return True
