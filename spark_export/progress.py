"""What the user sees while Spark works: a live line on a terminal, plain lines in a log."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.status import Status

POLL_S = 0.25


class Progress:
    """Tells steps as they begin and end, to standard error."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._label = ""
        self.spark: SparkSession | None = None

    def say(self, line: str) -> None:
        """Tell one thing."""
        if self._console.is_terminal:
            self._console.print(escape(line))
        else:
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._console.print(escape(f"{moment} {line}"))

    def fail(self, line: str) -> None:
        """Tell why something was not done."""
        if self._console.is_terminal:
            self._console.print(f"[bold red]geomqtt:[/] {escape(line)}")
        else:
            print(f"geomqtt: {line}", file=sys.stderr)

    @contextmanager
    def step(self, label: str) -> Iterator[None]:
        """Show that something is going on, with Spark's tasks as they finish."""
        start = time.monotonic()
        if not self._console.is_terminal:
            self.say(label)
            yield
            return
        over = threading.Event()
        with self._console.status(escape(label)) as status:
            watcher = threading.Thread(
                target=self._watch, args=(status, label, over), name="spark-progress", daemon=True
            )
            watcher.start()
            try:
                yield
            finally:
                over.set()
                watcher.join()
        self._console.print(f"[green]✓[/] {escape(label)} [dim]{time.monotonic() - start:.1f} s[/]")

    def _watch(self, status: "Status", label: str, over: threading.Event) -> None:
        while not over.wait(POLL_S):
            done, total = self._tasks()
            if total:
                width = 24 * done // total
                bar = "━" * width + "[dim]" + "━" * (24 - width) + "[/]"
                status.update(f"{escape(label)} {bar} {done}/{total} tasks")

    def _tasks(self) -> tuple[int, int]:
        if self.spark is None:
            return 0, 0
        tracker = self.spark.sparkContext.statusTracker()
        done = total = 0
        for stage_id in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done, total = done + stage.numCompletedTasks, total + stage.numTasks
        return done, total
