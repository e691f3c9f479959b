"""The geo options of `geomqtt pub` and `geomqtt sub`, and the conditions they stand for.

A geometry is WKT, EWKT, BBOX, ENVELOPE, BUFFER or GeoJSON; `@FILE` reads it from a file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import cast, get_args

from geomqtt.client import Client
from geomqtt.options import UsageError
from geomqtt.place_and_time import DELIVER, SPATIAL, GeoConditions, TemporalRelation, geometry_form
from protocol.geometry import parse_form

OPERANDS = {"de9im": "PATTERN", "dwithin": "METRES"}


def add_event_options(parser: argparse.ArgumentParser) -> None:
    """Add what `pub` knows about an event."""
    group = parser.add_argument_group("place and time")
    group.add_argument("--at", metavar="GEOM", type=geometry_text, help="where the event is")
    group.add_argument("--time", metavar="T", help="when: ISO 8601 or Unix seconds")
    group.add_argument(
        "--to", metavar="GEOM", type=geometry_text, help="only for subscribers who are in there"
    )
    group.add_argument("--epsg", type=int, metavar="N", help="system of --at (default 4326)")


def add_condition_options(parser: argparse.ArgumentParser) -> None:
    """Add what `sub` may ask of an event."""
    group = parser.add_argument_group(
        "place and time", "One spatial condition, read: GEOM covers the event."
    )
    spatial = group.add_mutually_exclusive_group()
    for name in SPATIAL:
        options = dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
        if name in OPERANDS:
            spatial.add_argument(*options, nargs=2, metavar=(OPERANDS[name], "GEOM"))
        else:
            spatial.add_argument(*options, metavar="GEOM", type=geometry_text)
    spatial.add_argument(
        "--near", metavar="M", type=float, help="within M metres of our own location"
    )
    add = group.add_argument
    add("--here", metavar="POINT", type=geometry_text, help="tell the broker where we are")
    add("--publisher", action="store_true", help="test where the publisher is, not the event")
    add("--time-filter", metavar="F", help="interval, repeating interval, or cron/duration")
    add("--time-relation", choices=get_args(TemporalRelation), help="(default intersects)")
    add("--epsg", type=int, metavar="N", help="system of the geometry (default 4326)")
    add("--deliver", choices=list(DELIVER), help="form of the place that is delivered")
    add("--reproject", action="store_true", help="deliver in the system that --epsg names")
    add("--geo", action="store_true", help="any place and time, but have them delivered")


def geometry_text(text: str) -> str:
    """Take a geometry as it stands, or read the file it names."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{text[1:]}: not UTF-8") from None


def conditions(args: argparse.Namespace) -> GeoConditions:
    """Gather the conditions that were given; none of them means a plain subscription."""
    given: dict[str, object] = {}
    for name in (*SPATIAL, "near", "epsg", "deliver", "time_relation"):
        if getattr(args, name) is not None:
            given[name] = getattr(args, name)
    if args.time_filter is not None:
        given["during"] = args.time_filter
    for name in ("publisher", "reproject", "geo"):
        if getattr(args, name):
            given[name] = True
    try:
        if args.de9im is not None:
            pattern, text = args.de9im
            given["de9im"] = (pattern, geometry_text(text))
        if args.dwithin is not None:
            metres, text = args.dwithin
            given["dwithin"] = (float(metres), geometry_text(text))
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error)) from None
    except ValueError:
        raise UsageError(f"--dwithin: {metres!r} is no distance in metres") from None
    return cast(GeoConditions, given)


def tell_location(client: Client, args: argparse.Namespace) -> None:
    """Move the client to `--here`."""
    if args.here is None:
        return
    place = parse_form(*geometry_form(args.here)).place
    if not place.is_point:
        raise UsageError("--here is not a point")
    client.move(lat=place.y, lon=place.x, elev=place.z)
