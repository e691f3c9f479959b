"""The report: a page that needs nothing but itself, and the results beside it."""

import re
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import make_log
import pyarrow.dataset as arrow_dataset
import pytest

from spark_export.export import export
from spark_export.report.build import build_report
from spark_export.segments import ExportError

pytestmark = pytest.mark.timeout(400)

FENCES = """{"type": "FeatureCollection", "features": [
{"type": "Feature", "properties": {"name": "Harbour & Co"}, "geometry": {"type": "Polygon",
 "coordinates": [[[8.5, 54.4], [8.6, 54.4], [8.6, 54.55], [8.5, 54.55], [8.5, 54.4]]]}},
{"type": "Feature", "properties": {"name": "Depot"}, "geometry": {"type": "Polygon",
 "coordinates": [[[8.61, 54.4], [8.7, 54.4], [8.7, 54.55], [8.61, 54.55], [8.61, 54.4]]]}}]}"""
NASTY = "x/</script><img src=http://evil.example/a onerror=alert(1)>&\"'/t"


class Page(HTMLParser):
    """Collects what a page would load, and the text it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text: list[str] = []
        self.sections: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "section":
            self.sections.append(str(values["id"]))
        if tag in {"img", "link", "iframe", "object", "embed", "video", "audio", "source"}:
            self.loads.append(tag)
        if tag == "script" and "src" in values:
            self.loads.append(str(values["src"]))
        if tag not in {"meta", "input", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Shapes of the charts load nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def report(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    maker = make_log.make_traffic(root / "data", 12_000, days=2)
    nasty = {"topic": NASTY, "client": NASTY, "payload": b"1"}
    maker.add(
        "2026-03-29",
        [{**nasty, "time": 60 * n, "at": (8.4 + n / 1000, 54.5)} for n in range(400)],
    )
    export(spark, str(root / "data"), str(root / "out"))
    (root / "fences.json").write_text(FENCES)
    build_report(
        spark,
        str(root / "out"),
        str(root / "report"),
        day=date(2026, 3, 29),
        fences_path=str(root / "fences.json"),
    )
    return root / "report"


def test_the_page_loads_nothing_and_is_well_formed(report: Path) -> None:
    html = (report / "2026-03-29" / "report.html").read_text("utf-8")
    page = Page()
    page.feed(html)
    assert page.open == []
    assert page.loads == []
    assert not re.search(r"https?://", html.replace(NASTY, "").replace("http://evil.example/a", ""))
    assert page.sections == [
        "summary", "changes", "day", "map", "movement", "fences", "series", "silent"
    ]  # fmt: skip


def test_names_from_clients_cannot_break_out_of_the_page(report: Path) -> None:
    html = (report / "2026-03-29" / "report.html").read_text("utf-8")
    assert "<img" not in html
    assert "x/&lt;/script&gt;" in html
    assert html.count("</script>") == 2  # the map's data and the code


def test_the_page_says_what_the_data_say(report: Path) -> None:
    page = Page()
    page.feed((report / "2026-03-29" / "report.html").read_text("utf-8"))
    text = " ".join(page.text).replace("\u202f", "")
    assert "Sunday, 29 March 2026" in text
    volume = arrow_dataset.dataset(report / "2026-03-29" / "volume").to_table().to_pandas()
    assert f"{volume['events'].sum()} events from {volume['client_id'].nunique()} clients" in text
    assert "than on Saturday" in text
    assert "Harbour & Co" in text
    assert "Against the day before: 1 topic and 1 client new" in text


def test_every_result_is_written_for_other_programs(report: Path) -> None:
    names = {path.name for path in (report / "2026-03-29").iterdir() if path.is_dir()}
    assert names == {
        "volume", "topic_changes", "client_changes", "density", "tracks", "stops", "visits",
        "trips", "origin_destination", "series", "profiles", "outliers", "silent",
    }  # fmt: skip
    tracks = arrow_dataset.dataset(report / "2026-03-29" / "tracks").to_table()
    assert tracks.num_rows > 100
    assert '<a href="2026-03-29/report.html">' in (report / "index.html").read_text()


def test_a_day_of_plain_messages_has_a_report_without_a_map(
    spark: Any, log: Any, tmp_path: Path
) -> None:
    log.add("2026-03-28", [{"topic": "a", "received": n, "payload": b"hi"} for n in range(3)])
    export(spark, str(log.data), str(tmp_path / "out"))
    build_report(spark, str(tmp_path / "out"), str(tmp_path / "report"))
    page = Page()
    page.feed((tmp_path / "report" / "2026-03-28" / "report.html").read_text("utf-8"))
    assert page.sections == ["summary", "day"]


def test_a_day_without_events_is_told(spark: Any, log: Any, tmp_path: Path) -> None:
    log.add("2026-03-28", [{"topic": "a"}])
    export(spark, str(log.data), str(tmp_path / "out"))
    with pytest.raises(ExportError, match="no events happened on 2026-01-01; the export has 2026"):
        build_report(spark, str(tmp_path / "out"), str(tmp_path / "r"), day=date(2026, 1, 1))
