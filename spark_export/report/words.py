"""Numbers, times and sizes as a person says them."""

from datetime import date, datetime


def count(value: float, *, short: bool = False) -> str:
    """Write a whole number with thin spaces, or shortened.

    >>> count(1234567), count(1234567, short=True), count(950, short=True)
    ('1\u202f234\u202f567', '1.2 M', '950')
    """
    if short:
        for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if abs(value) >= size:
                return f"{value / size:.3g} {unit}" if value / size < 1000 else f"{value:,.0f}"
    return f"{value:,.0f}".replace(",", "\u202f")


def number(value: float) -> str:
    """Write a measured number with four figures.

    >>> number(2.71828), number(1234567.0), number(0.0)
    ('2.718', '1.235e+06', '0')
    """
    return f"{value:.4g}"


def size(octets: float) -> str:
    """Write a number of bytes.

    >>> size(900), size(25_300_000)
    ('900 B', '25.3 MB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if octets >= scale:
            return f"{octets / scale:.3g} {unit}"
    return f"{octets:.0f} B"


def distance(metres: float) -> str:
    """Write a way.

    >>> distance(840), distance(25_300)
    ('840 m', '25.3 km')
    """
    if metres < 1000:
        return f"{metres:.0f} m"
    return f"{count(metres / 1000)} km" if metres >= 100_000 else f"{metres / 1000:.1f} km"


def duration(seconds: float) -> str:
    """Write a length of time.

    >>> duration(42), duration(3_900), duration(200_000)
    ('42 s', '1 h 05 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60:02} min"
    return f"{hours // 24} d {hours % 24} h"


def speed(metres_per_second: float | None) -> str:
    """Write a speed.

    >>> speed(10.0), speed(None)
    ('36.0 km/h', '–')
    """
    return "–" if metres_per_second is None else f"{metres_per_second * 3.6:.1f} km/h"


def clock(moment: datetime | None) -> str:
    """Write the time of day.

    >>> clock(datetime(2026, 3, 28, 9, 5))
    '09:05:00'
    """
    return "–" if moment is None else moment.strftime("%H:%M:%S")


def long_day(day: date) -> str:
    """Write a date in full.

    >>> long_day(date(2026, 3, 28))
    'Saturday, 28 March 2026'
    """
    return f"{day:%A}, {day.day} {day:%B %Y}"


def change(now: float, before: float) -> str:
    """Write how much more or less, in percent.

    >>> change(112, 100), change(50, 100), change(100, 100), change(5, 0)
    ('+12 %', '−50 %', '±0 %', 'new')
    """
    if before == 0:
        return "new" if now else "±0 %"
    percent = (now - before) / before * 100
    if abs(percent) < 0.5:
        return "±0 %"
    sign = "+" if percent > 0 else "−"
    return f"{sign}{count(abs(percent))} %"


def plural(number_of: int, one: str, many: str | None = None) -> str:
    """Write a number of things.

    >>> plural(1, "topic"), plural(3, "client")
    ('1 topic', '3 clients')
    """
    return f"{count(number_of)} {one if number_of == 1 else many or one + 's'}"
