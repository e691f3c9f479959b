"""`geomqtt pub` and `geomqtt sub`: mosquitto_pub and mosquitto_sub with place and time.

Exit codes are theirs: 0 for done (also by SIGINT and SIGTERM), 1 for what went wrong, the
broker's return code when it refuses the connection, 27 when `sub -W` runs out of time.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

from geomqtt.client import Client
from geomqtt.errors import ConnectRefused, GeoMQTTError, SubscribeError
from geomqtt.geo_options import (
    add_condition_options,
    add_event_options,
    conditions,
    tell_location,
)
from geomqtt.options import UsageError, add_common_options, apply_url, make_client
from geomqtt.printing import Printer
from protocol.topics import matches

FAILURE = 1
TIMED_OUT = 27
CHUNK = 65_536

Publish = Callable[[Client, bytes], Coroutine[Any, Any, None]]


def add_parsers(subparsers: Any) -> None:
    """Add both commands to the command line."""
    pub = subparsers.add_parser(
        "pub", help="publish messages", description="Publish messages.", add_help=False
    )
    add_common_options(pub)
    _add_pub_options(pub)
    add_event_options(pub)
    pub.set_defaults(run=run_pub)
    sub = subparsers.add_parser(
        "sub",
        help="subscribe and print messages",
        description="Subscribe and print messages.",
        add_help=False,
    )
    add_common_options(sub)
    _add_sub_options(sub)
    add_condition_options(sub)
    sub.set_defaults(run=run_sub)


def _add_pub_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", dest="topic", metavar="TOPIC", help="topic to publish to")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("-m", dest="message", metavar="TEXT", help="publish this text")
    source.add_argument("-f", dest="file", metavar="FILE", help="publish what a file holds")
    source.add_argument("-l", dest="lines", action="store_true", help="a message per line of stdin")
    source.add_argument("-n", dest="null", action="store_true", help="publish an empty message")
    source.add_argument(
        "-s", dest="stdin", action="store_true", help="publish all of stdin at once"
    )
    parser.add_argument("-r", dest="retain", action="store_true", help="retain the message")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="publish it N times")
    parser.add_argument(
        "--repeat-delay", type=float, default=0.0, metavar="S", help="seconds between two of them"
    )


def _add_sub_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-t", dest="topics", metavar="FILTER", action="append", default=[],
        help="topic filter to subscribe to; may be repeated")  # fmt: skip
    add("-T", dest="filtered_out", metavar="FILTER", action="append", default=[],
        help="do not print messages under this filter; may be repeated")  # fmt: skip
    add("-U", dest="unsubscribed", metavar="FILTER", action="append", default=[],
        help="unsubscribe from this filter; may be repeated")  # fmt: skip
    add("-v", dest="verbose", action="store_true", help="print the topic before the payload")
    add("-N", dest="no_newline", action="store_true", help="print no newline after the payload")
    add("-F", dest="format", metavar="FORMAT", help="print like this: %%t %%p %%q %%r %%I %%j …")
    add("-C", dest="count", type=int, metavar="N", help="exit after N messages")
    add("-W", dest="timeout_s", type=float, metavar="S", help="exit after S seconds, with code 27")
    add("-E", dest="exit_subscribed", action="store_true", help="exit once subscribed")
    add("-R", dest="no_retained", action="store_true", help="do not print retained messages")
    add("--retained-only", action="store_true",
        help="print retained messages only; exit at the first other one")  # fmt: skip
    add("--remove-retained", action="store_true", help="clear the retained messages that come")


def run_pub(args: argparse.Namespace) -> int:
    """Publish, and return the exit code."""
    return _run(args, _publish)


def run_sub(args: argparse.Namespace) -> int:
    """Subscribe and print, and return the exit code."""
    return _run(args, _subscribe)


def _run(args: argparse.Namespace, command: Any) -> int:
    logging.basicConfig(
        level=logging.DEBUG if args.debug else logging.CRITICAL,
        format="%(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        return asyncio.run(_until_signalled(command(args)))
    except ConnectRefused as error:
        return _complain(args, error, error.code)
    except (UsageError, ValueError, GeoMQTTError) as error:
        return _complain(args, error, FAILURE)


def _complain(args: argparse.Namespace, error: Exception, code: int) -> int:
    if not args.quiet:
        print(f"geomqtt {args.command}: {error}", file=sys.stderr)
    return code


async def _until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """Run until it is done or the user has had enough; both are fine."""
    task = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped:
            raise
        return 0


# pub


async def _publish(args: argparse.Namespace) -> int:
    url_topic = apply_url(args)
    topic = args.topic if args.topic is not None else url_topic
    if topic is None:
        raise UsageError("no topic given: use -t")

    def publish(client: Client, payload: bytes) -> Coroutine[Any, Any, None]:
        return client.publish(
            topic,
            payload,
            args.qos,
            args.retain,
            at=args.at,
            time=args.time,
            to=args.to,
            epsg=args.epsg,
        )

    payload = b"" if args.lines else await _single_payload(args)
    async with make_client(args, "pub", reconnect=args.lines) as client:
        if args.lines:
            await _publish_lines(client, publish, args)
            return 0
        for number in range(args.repeat):
            if number and args.repeat_delay > 0:
                await asyncio.sleep(args.repeat_delay)
            await publish(client, payload)
    return 0


async def _single_payload(args: argparse.Namespace) -> bytes:
    if args.message is not None:
        return os.fsencode(args.message)
    if args.file is not None:
        try:
            return Path(args.file).read_bytes()
        except OSError as error:
            raise UsageError(f"-f {args.file}: {error.strerror}") from None
    if args.stdin:
        return b"".join([chunk async for chunk in _stdin_chunks()])
    if args.null:
        return b""
    raise UsageError("nothing to publish: use -m, -f, -l, -n or -s")


async def _publish_lines(client: Client, publish: Publish, args: argparse.Namespace) -> None:
    rest = b""
    async for chunk in _stdin_chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        if args.qos == 0:
            for line in lines:
                await publish(client, line)
        else:
            await asyncio.gather(*(publish(client, line) for line in lines))
    if rest:
        await publish(client, rest)


async def _stdin_chunks() -> AsyncIterator[bytes]:
    """Read stdin as it comes: a terminal, a pipe or a file."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
        waits = True
    except PermissionError:  # a file: always readable, and the selector says so this way
        waits = False
    try:
        while True:
            if waits:
                await readable.wait()
                readable.clear()
            chunk = os.read(descriptor, CHUNK)
            if not chunk:
                return
            yield chunk
    finally:
        if waits:
            loop.remove_reader(descriptor)


