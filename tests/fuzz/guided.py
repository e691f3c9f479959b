"""Fuzzing guided by coverage, with atheris: a process of its own, because libFuzzer ends it.

python tests/fuzz/guided.py packets -atheris_runs=1000000 -timeout=5 CORPUS
"""

import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import atheris

    with atheris.instrument_imports(include=["protocol", "broker.client_fences"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[sys.argv.pop(1)]

    def once(data: bytes) -> None:
        target(data)

    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
