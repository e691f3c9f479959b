"""Password hashes, the users file, and `geomqtt passwd`."""

import io
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from geomqtt.cli import build_parser
from plugins.passwords import BadUsersFile, change_user, make_hash, read_users, verify

# Made with `openssl kdf -keylen 64 -kdfopt digest:SHA512 -kdfopt pass:secret
# -kdfopt hexsalt:… -kdfopt iter:101 PBKDF2` and `openssl dgst -sha512`, not with our code.
ARGON2I = (
    "$argon2i$v=19$m=19456,t=2,p=1$mYI03S95i1cSZlKXyYP3pA"
    "$dAh6JdmsUbwHjoaLI0pphgdL0fHNuHfux9BBySWlQXY"
)
PBKDF2 = (
    "$7$101$AAECAwQFBgcICQoL$Xr99N9ym9ys8TWxis5ajETJq6EVYzmc6nb8t3pUY"
    "nPBbCAbICS4xejTltonXWCtJNBvA+By+TXUqU6qCblO00w=="
)
SHA512 = (
    "$6$AAECAwQFBgcICQoL$JqsxEv/ucyxjA5DKsQ+Y8CDWaQDNQI9FpAkmfwAq"
    "WfwZLk/JEGgM0EpylrJHAZKKyFQjJeZ3nFaHjPzOzPPmPw=="
)


def test_a_new_hash_is_argon2id_and_verifies_only_its_password() -> None:
    hashed = make_hash(b"secret")
    assert hashed.startswith("$argon2id$")
    assert verify(b"secret", hashed)
    assert not verify(b"Secret", hashed)


@pytest.mark.parametrize("hashed", [PBKDF2, SHA512])
def test_hashes_of_mosquitto_verify(hashed: str) -> None:
    assert verify(b"secret", hashed)
    assert not verify(b"secret2", hashed)
    assert not verify(b"", hashed)


def test_a_users_file_of_mosquitto_loads_with_comments_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# ours\n\nann:{PBKDF2}\r\nbob:{SHA512}\n")
    assert read_users(path) == {"ann": PBKDF2, "bob": SHA512}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ann\n", "line 1: expected user:hash"),
        (f"ann:{SHA512}\nann:{SHA512}\n", "line 2: user 'ann' stands there twice"),
        ("\nann:secret\n", "line 2: hash is neither"),
        (f":{SHA512}", "line 1: user name is empty"),
        ("ann:$7$0$AAAA$AAAA", "is no number of iterations"),
        ("ann:$7$²$AAAA$AAAA", "is no number of iterations"),
        ("ann:$7$101$AAAA$AAAA", "wrong length"),
        ("ann:$6$%%%$AAAA", "not base64"),
        ("ann:$argon2id$v=19$nonsense", "argon2 hash does not parse"),
        (f"ann:{ARGON2I}", "not argon2id"),
    ],
)
def test_a_broken_users_file_is_refused_with_its_line(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(BadUsersFile, match=str(path)) as error:
        read_users(path)
    assert reason in str(error.value)


def test_a_users_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadUsersFile, match="not UTF-8"):
        read_users(path)
    with pytest.raises(BadUsersFile, match="No such file"):
        read_users(tmp_path / "nowhere")


def test_changing_one_user_leaves_comments_order_and_others_alone(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# first\nann:{SHA512}\n#bob:old\nbob:{SHA512}\ncid:{SHA512}")
    assert change_user(path, "bob", PBKDF2)
    assert path.read_text() == f"# first\nann:{SHA512}\n#bob:old\nbob:{PBKDF2}\ncid:{SHA512}\n"
    assert change_user(path, "ann", None)
    assert not change_user(path, "ann", None)
    assert not change_user(path, "dan", SHA512)
    assert list(read_users(path)) == ["bob", "cid", "dan"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["users"]


def passwd(*arguments: str) -> int:
    args = build_parser("passwd").parse_args(["passwd", *arguments])
    code: int = args.run(args)
    return code


def test_passwd_creates_adds_changes_and_deletes(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    assert passwd("-c", "-b", path, "ann", "one") == 0
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert passwd("-b", path, "bob", "two") == 0
    assert passwd("-b", path, "ann", "three") == 0
    users = read_users(path)
    assert verify(b"three", users["ann"])
    assert verify(b"two", users["bob"])
    assert passwd("-D", path, "ann") == 0
    assert passwd("-D", path, "ann") == 1
    assert list(read_users(path)) == ["bob"]


def test_passwd_reads_the_password_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "users")
    monkeypatch.setattr("sys.stdin", io.StringIO("söme thing \n"))
    assert passwd("-c", "--password-stdin", path, "ann") == 0
    assert verify("söme thing ".encode(), read_users(path)["ann"])


def test_passwd_asks_twice_and_takes_nothing_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "users")
    answers = iter(["one", "two", "three", "three"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert passwd("-c", path, "ann") == 2
    assert "differ" in capsys.readouterr().err
    assert not Path(path).exists()
    assert passwd("-c", path, "ann") == 0
    assert verify(b"three", read_users(path)["ann"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-b", "FILE", "ann", "x"], "does not exist: -c creates it"),
        (["-c", "-b", "FILE", "a:b", "x"], "holds what a users file cannot"),
        (["-c", "-b", "FILE", "#a", "x"], "holds what a users file cannot"),
        (["-c", "-b", "FILE", "", "x"], "user name is empty"),
        (["-c", "-b", "FILE", "ann", ""], "password is empty"),
        (["FILE", "ann", "-c", "-b"], "-b takes the password"),
        (["FILE", "ann", "x", "-c"], "-b takes the password"),
        (["FILE", "ann", "-D", "-c"], "-D goes with"),
    ],
)
def test_a_mistake_with_passwd_gets_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    path = str(tmp_path / "users")
    assert passwd(*[path if each == "FILE" else each for each in arguments]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not Path(path).exists()


def test_passwd_never_overwrites_a_file_when_told_to_create(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    path.write_text(f"ann:{SHA512}\n")
    assert passwd("-c", "-b", str(path), "bob", "x") == 2
    assert "exists already" in capsys.readouterr().err
    assert path.read_text() == f"ann:{SHA512}\n"


def test_passwd_is_a_command_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "users"
    command = [sys.executable, "-m", "geomqtt", "passwd", str(path), "ann", "--password-stdin"]
    result = subprocess.run([*command, "-c"], input=b"secret\n", capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert verify(b"secret", read_users(path)["ann"])