# sub


async def _subscribe(args: argparse.Namespace) -> int:
    url_topic = apply_url(args)
    filters = [url_topic, *args.topics] if url_topic is not None else args.topics
    if not filters and not args.unsubscribed:
        raise UsageError("no topic filter given: use -t")
    if args.count is not None and args.count < 1:
        raise UsageError("-C needs a number of at least 1")
    printer = Printer(
        verbose=args.verbose,
        newline=not args.no_newline,
        format_text=args.format,
        now=lambda: datetime.now().astimezone(),
    )
    try:
        async with (
            asyncio.timeout(args.timeout_s),
            make_client(args, "sub", reconnect=True) as client,
        ):
            await _ask(client, filters, args)
            if not args.exit_subscribed:
                await _print_messages(client, printer, args)
    except TimeoutError:
        return _complain(args, TimeoutError("timed out"), TIMED_OUT)
    return 0


async def _ask(client: Client, filters: list[str], args: argparse.Namespace) -> None:
    """Subscribe to what is granted; only if that is nothing it is an error."""
    tell_location(client, args)
    if filters:
        try:
            await client.subscribe(filters, args.qos, **conditions(args))
        except SubscribeError as error:
            if all(code >= 0x80 for code in error.granted):
                raise
            _complain(args, error, FAILURE)
    if args.unsubscribed:
        await client.unsubscribe(args.unsubscribed)


async def _print_messages(client: Client, printer: Printer, args: argparse.Namespace) -> None:
    printed = 0
    out = sys.stdout.buffer
    async for message in client.messages:
        if args.retained_only and not message.retain:
            return
        if message.retain and args.no_retained:
            continue
        if any(matches(each, message.topic) for each in args.filtered_out):
            continue
        if message.retain and args.remove_retained:
            await client.publish(message.topic, b"", qos=1, retain=True)
        out.write(printer.line(message))
        printed += 1
        # One write for all that is there: a flood costs a system call per read, not per line.
        if not len(client.messages) or printed == args.count:
            out.flush()
        if printed == args.count:
            return
