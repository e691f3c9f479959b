"""Lays the findings of a day out as one HTML page that opens without a network."""

import json
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from spark_export.report import charts
from spark_export.report.findings import Findings, Row
from spark_export.report.prose import come_and_gone, headline, story
from spark_export.report.words import (
    change,
    clock,
    count,
    distance,
    duration,
    long_day,
    number,
    plural,
    size,
    speed,
)

Column = tuple[str, Callable[[Row], str]]


def _asset(name: str) -> str:
    return files("spark_export.report").joinpath(name).read_text("utf-8")


def report_page(found: Findings) -> str:
    """Write the page of a day."""
    sections = [
        _summary(found),
        _changes(found),
        _day(found),
        _map(found),
        _movement(found),
        _fences(found),
        _series(found),
        _silence(found),
    ]
    body = f"""
<header>
  <p class="kicker">GeoMQTT · daily report</p>
  <h1>{escape(long_day(found.day))}</h1>
  <p class="lead">{headline(found)}</p>
  <button id="theme" type="button" aria-label="Switch between light and dark">◐</button>
</header>
<main>{"".join(section for section in sections if section)}</main>
<footer>Made {found.made_at:%Y-%m-%d %H:%M} UTC from <code>{escape(found.source)}</code>.
All times are UTC. The full results lie beside this page as Parquet.
<a href="../index.html">All days</a></footer>
<div id="tip" role="status"></div>
"""
    return _document(f"GeoMQTT · {found.day}", body, _asset("report.js") + _asset("map.js"))


def index_page(days: Sequence[str]) -> str:
    """Write the list of reports."""
    items = "".join(
        f'<li><a href="{escape(day)}/report.html">{escape(day)}</a></li>' for day in days
    )
    body = f"""
<header><p class="kicker">GeoMQTT</p><h1>Daily reports</h1>
<button id="theme" type="button" aria-label="Switch between light and dark">◐</button></header>
<main><section><ul class="days">{items}</ul></section></main><div id="tip"></div>
"""
    return _document("GeoMQTT · reports", body, _asset("report.js"))


