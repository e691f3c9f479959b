"""The results as a table for the terminal, as JSON, and as a plot."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.bars import BARS, OURS, Medians, Verdict, judge
from tests.bench.rows import Row

Results = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]  # broker -> row -> rounds


# Cores that other processes may use, in the median, before the report warns of it.
OTHERS_ALLOWED = 0.15


def medians_of(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """Take the median of each metric; a row that failed in most rounds has failed."""
    medians: dict[str, dict[str, dict[str, Any]]] = {}
    for broker, rows in results.items():
        medians[broker] = {}
        for row, rounds in rows.items():
            good = [r for r in rounds if "failed" not in r]
            bad = [r for r in rounds if "failed" in r]
            if len(good) > len(bad):
                keys = [key for key, value in good[0].items() if value is not None]
                medians[broker][row] = {
                    key: median(r[key] for r in good if r[key] is not None) for key in keys
                }
                if bad:
                    medians[broker][row]["failed_rounds"] = len(bad)
            elif bad:
                medians[broker][row] = {"failed": bad[-1]["failed"]}
    return medians


def lines(cells: Sequence[Sequence[str]]) -> str:
    """Align a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    made = []
    for line in cells:
        first, *others = (
            cell.ljust(w) if not i else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        made.append("  ".join([first, *others]).rstrip())
    made.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(made)


def cell(values: Mapping[str, Any], metric: str, form: str) -> str:
    if "failed" in values:
        return "failed"
    return format(values[metric], form) if values.get(metric) is not None else "–"


def ratio(ours: Mapping[str, Any], theirs: Mapping[str, Any], metric: str) -> str:
    if not ours.get(metric) or not theirs.get(metric):
        return "–"
    return f"{ours[metric] / theirs[metric]:.2f} x"


def table(
    title: str, rows: Sequence[Row], medians: Medians, metric: str, form: str, *, ratios: bool
) -> str:
    brokers = list(medians)
    peers = [b for b in brokers if b != OURS] if ratios and OURS in medians else []
    cells = [[title, *brokers, *(f"/{peer}" for peer in peers)]]
    for row in rows:
        values = {broker: medians[broker].get(row.name, {}) for broker in brokers}
        cells.append(
            [row.title]
            + [cell(values[broker], metric, form) for broker in brokers]
            + [ratio(values[OURS], values[peer], metric) for peer in peers]
        )
    return lines(cells)


def latency_table(rows: Sequence[Row], medians: Medians) -> str:
    cells = [["latency p50 / p99, µs", *medians]]
    for row in rows:
        line = [row.title]
        for broker in medians:
            values = medians[broker].get(row.name, {})
            p50, p99 = cell(values, "p50_us", ",.0f"), cell(values, "p99_us", ",.0f")
            line.append(f"{p50} / {p99}" if "p50_us" in values else p50)
        cells.append(line)
    return lines(cells)


def failures(rows: Sequence[Row], medians: Medians) -> list[str]:
    said = []
    for broker in medians:
        for row in rows:
            values = medians[broker].get(row.name, {})
            if "failed" in values:
                said.append(f"{broker}, {row.title}: {values['failed']}")
            elif "failed_rounds" in values:
                said.append(f"{broker}, {row.title}: {values['failed_rounds']} round(s) failed")
    return said


def interference(results: Results) -> str | None:
    """Say so if other processes were at work, for then the figures are those of two loads."""
    others = [
        r["other_cores"]
        for rows in results.values()
        for rounds in rows.values()
        for r in rounds
        if "other_cores" in r
    ]
    if not others or median(others) < OTHERS_ALLOWED:
        return None
    return f"other processes used {median(others):.1f} cores meanwhile: the figures are noisy"


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    made = []
    for verdict in verdicts:
        value = "" if verdict.value is None else f" ({verdict.value:.2f})"
        kind = "aim" if verdict.bar.is_aim else "bar"
        made.append(f"{kind}  {verdict.bar}: {verdict.word}{value}")
    return made


def text(rows: Sequence[Row], results: Results) -> str:
    """Return the whole report as it is printed."""
    medians = medians_of(results)
    loads = [row for row in rows if not row.idle]
    idle = [row for row in rows if row.idle]
    parts = []
    if loads:
        parts += [
            table("deliveries per second", loads, medians, "rate", ",.0f", ratios=True),
            table("broker CPU, µs per delivery", loads, medians, "cpu_us", ".2f", ratios=False),
            latency_table(loads, medians),
            table("generator, cores used", loads, medians, "generator_cores", ".2f", ratios=False),
        ]
    if idle:
        parts.append(table("KiB per connection", idle, medians, "kib", ".2f", ratios=True))
        parts.append(
            table("connections per second", idle, medians, "connects", ",.0f", ratios=True)
        )
    if failed := failures(rows, medians):
        parts.append("\n".join(failed))
    if warning := interference(results):
        parts.append(warning)
    names = {row.name for row in rows}
    verdicts = [judge(bar, medians) for bar in BARS if bar.row in names]
    parts.append("\n".join(verdict_lines(verdicts)))
    return "\n\n".join(parts)


def save_json(
    path: Path, machine: Mapping[str, Any], rows: Sequence[Row], results: Results
) -> None:
    medians = medians_of(results)
    names = {row.name for row in rows}
    verdicts = [judge(bar, medians) for bar in BARS if bar.row in names]
    path.write_text(
        json.dumps(
            {
                "machine": machine,
                "rows": {row.name: row.title for row in rows},
                "medians": medians,
                "rounds": results,
                "bars": [
                    {"bar": str(v.bar), "aim": v.bar.is_aim, "verdict": v.word, "value": v.value}
                    for v in verdicts
                ],
            },
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )


def save_plot(paths: Sequence[Path], rows: Sequence[Row], results: Results) -> bool:
    """Draw deliveries per second and KiB per idle connection; tell whether there was any."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    medians = medians_of(results)
    panels = [
        ("deliveries per second", "rate", [row for row in rows if not row.idle]),
        ("KiB per idle connection", "kib", [row for row in rows if row.idle]),
    ]
    panels = [
        (title, metric, shown)
        for title, metric, shown in panels
        if any(metric in medians[broker].get(row.name, {}) for broker in medians for row in shown)
    ]
    if not panels:
        return False
    figure, axes = pyplot.subplots(
        len(panels),
        figsize=(10, 1.5 + 0.75 * len(rows)),
        height_ratios=[len(panel[2]) for panel in panels],
        squeeze=False,
        layout="constrained",
    )
    for axis, (title, metric, shown) in zip(axes[:, 0], panels, strict=True):
        height = 0.8 / len(medians)
        for index, broker in enumerate(medians):
            values = [medians[broker].get(row.name, {}).get(metric, math.nan) for row in shown]
            at = [position + index * height for position in range(len(shown))]
            bars = axis.barh(at, values, height, label=broker)
            labels = ["" if math.isnan(v) else f"{v:,.{0 if v > 100 else 1}f}" for v in values]
            axis.bar_label(bars, labels, padding=3, fontsize=7)
        middle = height * (len(medians) - 1) / 2
        axis.set_yticks([p + middle for p in range(len(shown))], [row.title for row in shown])
        axis.invert_yaxis()
        axis.set_xscale("log" if metric == "rate" else "linear")
        axis.set_xlabel(title)
        axis.margins(x=0.12)
    axes[0, 0].legend(loc="lower right", fontsize=8)
    for path in paths:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return True
