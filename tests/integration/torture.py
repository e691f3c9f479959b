"""The torture's command: `python tests/integration/torture.py --help`."""

import sys
from pathlib import Path


def main() -> int:
    # Run as a script, Python sees this folder only; tests are imported from the root.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.integration.killing import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
