"""What `geomqtt demo` shows while it runs: a small table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

PLURALS = {
    "sensor": "dike sensors",
    "ferry": "ferry",
    "vehicle": "vehicles",
    "walker": "walkers",
    "watcher": "watchers",
}


class Progress(Protocol):
    """Shows totals every so often, and once more at the end."""

    interval_s: float

    def show(self, totals: dict[str, Any]) -> None:
        """Show how it stands."""

    def close(self, totals: dict[str, Any]) -> None:
        """Say how it went."""


def make_progress(args: argparse.Namespace) -> Progress:
    """Choose by whether somebody looks at a terminal."""
    return Screen(args) if sys.stdout.isatty() else Lines(args)


class _Rate:
    """Events a second since the last look."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._sent: dict[str, int] = {}

    def since_last(self, totals: dict[str, Any]) -> dict[str, float]:
        """Give the rate of each kind."""
        passed_s = max(totals["seconds"] - self._seconds, 0.001)
        sent = totals["sent"]
        rates = {kind: (sent[kind] - self._sent.get(kind, 0)) / passed_s for kind in sent}
        self._seconds, self._sent = totals["seconds"], sent
        return rates


def _summary(totals: dict[str, Any]) -> str:
    sent = sum(totals["sent"].values())
    rate = sent / max(totals["seconds"], 0.001)
    return (
        f"{sent:,} events published in {totals['seconds']:.0f} s ({rate:,.0f} a second), "
        f"{totals['received']:,} received by subscribers"
    )


class Lines:
    """One line every few seconds, for logs and pipes."""

    interval_s = 5.0

    def __init__(self, args: argparse.Namespace) -> None:
        self._rate = _Rate()
        print(f"connecting to {args.host}:{args.port}", flush=True)

    def show(self, totals: dict[str, Any]) -> None:
        """Print a line."""
        rate = sum(self._rate.since_last(totals).values())
        print(
            f"{totals['seconds']:.0f} s: {totals['connected']}/{totals['clients']} connected, "
            f"{sum(totals['sent'].values()):,} events, {rate:,.0f} a second, "
            f"{totals['received']:,} received",
            flush=True,
        )

    def close(self, totals: dict[str, Any]) -> None:
        """Print the summary."""
        if totals["clients"]:
            print(_summary(totals), flush=True)


class Screen:
    """A table that is redrawn in place."""

    interval_s = 0.5

    def __init__(self, args: argparse.Namespace) -> None:
        self._rate = _Rate()
        self._title = f"geomqtt demo → {args.host}:{args.port}"
        self._console = Console()
        self._live: Live | None = None

    def show(self, totals: dict[str, Any]) -> None:
        """Redraw the table."""
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(self._table(totals), refresh=True)

    def _table(self, totals: dict[str, Any]) -> Table:
        rates = self._rate.since_last(totals)
        waiting = totals["clients"] - totals["connected"]
        caption = f"{totals['seconds']:.0f} s, Ctrl-C ends it"
        if waiting:
            caption = f"{waiting} of {totals['clients']} wait for the broker; " + caption
        table = Table(title=self._title, caption=caption, title_justify="left", min_width=52)
        table.add_column("who")
        for name in ("how many", "events", "a second"):
            table.add_column(name, justify="right")
        for kind, count in totals["members"].items():
            sent = totals["sent"].get(kind)
            table.add_row(
                PLURALS[kind],
                f"{count:,}",
                "" if sent is None else f"{sent:,}",
                "" if sent is None else f"{rates[kind]:,.0f}",
            )
        table.add_section()
        table.add_row(
            "[bold]published[/]",
            f"{totals['clients']:,}",
            f"[bold]{sum(totals['sent'].values()):,}[/]",
            f"[bold]{sum(rates.values()):,.0f}[/]",
        )
        table.add_row("received", "", f"{totals['received']:,}", "")
        return table

    def close(self, totals: dict[str, Any]) -> None:
        """Leave the last table and the summary on the screen."""
        if self._live is not None:
            self._live.stop()
        if totals["clients"]:
            self._console.print(_summary(totals))
