"""Password hashes and the file that holds them: one `user:hash` a line.

New hashes are argon2id. Files written by Mosquitto load as they are: `$7$` (PBKDF2 with
SHA-512), `$6$` (one round of salted SHA-512) and `$argon2id$`. Nothing here waits or
locks; verifying is slow on purpose, so the caller does it away from the event loop.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import tempfile
from pathlib import Path

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

# The smaller of the parameters that OWASP recommends: 19 MiB, two passes, one lane. A broker
# whose clients all return at once must check thousands of passwords within seconds.
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, type=Type.ID)

MAX_ITERATIONS = 10_000_000


class BadUsersFile(Exception):
    """A users file that cannot be used: one line that says where and why."""


def make_hash(password: bytes) -> str:
    """Hash a new password."""
    return _hasher.hash(password)


def verify(password: bytes, hashed: str) -> bool:
    """Tell whether a password belongs to a hash that `check_hash` has passed."""
    if hashed.startswith("$argon2"):
        try:
            return _hasher.verify(hashed, password)
        except (VerificationError, InvalidHashError):
            return False
    iterations, salt, digest = _parse_mosquitto(hashed)
    if iterations:
        made = hashlib.pbkdf2_hmac("sha512", password, salt, iterations, len(digest))
    else:
        made = hashlib.sha512(password + salt).digest()
    return hmac.compare_digest(made, digest)


def check_hash(hashed: str) -> None:
    """Refuse what is no hash that we can verify; raises ValueError."""
    if hashed.startswith("$argon2"):
        try:
            parameters = extract_parameters(hashed)
        except InvalidHashError:
            raise ValueError("argon2 hash does not parse") from None
        if parameters.type is not Type.ID:
            raise ValueError("argon2 hash is not argon2id")
        return
    _parse_mosquitto(hashed)


def _parse_mosquitto(hashed: str) -> tuple[int, bytes, bytes]:
    """Take `$7$iterations$salt$digest` or `$6$salt$digest` apart; 0 iterations stand for `$6$`."""
    match hashed.split("$"):
        case ["", "7", count, salt_text, digest_text]:
            if not (count.isascii() and count.isdigit() and 0 < int(count) <= MAX_ITERATIONS):
                raise ValueError(f"{count!r} is no number of iterations")
            iterations = int(count)
        case ["", "6", salt_text, digest_text]:
            iterations = 0
        case _:
            raise ValueError("hash is neither $argon2id$ nor Mosquitto's $6$ or $7$")
    try:
        salt = base64.b64decode(salt_text, validate=True)
        digest = base64.b64decode(digest_text, validate=True)
    except binascii.Error:
        raise ValueError("salt or digest is not base64") from None
    if len(digest) != 64 or not salt:
        raise ValueError("salt or digest has the wrong length")
    return iterations, salt, digest


def check_name(name: str) -> None:
    """Refuse a user name that the file cannot hold; raises ValueError."""
    if not name:
        raise ValueError("user name is empty")
    if ":" in name or name.startswith("#") or not name.isprintable() or name != name.strip():
        raise ValueError(f"user name {name!r} holds what a users file cannot")


def read_users(path: str | Path) -> dict[str, str]:
    """Read a users file: blank lines and lines that begin with `#` mean nothing."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadUsersFile(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadUsersFile(f"{path}: not UTF-8") from None
    users: dict[str, str] = {}
    for number, text_line in enumerate(text.split("\n"), 1):
        line = text_line.strip()
        if not line or line.startswith("#"):
            continue
        name, colon, hashed = line.partition(":")
        try:
            if not colon:
                raise ValueError("expected user:hash")
            check_name(name)
            check_hash(hashed)
            if name in users:
                raise ValueError(f"user {name!r} stands there twice")
        except ValueError as error:
            raise BadUsersFile(f"{path}: line {number}: {error}") from None
        users[name] = hashed
    return users


def change_user(path: str | Path, name: str, hashed: str | None) -> bool:
    """Set the hash of a user, or delete the user; tell whether it stood there before.

    Comments and the order of lines stay. The file is replaced in one step and readable by
    its owner alone.
    """
    path = Path(path)
    found = name in read_users(path)
    lines = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip().partition(":")[0] != name or line.lstrip().startswith("#"):
            lines.append(line)
        elif hashed is not None:
            lines.append(f"{name}:{hashed}")
    while lines and not lines[-1]:
        lines.pop()
    if hashed is not None and not found:
        lines.append(f"{name}:{hashed}")
    write_users(path, "".join(f"{line}\n" for line in lines))
    return found


def write_users(path: str | Path, text: str) -> None:
    """Put a users file into place in one step, with mode 0600."""
    path = Path(path).resolve()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            # A broker under a user of its own must still be able to read it.
            with contextlib.suppress(PermissionError):
                os.chown(temporary, path.stat().st_uid, path.stat().st_gid)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
