"""The configuration: defaults, the annotated example, and one clear line for every mistake."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from broker.config import Config, ConfigError, load, parse

EXAMPLE = Path(__file__).resolve().parents[2] / "docker" / "geomqtt.toml"
UNSET_BY_DEFAULT = {"allow_anonymous"}


def test_the_annotated_example_says_what_the_defaults_are() -> None:
    assert load(EXAMPLE) == Config()


def test_the_annotated_example_names_every_key() -> None:
    example = tomllib.loads(EXAMPLE.read_text())

    def missing(kind: type[msgspec.Struct], table: dict[str, object]) -> set[str]:
        return set(kind.__struct_fields__) - table.keys() - UNSET_BY_DEFAULT

    default = Config()
    assert missing(Config, example) == set()
    assert missing(type(default.listener[0]), example["listener"][0]) == set()
    for section in ("limits", "geo", "storage", "http"):
        assert missing(type(getattr(default, section)), example[section]) == set()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"limits": {"max_pakets": 1}}, "f: limits: Object contains unknown field `max_pakets`"),
        ({"listener": [{"port": "x"}]}, "f: listener[0].port: Expected `int`, got `str`"),
        ({"listener": [{"port": 70_000}]}, "f: listener[0].port: 70000 is no port"),
        ({"listener": [{"kind": "unix"}]}, "f: listener[0].path: a Unix socket needs a path"),
        ({"listener": [{"kind": "tls"}]}, "f: listener[0]: tls needs certfile and keyfile"),
        ({"storage": {"durability": "most"}}, "f: storage.durability: Invalid enum value 'most'"),
    ],
)
def test_a_mistake_is_answered_with_its_path(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(data, "f")
    assert str(caught.value) == message


def test_a_public_listener_without_users_is_refused_with_the_setting_that_allows_it() -> None:
    with pytest.raises(ConfigError, match=r"listener\[0\]: 0\.0\.0\.0 .*allow_anonymous = true"):
        parse({"listener": [{"host": "0.0.0.0"}]}, "f")
    assert parse({"listener": [{"host": "0.0.0.0", "allow_anonymous": True}]}, "f")


def test_a_missing_file_and_a_torn_file_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml")
    torn = tmp_path / "torn.toml"
    torn.write_text("[limits\n")
    with pytest.raises(ConfigError, match=r"torn\.toml: .*line 1"):
        load(torn)
