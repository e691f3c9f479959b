"""What a user would build instead: the same broker, with an R-tree and a loop over shapely.

    python -m tests.bench.rtree_loop serve --port …

It takes the place of the fence index and of nothing else, and knows what the benchmark asks:
polygons that cover points, and subscriptions without a fence.
"""

from collections.abc import Sequence
from typing import Any

import shapely
from rtree.index import Index as RTree

import broker.router
from broker.matching.fences import FenceIndex
from broker.matching.probe import Probe
from geomqtt.cli import main


class RTreeLoop(FenceIndex[Any]):
    """Boxes in an R-tree, then one `covers` for each candidate."""

    def __init__(self) -> None:
        super().__init__()
        self._boxes = RTree()
        self._fences_by_number: dict[int, tuple[Any, Any]] = {}
        self._number = 0

    def add(self, item: Any) -> None:
        self._items[item] = None
        if not item.geo.spatial:
            self._anywhere[item] = None
            return
        geometry = item.geo.spatial[0].place.geometry
        self._number += 1
        self._fences_by_number[self._number] = (geometry, item)
        self._boxes.insert(self._number, geometry.bounds)

    def match(self, probe: Probe) -> list[Any]:
        found = list(self._anywhere)
        if probe.place is not None:
            point = shapely.Point(probe.place.x, probe.place.y)
            for number in self._boxes.intersection(point.bounds):
                geometry, item = self._fences_by_number[number]
                if geometry.covers(point):
                    found.append(item)
        return found

    def match_batch(self, probes: Sequence[Probe]) -> list[list[Any]]:
        return [self.match(probe) for probe in probes]

    def remove(self, item: Any) -> None:
        """Only when a connection ends, which nobody measures: forgotten with the process."""
        self._items.pop(item, None)


if __name__ == "__main__":
    broker.router.FenceIndex = RTreeLoop  # type: ignore[attr-defined]
    main()
