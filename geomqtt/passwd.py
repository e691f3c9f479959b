"""`geomqtt passwd`: add, change and delete the users of a users file."""

import argparse
import getpass
import sys
from pathlib import Path
from typing import Any

from plugins.passwords import BadUsersFile, change_user, check_name, make_hash, write_users


def add_parsers(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "passwd",
        help="add, change or delete a user",
        description="Add, change or delete a user of a users file. "
        "A running broker reads the file again on SIGHUP.",
        add_help=False,
    )
    parser.add_argument("--help", action="help", help="show this help and exit")
    parser.add_argument("file", metavar="FILE", help="the users file")
    parser.add_argument("user", metavar="USER", help="whose password to set")
    parser.add_argument("password", metavar="PASSWORD", nargs="?", help="the password, with -b")
    parser.add_argument("-c", dest="create", action="store_true", help="start a new file")
    parser.add_argument("-D", dest="delete", action="store_true", help="delete the user")
    parser.add_argument(
        "-b",
        dest="batch",
        action="store_true",
        help="take the password from the command line, where others on this machine may see it",
    )
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from standard input"
    )
    parser.set_defaults(run=run)


class Refused(Exception):
    """Why the file is not changed: one line for the user."""


def run(args: argparse.Namespace) -> int:
    """Change the file; 0 if that worked, 1 if there is no such user, 2 for a mistake."""
    try:
        return _run(args)
    except (Refused, BadUsersFile, ValueError) as error:
        print(f"geomqtt passwd: {error}", file=sys.stderr)
    except OSError as error:
        print(f"geomqtt passwd: {args.file}: {error.strerror}", file=sys.stderr)
    return 2


def _run(args: argparse.Namespace) -> int:
    path = Path(args.file)
    check_name(args.user)
    if args.delete:
        if args.create or args.batch or args.password_stdin or args.password is not None:
            raise Refused("-D goes with FILE and USER alone")
        if change_user(path, args.user, None):
            return 0
        print(f"geomqtt passwd: {path}: no user {args.user!r}", file=sys.stderr)
        return 1
    if args.create and path.exists():
        raise Refused(f"{path} exists already: without -c the user is added to it")
    if not args.create and not path.exists():
        raise Refused(f"{path} does not exist: -c creates it")
    hashed = make_hash(_password(args))
    if args.create:
        write_users(path, "")
    change_user(path, args.user, hashed)
    return 0


def _password(args: argparse.Namespace) -> bytes:
    if args.batch != (args.password is not None):
        raise Refused("-b takes the password as its last argument, and nothing else does")
    if args.batch and args.password_stdin:
        raise Refused("-b and --password-stdin exclude each other")
    if args.batch:
        password: str = args.password
    elif args.password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise Refused("the two passwords differ")
    if not password:
        raise Refused("password is empty")
    return password.encode()
