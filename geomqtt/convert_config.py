"""`geomqtt convert-config`: a mosquitto.conf becomes a TOML configuration, for good.

ACL files are converted too and written beside it; password files stay as they are, because
`users_file` reads Mosquitto's hashes. Only what differs from the defaults is written.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from broker.config import Config, ConfigError, Listener, load
from broker.mosquitto_conf import Reading, read
from plugins import mosquitto_acl
from plugins.acl import FileText, RuleText
from plugins.api import PluginError


def add_parsers(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "convert-config",
        help="turn a mosquitto.conf into a TOML configuration",
        description="Turn a mosquitto.conf into a TOML configuration, with its ACL files.",
        add_help=False,
    )
    parser.add_argument("--help", action="help", help="show this help and exit")
    parser.add_argument("file", metavar="MOSQUITTO_CONF", help="the file to convert")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="geomqtt.toml", help="default: %(default)s"
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Convert, and say what was written and what got lost."""
    try:
        reading = read(args.file)
        files = convert(reading, args.file, Path(args.output))
        for path in files:
            if path.exists() and not args.force:
                raise ConfigError(f"{path}: exists: use --force to replace it")
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
        load(args.output)
    except (ConfigError, PluginError) as error:
        print(f"geomqtt: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"geomqtt: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    for remark in reading.remarks:
        print(f"geomqtt: {remark}", file=sys.stderr)
    for path in files:
        print(path)
    return 0


def convert(reading: Reading, source: str, output: Path) -> dict[Path, str]:
    """Give the files to write, with their text; the configuration comes last."""
    config = reading.config
    files: dict[Path, str] = {}
    converted = {}
    for number, path in enumerate(dict.fromkeys(reading.acl_files), 1):
        suffix = "" if number == 1 else f"-{number}"
        beside = output.with_name(f"{output.stem}-acl{suffix}.toml")
        files[beside] = f"# From {path}.\n\n{acl_text(mosquitto_acl.read(path))}"
        converted[path] = str(beside)
    for entry in config.plugin:
        if entry.use == "plugins.per_listener:ListenerAcl":
            for listener in config.listener:
                if listener.name in entry.settings["listeners"]:
                    listener.acl_file = converted[entry.settings["settings"]["file"]]
        else:
            config.acl_file = converted[entry.settings["file"]]
    config.plugin = []
    head = [f"# From {source}. Every key: docker/geomqtt.toml."]
    head += [f"# {remark}" for remark in reading.remarks]
    files[output] = "\n".join([*head, "", config_text(config)])
    return files


def config_text(config: Config) -> str:
    """Write a configuration as TOML, without what is as by default."""
    default = Config()
    plain = []
    tables = []
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if name == "listener":
            for listener in value:
                keys = {**_changed(listener, Listener()), "kind": listener.kind}
                tables.append(_table("[[listener]]", keys))
        elif isinstance(value, msgspec.Struct):
            changed = _changed(value, getattr(default, name))
            if changed:
                tables.append(_table(f"[{name}]", changed))
        elif value != getattr(default, name):
            plain.append(f"{name} = {toml(value)}\n")
    return "\n".join(["".join(plain), *tables]).lstrip("\n")


def acl_text(text: FileText) -> str:
    """Write an ACL file as TOML."""
    default = RuleText(topics=[])
    return "\n".join(_table("[[rule]]", _changed(rule, default)) for rule in text.rule)


def _changed(value: msgspec.Struct, default: msgspec.Struct) -> dict[str, Any]:
    return {
        name: getattr(value, name)
        for name in value.__struct_fields__
        if getattr(value, name) != getattr(default, name)
    }


def _table(head: str, keys: dict[str, Any]) -> str:
    return f"{head}\n" + "".join(f"{name} = {toml(value)}\n" for name, value in keys.items())


def toml(value: Any) -> str:
    """Write one value."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(each) for each in value)}]"
    # Of these kinds of values JSON and TOML think the same, apart from one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
