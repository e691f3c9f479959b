"""Charts as SVG text. Colours are the page's CSS variables, so that both themes fit.

Every mark has a `data-tip`, which the page shows under the pointer, and every chart a title
for those who do not see it.
"""

from collections.abc import Sequence
from html import escape

from spark_export.report.words import count, number

WIDTH = 1006  # of a card, so that a letter of a chart is a letter of the page


def _svg(height: int, label: str, body: Sequence[str], width: int = WIDTH) -> str:
    # A narrow chart stays narrow: letters have one size on the whole page.
    return (
        f'<svg viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img" '
        f'aria-label="{escape(label)}">{"".join(body)}</svg>'
    )


def hour_bars(now: Sequence[int], before: Sequence[int] | None) -> str:
    """Draw events per hour as bars, with the day before as a stepped line over them."""
    top, bottom, left, height = 14, 26, 52, 240
    plot = height - top - bottom
    peak = nice_ceiling(max([*now, *(before or []), 1]))
    step = (WIDTH - left - 6) / 24
    parts = []
    for tick in range(5):
        y = top + plot * tick / 4
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - 6}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = count(round(peak * (4 - tick) / 4), short=True)
        parts.append(
            f'<text class="axis" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for hour, events in enumerate(now):
        tall = plot * events / peak
        x = left + step * hour
        tip = f"{hour:02}:00–{hour + 1:02}:00 · {count(events)} events"
        if before is not None:
            tip += f" · the day before {count(before[hour])}"
        parts.append(
            f'<g data-tip="{tip}"><rect class="hover" x="{x:.1f}" y="{top}" width="{step:.1f}" '
            f'height="{plot}"/><rect class="bar" x="{x + 3:.1f}" y="{top + plot - tall:.1f}" '
            f'width="{step - 6:.1f}" height="{tall:.1f}" rx="3"/></g>'
        )
        if hour % 3 == 0:
            parts.append(f'<text class="axis" x="{x + 3:.1f}" y="{height - 8}">{hour:02}:00</text>')
    if before is not None:
        points = []
        for hour, events in enumerate(before):
            y = top + plot * (1 - events / peak)
            points += [
                f"{left + step * hour:.1f},{y:.1f}",
                f"{left + step * (hour + 1):.1f},{y:.1f}",
            ]
        parts.append(f'<polyline class="ghost" points="{" ".join(points)}"/>')
    return _svg(height, "Events per hour", parts)


def topic_heatmap(table: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Draw topics against hours; each row has the scale of the whole table."""
    left, row_height, top = 250, 22, 20
    height = top + row_height * len(table) + 4
    step = (WIDTH - left) / 24
    peak = max((value for _, hours in table for value in hours), default=1) or 1
    parts = [
        f'<text class="axis" x="{left + step * hour + 2:.1f}" y="12">{hour:02}</text>'
        for hour in range(0, 24, 3)
    ]
    for line, (topic, hours) in enumerate(table):
        y = top + row_height * line
        parts.append(
            f'<text class="label" x="{left - 10}" y="{y + 15}" text-anchor="end" '
            f'data-tip="{escape(topic)}">{escape(shorten(topic, 36))}</text>'
        )
        for hour, value in enumerate(hours):
            tip = f"{escape(topic)} · {hour:02}:00 · {count(value)} events"
            strength = 0.06 + 0.94 * (value / peak) ** 0.5 if value else 0.03
            parts.append(
                f'<rect class="heat" x="{left + step * hour + 1:.1f}" y="{y + 1}" '
                f'width="{step - 2:.1f}" height="{row_height - 2}" rx="3" '
                f'fill-opacity="{strength:.2f}" data-tip="{tip}"/>'
            )
    return _svg(height, "Events per topic and hour", parts)


def profile(hours: Sequence[tuple[float, float, float] | None]) -> str:
    """Draw the mean of a series per hour, in the band of its extremes."""
    width, height, edge = 320, 96, 6
    known = [(hour, values) for hour, values in enumerate(hours) if values is not None]
    low = min(values[1] for _, values in known)
    high = max(values[2] for _, values in known)
    span = (high - low) or 1.0

    def place(hour: int, value: float) -> str:
        x = edge + (width - 2 * edge) * hour / 23
        return f"{x:.1f},{edge + (height - 2 * edge) * (high - value) / span:.1f}"

    upper = [place(hour, values[2]) for hour, values in known]
    lower = [place(hour, values[1]) for hour, values in reversed(known)]
    mean = " ".join(place(hour, values[0]) for hour, values in known)
    parts = [
        f'<polygon class="band" points="{" ".join(upper + lower)}"/>',
        f'<polyline class="line" points="{mean}"/>',
    ]
    for hour, values in known:
        x = edge + (width - 2 * edge) * (hour - 0.5) / 23
        tip = (
            f"{hour:02}:00 · mean {number(values[0])} · {number(values[1])} to {number(values[2])}"
        )
        parts.append(
            f'<rect class="hover" x="{x:.1f}" y="0" width="{width / 23:.1f}" height="{height}" '
            f'data-tip="{tip}"/>'
        )
    return _svg(height, "Mean per hour, in the band of the extremes", parts, width)


def matrix(pairs: Sequence[dict[str, object]]) -> str:
    """Draw trips from fence (rows) to fence (columns)."""
    names = sorted({str(pair[key]) for pair in pairs for key in ("origin", "destination")})[:16]
    trips = {(str(p["origin"]), str(p["destination"])): p for p in pairs}
    left, top, size = 190, 96, 34
    peak = max((int(str(pair["trips"])) for pair in pairs), default=1)
    parts = []
    for n, name in enumerate(names):
        y = top + size * n + 21
        short = escape(shorten(name, 26))
        parts.append(f'<text class="label" x="{left - 8}" y="{y}" text-anchor="end">{short}</text>')
        x = left + size * n + 20
        parts.append(
            f'<text class="label" transform="translate({x} {top - 8}) rotate(-40)">{short}</text>'
        )
    for row, origin in enumerate(names):
        for column, destination in enumerate(names):
            pair = trips.get((origin, destination))
            value = int(str(pair["trips"])) if pair else 0
            strength = 0.12 + 0.88 * value / peak if value else 0.03
            x, y = left + size * column, top + size * row
            tip = f"{escape(origin)} → {escape(destination)} · {count(value)} trips"
            parts.append(
                f'<rect class="heat" x="{x + 1}" y="{y + 1}" width="{size - 2}" '
                f'height="{size - 2}" rx="4" fill-opacity="{strength:.2f}" data-tip="{tip}"/>'
            )
            if value:
                kind = "cell strong" if strength > 0.55 else "cell"
                parts.append(
                    f'<text class="{kind}" x="{x + size / 2}" y="{y + 21}" '
                    f'text-anchor="middle">{count(value, short=True)}</text>'
                )
    side = left + size * len(names) + 120
    return _svg(top + size * len(names) + 6, "Trips between fences", parts, side)


def nice_ceiling(value: float) -> float:
    """Round up to a number that divides into four easy steps.

    >>> nice_ceiling(837), nice_ceiling(1), nice_ceiling(41_000)
    (1000, 4, 60000)
    """
    size = 4
    while True:
        for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10):
            step = size * factor
            if step >= value and step == int(step):
                return int(step)
        size *= 10


def shorten(text: str, length: int) -> str:
    """Cut the middle out of a text that is too long: both ends of a topic tell it apart.

    >>> shorten("fleet/berlin/vehicle/position", 15)
    'fleet/b…osition'
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"
