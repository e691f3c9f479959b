"""The day in sentences: what a colleague would say first."""

from datetime import timedelta
from html import escape

from spark_export.report.findings import Findings
from spark_export.report.words import change, count, distance, duration, number, plural, speed


def headline(found: Findings) -> str:
    """Say the day in one sentence."""
    now = found.now
    text = (
        f"{plural(now.events, 'event')} from {plural(now.clients, 'client')} "
        f"on {plural(now.topics, 'topic')}"
    )
    if found.before is None:
        return text + "."
    weekday = f"{found.day - timedelta(days=1):%A}"
    difference = change(now.events, found.before.events)
    if difference == "±0 %":
        return f"{text}, as many as on {weekday}."
    more = "more" if difference.startswith("+") else "fewer"
    return f"{text}, {difference.strip('+−')} {more} than on {weekday}."


def story(found: Findings) -> list[str]:
    """Say what stands out, the most telling first; HTML."""
    lines = [_busiest(found)]
    if found.topics:
        first = found.topics[0]
        share = first["events"] / found.now.events
        lines.append(
            f"<b>{escape(first['topic'])}</b> was the busiest topic with {count(first['events'])} "
            f"events, {_percent(share)} of all."
        )
    if found.tracks:
        far = found.tracks[0]
        lines.append(
            f"<b>{escape(far['client_id'])}</b> came farthest: {distance(far['distance_m'])}, "
            f"at up to {speed(far['max_speed_m_s'])}."
        )
    if found.dwell:
        fence = found.dwell[0]
        lines.append(
            f"<b>{escape(fence['fence'])}</b> was the most used fence: "
            f"{plural(fence['visits'], 'visit')}, {duration(fence['dwell_s'])} in all."
        )
    if found.outliers:
        odd = found.outliers[0]
        lines.append(
            f"<b>{escape(odd['topic'])}</b> reported {number(odd['value'])} at "
            f"{odd['time']:%H:%M}, where {number(odd['q1'])} to {number(odd['q3'])} is usual."
        )
    if found.silent:
        quiet = found.silent[0]
        others = found.silent_count - 1
        rest = f", and so are {plural(others, 'other')}" if others else ""
        lines.append(
            f"<b>{escape(quiet['client_id'])}</b> has been silent for "
            f"{duration(quiet['silent_s'])}{rest}."
        )
    return lines


def come_and_gone(found: Findings) -> str:
    """Say which topics and clients are new, and which were not heard of again."""
    new = _some(found.new_topics, found.new_clients)
    gone = _some(found.gone_topics, found.gone_clients)
    if not new and not gone:
        return "The same topics and clients as the day before; these changed most."
    parts = [f"{new} new" if new else "", f"{gone} not heard of again" if gone else ""]
    return f"Against the day before: {', '.join(filter(None, parts))}."


def _some(topics: int, clients: int) -> str:
    parts = [
        plural(topics, "topic") if topics else "",
        plural(clients, "client") if clients else "",
    ]
    return " and ".join(filter(None, parts))


def _busiest(found: Findings) -> str:
    hour = max(range(24), key=lambda h: found.hours[h])
    used = [h for h in range(24) if found.hours[h]]
    text = (
        f"The busiest hour was <b>{hour:02}:00–{hour + 1:02}:00</b> with "
        f"{plural(found.hours[hour], 'event')}"
    )
    if len(used) < 24:
        text += f"; {plural(24 - len(used), 'hour')} had none"
    return text + "."


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.01 else "less than 1 %"