def _document(title: str, body: str, script: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_asset("report.css")}</style>
</head>
<body>{body}<script>{script}</script></body>
</html>
"""


def _section(anchor: str, title: str, note: str, *parts: str) -> str:
    lead = f'<p class="note">{note}</p>' if note else ""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{lead}{"".join(parts)}</section>'


def _summary(found: Findings) -> str:
    now, before = found.now, found.before
    share = now.placed / now.events if now.events else 0.0
    tiles = [
        ("Events", count(now.events), change(now.events, before.events) if before else ""),
        ("Clients", count(now.clients), change(now.clients, before.clients) if before else ""),
        ("Topics", count(now.topics), change(now.topics, before.topics) if before else ""),
        ("Payload", size(now.bytes), change(now.bytes, before.bytes) if before else ""),
        ("With a place", f"{share:.0%}".replace("%", " %"), ""),
        ("Distance", distance(found.distance_m), plural(found.movers, "moving client")),
    ]
    cards = "".join(
        f'<div class="tile"><span class="name">{name}</span><strong>{figure}</strong>'
        f'<span class="delta {_direction(delta)}">{delta}</span></div>'
        for name, figure, delta in tiles
    )
    lines = "".join(f"<li>{line}</li>" for line in story(found))
    return (
        f'<section id="summary"><div class="tiles">{cards}</div>'
        f'<ul class="story">{lines}</ul></section>'
    )


def _direction(delta: str) -> str:
    return {"+": "up", "−": "down"}.get(delta[:1], "")


def _changes(found: Findings) -> str:
    if not found.before or not (found.topic_changes or found.client_changes):
        return ""
    return _section(
        "changes",
        "What changed",
        come_and_gone(found),
        '<div class="pair">',
        _change_table("Topic", "topic", found.topic_changes),
        _change_table("Client", "client_id", found.client_changes),
        "</div>",
    )


def _change_table(title: str, key: str, rows: Sequence[Row]) -> str:
    peak = max((abs(row["change"]) for row in rows), default=1) or 1

    def bar(row: Row) -> str:
        wide = 50 * abs(row["change"]) / peak
        left = 50 - wide if row["change"] < 0 else 50
        kind = "down" if row["change"] < 0 else "up"
        return (
            f'<span class="diverging"><i class="{kind}" '
            f'style="left:{left:.1f}%;width:{wide:.1f}%"></i></span>'
        )

    return _table(
        rows,
        (title, lambda row: _name(row[key])),
        ("Before", lambda row: count(row["before"])),
        ("Now", lambda row: count(row["now"])),
        ("", bar),
        ("Change", lambda row: change(row["now"], row["before"])),
    )


def _day(found: Findings) -> str:
    note = "Events per hour of their own time"
    note += "; the line is the day before." if found.hours_before else "."
    peak = found.topics[0]["events"] if found.topics else 1
    top = found.clients[0]["events"] if found.clients else 1
    return _section(
        "day",
        "Through the day",
        note,
        f'<figure class="card">{charts.hour_bars(found.hours, found.hours_before)}</figure>',
        f'<figure class="card"><figcaption>The busiest topics, hour by hour</figcaption>'
        f"{charts.topic_heatmap(found.topic_hours)}</figure>",
        '<div class="pair">',
        _table(
            found.topics,
            ("Topic", lambda row: _name(row["topic"])),
            ("Events", lambda row: _bar(row["events"], peak, count(row["events"]))),
            ("Clients", lambda row: count(row["clients"])),
            ("Payload", lambda row: size(row["bytes"])),
        ),
        _table(
            found.clients,
            ("Client", lambda row: _name(row["client_id"])),
            ("Events", lambda row: _bar(row["events"], top, count(row["events"]))),
            ("Topics", lambda row: count(row["topics"])),
            ("Payload", lambda row: size(row["bytes"])),
        ),
        "</div>",
    )


def _map(found: Findings) -> str:
    if found.view is None:
        return ""
    data = {
        "view": found.view,
        "tiles": found.tiles,
        "lines": found.lines,
        "fences": found.fences,
        "stops": [[row["client_id"], row["x"], row["y"], row["seconds"]] for row in found.stops],
    }
    # "<" would let a client id end the script element.
    embedded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return _section(
        "map",
        "Where it happened",
        "Darker is more events. Drag to move, wheel or buttons to zoom; the grid refines itself.",
        '<figure class="card map"><canvas id="canvas" tabindex="0" role="img" '
        'aria-label="Map of event density and tracks"></canvas>'
        '<div class="controls"><button data-map="in" type="button" aria-label="Zoom in">+</button>'
        '<button data-map="out" type="button" aria-label="Zoom out">−</button>'
        '<button data-map="fit" type="button" aria-label="Show everything">⤢</button></div>'
        '<div class="layers">'
        '<label><input type="checkbox" data-layer="tiles" checked> density</label>'
        '<label><input type="checkbox" data-layer="lines" checked> tracks</label>'
        '<label><input type="checkbox" data-layer="stops" checked> long stops</label>'
        '<label><input type="checkbox" data-layer="fences" checked> fences</label></div>'
        "<noscript>The map needs JavaScript; the tables do not.</noscript></figure>"
        f'<script type="application/json" id="map-data">{embedded}</script>',
    )


def _movement(found: Findings) -> str:
    if not found.tracks:
        return ""
    peak = found.tracks[0]["distance_m"] or 1
    note = (
        f"{plural(found.movers, 'client')} moved {distance(found.distance_m)} in all and made "
        f"{plural(found.stop_count, 'stop')} of five minutes or more."
    )
    ways = _table(
        found.tracks,
        ("Client", lambda row: _name(row["client_id"])),
        ("Distance", lambda row: _bar(row["distance_m"], peak, distance(row["distance_m"]))),
        ("Mean", lambda row: speed(row["mean_speed_m_s"])),
        ("Fastest", lambda row: speed(row["max_speed_m_s"])),
        ("From", lambda row: clock(row["first"])),
        ("To", lambda row: clock(row["last"])),
        ("Positions", lambda row: count(row["positions"])),
    )
    longest = _table(
        found.stops,
        ("Longest stops", lambda row: _name(row["client_id"])),
        ("From", lambda row: clock(row["start"])),
        ("To", lambda row: clock(row["stop"])),
        ("Duration", lambda row: duration(row["seconds"])),
        ("Place", lambda row: f"{row['y']:.4f}, {row['x']:.4f}"),
    )
    return _section("movement", "Movement", note, ways, longest if found.stops else "")


def _fences(found: Findings) -> str:
    if not found.dwell:
        return ""
    peak = found.dwell[0]["dwell_s"] or 1
    parts = [
        _table(
            found.dwell,
            ("Fence", lambda row: _name(row["fence"])),
            ("Time inside", lambda row: _bar(row["dwell_s"], peak, duration(row["dwell_s"]))),
            ("Visits", lambda row: count(row["visits"])),
            ("Clients", lambda row: count(row["clients"])),
            ("Median stay", lambda row: duration(row["median_dwell_s"])),
            ("Still inside", lambda row: count(row["still_inside"])),
        ),
        _table(
            found.visits,
            ("Longest visits", lambda row: _name(row["client_id"])),
            ("Fence", lambda row: _name(row["fence"])),
            ("Entered", lambda row: clock(row["entered"])),
            ("Left", lambda row: clock(row["left"])),
            ("Stay", lambda row: duration(row["dwell_s"])),
        ),
    ]
    if found.pairs:
        parts.append(
            f'<figure class="card"><figcaption>Trips from fence (row) to fence (column)'
            f"</figcaption>{charts.matrix(found.pairs)}</figure>"
        )
    return _section("fences", "Fences", "Who was inside which area, and for how long.", *parts)


def _series(found: Findings) -> str:
    if not found.series:
        return ""
    cards = []
    for row in found.series:
        member = f" · {row['member']}" if row["member"] else ""
        name = escape(charts.shorten(row["topic"] + member, 38))
        cards.append(
            f'<figure class="card small"><figcaption data-tip="{escape(row["topic"] + member)}">'
            f"{name}</figcaption>{charts.profile(row['profile'])}"
            f'<p class="numbers"><span>median <b>{number(row["median"])}</b></span>'
            f"<span>{number(row['min'])} – {number(row['max'])}</span>"
            f"<span>{count(row['values'], short=True)} values</span></p></figure>"
        )
    note = (
        f"{plural(found.series_count, 'series', 'series')} of numbers; the line is the hourly "
        "mean, the band its extremes."
    )
    strange = ""
    if found.outliers:
        strange = _table(
            found.outliers,
            ("Out of line", lambda row: _name(row["topic"] + _member(row))),
            ("Time", lambda row: clock(row["time"])),
            ("Value", lambda row: number(row["value"])),
            ("Usual range", lambda row: f"{number(row['q1'])} – {number(row['q3'])}"),
            ("Beyond it by", lambda row: f"{row['ranges']:.1f} ranges"),
        )
        note += f" {plural(found.outlier_count, 'value')} lay far outside the usual range."
    return _section("series", "Numbers", note, f'<div class="grid">{"".join(cards)}</div>', strange)


def _member(row: Row) -> str:
    return f" · {row['member']}" if row["member"] else ""


def _silence(found: Findings) -> str:
    if not found.silent:
        return ""
    note = (
        f"{plural(found.silent_count, 'sender')} had a rhythm and broke it: silent for more than "
        "an hour and ten times the usual gap."
    )
    return _section(
        "silent",
        "Gone silent",
        note,
        _table(
            found.silent,
            ("Client", lambda row: _name(row["client_id"])),
            ("Topic", lambda row: _name(row["topic"])),
            ("Last heard", lambda row: f"{row['last']:%d %b %H:%M}"),
            ("Silent for", lambda row: duration(row["silent_s"])),
            ("Usual gap", lambda row: duration(row["median_gap_s"])),
        ),
    )


def _name(text: Any) -> str:
    whole = str(text)
    short = escape(charts.shorten(whole, 40))
    return f'<span class="name" data-tip="{escape(whole)}">{short}</span>'


def _bar(value: float, peak: float, label: str) -> str:
    return (
        f'<span class="inbar"><i style="width:{100 * value / peak:.1f}%"></i><b>{label}</b></span>'
    )


def _table(rows: Sequence[Row], *columns: Column) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title, _ in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{write(row)}</td>" for _, write in columns) + "</tr>" for row in rows
    )
    return (
        f'<div class="card scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
