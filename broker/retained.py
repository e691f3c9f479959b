"""Retained messages, found by filter without looking at all of them.

A tree with one node a topic level; a filter walks only the branches it can match, and
answers come in topic order.
"""

from collections.abc import Iterator

from protocol.message import Message


class _Node:
    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.message: Message | None = None


class Retained:
    """The last retained message of every topic."""

    def __init__(self) -> None:
        self._root = _Node()
        self._by_topic: dict[str, Message] = {}
        self.total_bytes = 0
        self.nodes = 0  # of the tree: deep topics cost more than their bytes

    def __len__(self) -> int:
        return len(self._by_topic)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._by_topic.values())

    def get(self, topic: str) -> Message | None:
        """Give the retained message of one topic."""
        return self._by_topic.get(topic)

    def keep(self, message: Message) -> None:
        """Retain a message in place of the one its topic had."""
        node = self._root
        for level in message.topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
                self.nodes += 1
            node = child
        self._count(message.topic, message)
        node.message = message

    def clear(self, topic: str) -> bool:
        """Forget the message of a topic; tell whether there was one."""
        if topic not in self._by_topic:
            return False
        self._count(topic, None)
        levels = topic.split("/")
        trail = [self._root]
        for level in levels:
            trail.append(trail[-1].children[level])
        trail[-1].message = None
        for depth in range(len(levels), 0, -1):
            if trail[depth].children or trail[depth].message is not None:
                break
            del trail[depth - 1].children[levels[depth - 1]]
            self.nodes -= 1
        return True

    def _count(self, topic: str, message: Message | None) -> None:
        old = self._by_topic.pop(topic, None)
        if old is not None:
            self.total_bytes -= len(old.topic) + len(old.payload)
        if message is not None:
            self._by_topic[topic] = message
            self.total_bytes += len(topic) + len(message.payload)

    def match(self, topic_filter: str) -> Iterator[Message]:
        """Give the retained messages that a filter matches, in topic order."""
        if "+" not in topic_filter and "#" not in topic_filter:
            message = self._by_topic.get(topic_filter)
            if message is not None:
                yield message
            return
        levels = topic_filter.split("/")
        # No recursion: topics may be as deep as the operator allows. The next one is on top.
        stack = [(self._root, 0)]
        while stack:
            node, depth = stack.pop()
            level = levels[depth] if depth < len(levels) else ""
            if node.message is not None and (depth == len(levels) or level == "#"):
                yield node.message
            if depth == len(levels):
                continue
            if level in ("#", "+"):
                below = depth if level == "#" else depth + 1
                for name in sorted(node.children, reverse=True):
                    if node is not self._root or not name.startswith("$"):  # [MQTT-4.7.2-1]
                        stack.append((node.children[name], below))
            elif level in node.children:
                stack.append((node.children[level], depth + 1))
