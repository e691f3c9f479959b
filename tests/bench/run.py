"""The benchmark's command: `python tests/bench/run.py --help`."""

import sys
from pathlib import Path


def main() -> int:
    # Run as a script, Python sees this folder only; the benchmark is imported from the root.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.bench.session import main as run_session

    return run_session()


if __name__ == "__main__":
    sys.exit(main())
