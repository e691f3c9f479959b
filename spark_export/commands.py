"""`geomqtt export`, `report` and `nightly`: arguments, and what the exit code says.

    0  done, or nothing to do
    1  done in part: what could not be read is named, the rest is exported
    2  not done: the line on standard error says why
    3  not done: another nightly run is at work

Importing this module costs nothing: Spark is imported when a command runs.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_export.segments import ExportError, log_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_export.export import Outcome
    from spark_export.progress import Progress

DONE, PARTLY, NOT_DONE, BUSY = 0, 1, 2, 3
DATA = "./geomqtt-data"
FAR_DAYS = 366


def add_parsers(subparsers: Any) -> None:
    """Register the three commands."""
    export = subparsers.add_parser("export", help="bring logged events to Parquet, each once")
    _add_source(export)
    days = export.add_mutually_exclusive_group()
    days.add_argument("--day", type=_day, metavar="D", help="only this UTC day of receipt")
    days.add_argument("--from", dest="first", type=_day, metavar="D", help="first day of receipt")
    export.add_argument("--to", dest="last", type=_day, metavar="D", help="last day of receipt")
    _add_spark(export)
    export.set_defaults(run=run_export)

    report = subparsers.add_parser("report", help="analyse exported events and write a report")
    report.add_argument("--in", dest="source", default=f"{DATA}/parquet", metavar="PATH")
    report.add_argument("--out", default=f"{DATA}/report", metavar="DIR")
    report.add_argument("--day", type=_day, metavar="D", help="UTC day of the events (the last)")
    report.add_argument("--fences", metavar="FILE", help="GeoJSON with the fences to watch")
    _add_spark(report)
    report.set_defaults(run=run_report)

    nightly = subparsers.add_parser(
        "nightly", help="export up to yesterday, compact, report, prune"
    )
    _add_source(nightly)
    nightly.add_argument("--report", metavar="DIR", help="folder of the reports (DATA/report)")
    nightly.add_argument("--day", type=_day, metavar="D", help="the day to end with (yesterday)")
    nightly.add_argument("--fences", metavar="FILE", help="GeoJSON with the fences to watch")
    nightly.add_argument(
        "--keep-log-days", type=_count, metavar="N", help="delete exported segments older than this"
    )
    nightly.add_argument(
        "--keep-days", type=_count, metavar="N", help="delete exported dates older than this"
    )
    _add_spark(nightly)
    nightly.set_defaults(run=run_nightly)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", default=DATA, metavar="DIR", help=f"the broker's data ({DATA})")
    parser.add_argument("--out", metavar="PATH", help="folder or URI of the export (DATA/parquet)")
    parser.add_argument(
        "--far-days",
        type=_count,
        default=FAR_DAYS,
        metavar="N",
        help=f"events dated farther from their receipt go to one partition ({FAR_DAYS})",
    )
    parser.add_argument(
        "--staging", metavar="URI", help="copy segments here for executors that see no local disk"
    )


def _add_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", metavar="URL", help="Spark master (local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], type=_setting, metavar="K=V", help="a Spark setting"
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day like 2026-03-28") from None


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    key, equals, setting = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE")
    return key, setting


def run_export(args: argparse.Namespace) -> int:
    """Run `geomqtt export`."""
    return _guarded(_export, args)


def run_report(args: argparse.Namespace) -> int:
    """Run `geomqtt report`."""
    return _guarded(_report, args)


def run_nightly(args: argparse.Namespace) -> int:
    """Run `geomqtt nightly`."""
    return _guarded(_nightly, args)


def _guarded(command: Callable[[argparse.Namespace, "Progress"], int], args: Any) -> int:
    from spark_export.lock import Busy
    from spark_export.progress import Progress

    progress = Progress()
    try:
        return command(args, progress)
    except Busy as error:
        progress.fail(str(error))
        return BUSY
    except ExportError as error:
        progress.fail(str(error))
        return NOT_DONE
    except KeyboardInterrupt:
        progress.fail("interrupted; what was committed stays, run again for the rest")
        return 130


@contextmanager
def _session(args: argparse.Namespace, progress: "Progress") -> Iterator["SparkSession"]:
    from spark_export import session

    session.check_spark()
    with progress.step("starting Spark"):
        spark = session.start(args.master, settings=dict(args.conf))
    progress.spark = spark
    try:
        yield spark
    finally:
        progress.spark = None
        spark.stop()


def _export(args: argparse.Namespace, progress: "Progress") -> int:
    if args.day and args.last:
        raise ExportError("--day and --to exclude each other")
    first, last = (args.day, args.day) if args.day else (args.first, args.last)
    if first and last and first > last:
        raise ExportError(f"--from {first} is after --to {last}")
    # Before Java starts: a folder that is not there needs no Spark to be told.
    log_folder(args.data)
    out = args.out or f"{args.data}/parquet"
    _check_writable(out)
    with _session(args, progress) as spark:
        outcome = _export_days(args, spark, progress, first, last, out)
    return PARTLY if outcome.bad else DONE


def _export_days(
    args: argparse.Namespace,
    spark: "SparkSession",
    progress: "Progress",
    first: date | None,
    last: date | None,
    out: str,
) -> "Outcome":
    from spark_export.export import export

    with progress.step(f"exporting {_span(first, last)} to {out}"):
        outcome = export(
            spark,
            args.data,
            out,
            first_day=first.isoformat() if first else "0001-01-01",
            last_day=last.isoformat() if last else "9999-12-31",
            far_days=args.far_days,
            staging_address=args.staging,
            say=progress.say,
        )
    for error in outcome.bad:
        progress.fail(f"not exported: {error}")
    if outcome.seen == 0:
        progress.say(f"no events were received {_span(first, last)}")
    elif outcome.rows == 0:
        progress.say("nothing new to export")
    else:
        progress.say(
            f"exported {outcome.rows:,} events to {outcome.files} files, "
            f"{outcome.bytes / 1e6:,.1f} MB"
        )
    return outcome


def _span(first: date | None, last: date | None) -> str:
    if first and first == last:
        return f"on {first}"
    if not first and not last:
        return "on any day"
    return " ".join([f"from {first}"] * bool(first) + [f"up to {last}"] * bool(last))


def _report(args: argparse.Namespace, progress: "Progress") -> int:
    _check_source(args.source)
    _check_writable(args.out)
    with _session(args, progress) as spark:
        _write_report(args, spark, progress, args.source, args.out, args.day)
    return DONE


def _write_report(
    args: argparse.Namespace,
    spark: "SparkSession",
    progress: "Progress",
    source: str,
    out: str,
    day: date | None,
) -> None:
    from spark_export.report.build import build_report

    with progress.step("analysing"):
        page = build_report(spark, source, out, day=day, fences_path=args.fences)
    progress.say(f"report: {page}")


def _nightly(args: argparse.Namespace, progress: "Progress") -> int:
    from spark_export.lock import locked

    out = args.out or f"{args.data}/parquet"
    report = args.report or f"{args.data}/report"
    log_folder(args.data)
    _check_writable(out)
    _check_writable(report)
    lock = str(Path(out, "_nightly.lock")) if _is_local(out) else _lock_for(out)
    with locked(lock, "nightly run"), _session(args, progress) as spark:
        return _nightly_steps(args, spark, progress, out, report)


def _nightly_steps(
    args: argparse.Namespace, spark: "SparkSession", progress: "Progress", out: str, report: str
) -> int:
    from spark_export.analytics.events import days, read_events
    from spark_export.compact import compact
    from spark_export.prune import open_manifest, prune_export, prune_log

    today = datetime.now(UTC).date()
    day = args.day or today - timedelta(days=1)
    outcome = _export_days(args, spark, progress, None, day, out)
    with progress.step("compacting"):
        saved = compact(spark, out, say=progress.say)
    if saved:
        progress.say(f"{saved} files fewer")
    manifest = open_manifest(out, spark)
    if manifest.load().files and day in days(read_events(spark, out)):
        _write_report(args, spark, progress, out, report, day)
    else:
        progress.say(f"no events happened on {day}: no report")
    if args.keep_log_days is not None:
        count = prune_log(args.data, manifest, today, args.keep_log_days, progress.say)
        progress.say(f"pruned {count} segments of the log")
    if args.keep_days is not None:
        count = prune_export(manifest, today, args.keep_days)
        progress.say(f"pruned {count} files of the export")
    return PARTLY if outcome.bad else DONE


def _is_local(address: str) -> bool:
    return "://" not in address


def _lock_for(address: str) -> str:
    name = "".join(c if c.isalnum() else "-" for c in address)
    return str(Path(tempfile.gettempdir(), f"geomqtt-nightly-{name}.lock"))


def _check_source(address: str) -> None:
    if _is_local(address) and not Path(address).is_dir():
        raise ExportError(f"folder {address} does not exist")


def _check_writable(address: str) -> None:
    if not _is_local(address):
        return
    try:
        os.makedirs(address, exist_ok=True)
        with tempfile.TemporaryFile(dir=address):
            pass
    except OSError as error:
        raise ExportError(f"cannot write to {address}: {error.strerror}") from error
