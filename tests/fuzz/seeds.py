"""Inputs to begin with: the conformance vectors, and texts that clients send."""

from __future__ import annotations

import json
from pathlib import Path

VECTORS = Path(__file__).resolve().parents[1] / "conformance" / "vectors"

TEXTS = """
POINT(8.58 54.51)
SRID=25832;POINT(500000 5700000)
BBOX(8.5,54.4,8.7,54.6)
ENVELOPE(8.5,8.7,54.6,54.4)
BUFFER(POINT(8.58 54.51), 500)
POLYGON((0 0,0 9,9 9,9 0,0 0),(1 1,2 1,2 2,1 1))
MULTIPOLYGON(((170 -10,-170 -10,-170 10,170 10,170 -10)))
GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))
LINESTRING(0 0,4444444444444444444444444444444444444444444441 1)
2026-03-28T11:15:00Z
2026-03-28T11:15:00Z/PT2H30M
P1D/2026-03-28
../2026-03-28T00:00:00+02:00
R5/2026-01-31T00:00:00Z/P1M
R/2026-01-01/PT1H
0 0/15 8-17 ? * MON-FRI/PT5M[Europe/Berlin]
0 0 12 L-3 * ? 2026-2030/P1D
0 0 0 ? * 6#3/PT1H
1774700000
$geo/at=POINT(8.58 54.51);time=2026-03-28T11:15:00Z/node/7/temperature
$geo/covers=BBOX(8.5,54.4,8.7,54.6);time=2026-03-28T11:15:00Z--PT2H30M/node/+/temperature
$geo/dwithin.500=POINT(1 2);publisher.intersects=BBOX(0,0,1,1);prefix=keep/#
$geo/de9im.T*F**F***=LINESTRING(0 0,1 1);time.during=2026-01-01--P1Y/a
$geo/near=150/a/%2F
$share/group/$geo/near=1/a/#
{"geometry": "BBOX(0,0,1,1)", "mode": "dynamic", "topics": ["a/#"]}
{"geometry": {"type": "Point", "coordinates": [8.6, 54.5]}}
{"lat": 54.5, "lon": 8.6, "elev": 3}
""".strip().splitlines()


def of(target: str) -> list[bytes]:
    """Give the seeds of a target."""
    if target == "texts":
        return [text.encode() for text in TEXTS]
    return [
        bytes.fromhex(vector["hex"])
        for path in sorted(VECTORS.glob("*.json"))
        for vector in json.loads(path.read_text())
        if len(vector["hex"]) < 3000
    ]


def write(target: str, folder: Path) -> None:
    """Write the seeds as a corpus of files."""
    folder.mkdir(parents=True)
    for number, seed in enumerate(of(target)):
        (folder / f"seed-{number:04}").write_bytes(seed)
