"""A SparkSession for the exporter: UTC, quiet, with `geomqtt` registered.

What is missing (PySpark, Java, a master that answers) is told in one line.
"""

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark_export.segments import ExportError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA = 17


class Unavailable(ExportError):
    """Spark cannot be started here."""


def check_spark() -> None:
    """Say what is missing before anything else is done."""
    try:
        import adbc_driver_sqlite
        import pyarrow
        import pyspark
    except ImportError as error:
        raise Unavailable(
            f"Spark support is not installed ({error.name} is missing): "
            "pip install 'geomqtt[spark]'"
        ) from error
    del adbc_driver_sqlite, pyarrow, pyspark
    check_java()


def check_java() -> None:
    """Find a Java that can run Spark."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "no `java` on the PATH and JAVA_HOME is not set"
    if java is None or not Path(java).exists():
        raise Unavailable(f"Spark needs Java {MIN_JAVA} or later, and none was found ({where})")
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"Spark needs Java, and {java} does not run: {error}") from error
    version = answer.stderr.partition('"')[2].partition('"')[0]
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < MIN_JAVA:
        raise Unavailable(f"Spark needs Java {MIN_JAVA} or later, {java} is {version or 'unknown'}")


def start(
    master: str | None = None, *, name: str = "geomqtt", settings: dict[str, str] | None = None
) -> "SparkSession":
    """Start (or join) a session made for this work.

    Without a master, one given to spark-submit counts, and local[*] otherwise.
    """
    check_spark()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with _quiet_start():
        spark = _build(master, name, settings or {})
    spark.sparkContext.setLogLevel("OFF")
    if not str(spark.sparkContext.master).startswith("local"):
        _send_code(spark)
    from spark_export.source import register

    register(spark)
    return spark


def _build(master: str | None, name: str, settings: dict[str, str]) -> "SparkSession":
    from pyspark.conf import SparkConf
    from pyspark.errors import PySparkException, PySparkRuntimeError
    from pyspark.sql import SparkSession

    # spark-submit hands its settings over as system properties, which SparkConf reads.
    conf = SparkConf()
    if master:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", "local[*]")
    conf.setAppName(name)
    for key, value in {**_DEFAULTS, **settings}.items():
        conf.set(key, value) if key in settings else conf.setIfMissing(key, value)
    conf.set("spark.sql.session.timeZone", "UTC")
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, PySparkRuntimeError, OSError) as error:
        raise Unavailable(f"Spark does not start: {_first_line(error)}") from error
    except Exception as error:  # the gateway's own errors have no common class
        if type(error).__module__.startswith("py4j"):
            raise Unavailable(f"Spark does not start: {_first_line(error)}") from error
        raise


_DEFAULTS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.enabled": "true",
    "spark.speculation": "false",
    # Where Spark would otherwise leave folders in whatever directory the user stands in.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "geomqtt-spark-warehouse")),
}


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep the lines that Java writes while Spark starts away from the user.

    They go to the file descriptor itself, before any log level can be set.
    """
    if "GEOMQTT_SPARK_LOG" in os.environ:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as noise:
        os.dup2(noise.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _send_code(spark: "SparkSession") -> None:
    """Give remote executors our own modules; what else they need must be installed there."""
    root = Path(__file__).resolve().parent.parent
    # Executors fetch it from here when they start, which may be at any time.
    folder = tempfile.mkdtemp(prefix="geomqtt-code-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder, "geomqtt_spark_code.zip")
    with zipfile.ZipFile(archive, "w") as target:
        for package in ("spark_export", "protocol", "plugins"):
            for path in sorted((root / package).rglob("*.py")):
                target.write(path, path.relative_to(root))
    spark.sparkContext.addPyFile(str(archive))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
