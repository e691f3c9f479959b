"""The command line: `geomqtt serve`, `pub`, `sub`, `passwd`, `demo`, `export` and others.

Each command lives in a module of its own that adds its parser and its `run(args)`; they
are imported late, so that `geomqtt pub` does not wait for what only `serve` needs.
"""

import argparse
import importlib
import sys
from importlib.metadata import version

# command -> module with add_parsers(subparsers)
COMMANDS = {
    "serve": "geomqtt.serve",
    "pub": "geomqtt.pubsub",
    "sub": "geomqtt.pubsub",
    "passwd": "geomqtt.passwd",
    "convert-config": "geomqtt.convert_config",
    "demo": "geomqtt.demo",
    "export": "spark_export.commands",
    "report": "spark_export.commands",
    "nightly": "spark_export.commands",
}


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Make the parser; with a command given, only that command's module is imported."""
    parser = argparse.ArgumentParser(
        prog="geomqtt", description="An MQTT broker that knows place and time.", add_help=False
    )
    parser.add_argument("--help", action="help", help="show this help and exit")
    parser.add_argument("--version", action="version", version=f"geomqtt {version('geomqtt')}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values())
    for module in wanted:
        importlib.import_module(module).add_parsers(subparsers)
    return parser


def main(argv: list[str] | None = None) -> None:
    """Run a command and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = build_parser(arguments[0] if arguments else None)
    args = parser.parse_args(arguments)
    try:
        sys.exit(args.run(args))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`: nothing is wrong.
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
