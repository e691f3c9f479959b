"""Topic filters, many at once: which leaves belong to a topic?

Filters without wildcards live in a dictionary, the others in a trie with one node a level.
A leaf is whatever the owner wants to find again; it is made on first use and dropped when
the owner says that it is empty. The cost of a lookup depends on the depth of the topic and
the wildcards that meet it, not on the number of filters.
"""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

L = TypeVar("L")


class _Node(Generic[L]):
    __slots__ = ("children", "leaf", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node[L]] = {}
        self.leaf: L | None = None
        self.rest: L | None = None  # the leaf of this level's '#'

    @property
    def empty(self) -> bool:
        return not self.children and self.leaf is None and self.rest is None


class TopicTrie(Generic[L]):
    """A map from topic filters to leaves that is asked with topics."""

    def __init__(self, make_leaf: Callable[[], L]) -> None:
        self._make_leaf = make_leaf
        self._exact: dict[str, L] = {}
        self._root: _Node[L] = _Node()
        self._count = 0

    def __len__(self) -> int:
        return len(self._exact) + self._count

    def get(self, topic_filter: str) -> L | None:
        """Find the leaf of a filter, if it has one."""
        if not has_wildcard(topic_filter):
            return self._exact.get(topic_filter)
        *path, last = topic_filter.split("/")
        node: _Node[L] | None = self._root
        for level in path if last == "#" else [*path, last]:
            node = node.children.get(level) if node is not None else None
        if node is None:
            return None
        return node.rest if last == "#" else node.leaf

    def ensure(self, topic_filter: str) -> L:
        """Find the leaf of a filter, or make it."""
        if not has_wildcard(topic_filter):
            leaf = self._exact.get(topic_filter)
            if leaf is None:
                leaf = self._exact[topic_filter] = self._make_leaf()
            return leaf
        *path, last = topic_filter.split("/")
        node = self._root
        for level in path if last == "#" else [*path, last]:
            node = node.children.setdefault(level, _Node())
        leaf = node.rest if last == "#" else node.leaf
        if leaf is None:
            leaf = self._make_leaf()
            self._count += 1
            if last == "#":
                node.rest = leaf
            else:
                node.leaf = leaf
        return leaf

    def discard(self, topic_filter: str) -> None:
        """Forget the leaf of a filter, and the nodes that led to nothing else."""
        if not has_wildcard(topic_filter):
            self._exact.pop(topic_filter, None)
            return
        *path, last = topic_filter.split("/")
        trail = [self._root]
        for level in path if last == "#" else [*path, last]:
            child = trail[-1].children.get(level)
            if child is None:
                return
            trail.append(child)
        node = trail[-1]
        if (node.rest if last == "#" else node.leaf) is None:
            return
        self._count -= 1
        if last == "#":
            node.rest = None
        else:
            node.leaf = None
        levels = topic_filter.split("/")
        for depth in range(len(trail) - 1, 0, -1):
            if not trail[depth].empty:
                return
            del trail[depth - 1].children[levels[depth - 1]]

    def match(self, topic: str) -> list[L]:
        """Give the leaves of all filters that match a topic."""
        found: list[L] = []
        leaf = self._exact.get(topic)
        if leaf is not None:
            found.append(leaf)
        if self._count:
            levels = topic.split("/")
            # [MQTT-4.7.2-1]: no filter that begins with a wildcard sees a $-topic.
            self._collect(levels, found, wild_start=not topic.startswith("$"))
        return found

    def _collect(self, levels: list[str], found: list[L], *, wild_start: bool) -> None:
        nodes = [self._root]
        for position, level in enumerate(levels):
            below: list[_Node[L]] = []
            for node in nodes:
                wild = wild_start or position > 0
                if node.rest is not None and wild:
                    found.append(node.rest)
                children = node.children
                if level in children:
                    below.append(children[level])
                if wild and "+" in children:
                    below.append(children["+"])
            if not below:
                return
            nodes = below
        for node in nodes:
            if node.leaf is not None:
                found.append(node.leaf)
            if node.rest is not None:  # "sport/#" matches "sport" too
                found.append(node.rest)

    def items(self) -> Iterator[tuple[str, L]]:
        """Give every filter with its leaf."""
        yield from self._exact.items()
        stack: list[tuple[list[str], _Node[L]]] = [([], self._root)]
        while stack:
            path, node = stack.pop()
            if node.leaf is not None:
                yield "/".join(path), node.leaf
            if node.rest is not None:
                yield "/".join([*path, "#"]), node.rest
            stack.extend(([*path, level], child) for level, child in node.children.items())


def has_wildcard(topic_filter: str) -> bool:
    """Tell whether a filter can match more than one topic."""
    return "+" in topic_filter or "#" in topic_filter
