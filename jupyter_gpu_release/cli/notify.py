"""``notify``: how one is told of one's detached runs."""

from __future__ import annotations

import argparse
import getpass
import sys

from ..protocol.rest import NotifyChange, NotifyDelivery, NotifyDocument
from .connect import open_gateway
from .runs import print_json
from .tables import format_moment

#: a mail server may take its time
_TEST_S = 60.0


def run(arguments: argparse.Namespace) -> int:
    """``jupyter gpu notify``; with ``--test`` the exit status says if every message was taken."""
    change = _change(arguments)
    with open_gateway(timeout_s=_TEST_S) as gateway:
        document = gateway.notify() if change == NotifyChange() else gateway.change_notify(change)
        if arguments.test:
            document = gateway.test_notify()
    if arguments.json:
        print_json(document)
    else:
        sys.stdout.write("\n".join(_lines(document)) + "\n")
    return 1 if arguments.test and any(entry.error for entry in document.deliveries) else 0


def _change(arguments: argparse.Namespace) -> NotifyChange:
    webhook = None if arguments.webhook is None else _webhook() if arguments.webhook else ""
    on = arguments.on
    starts, ends, pauses = (None if on is None else word in on for word in ("start", "end", "pause"))
    return NotifyChange(arguments.email, webhook, starts, ends, pauses)


def _webhook() -> str:
    """Its address is a secret: it stands in no command line, and is not shown while it is typed."""
    if sys.stdin.isatty():
        return getpass.getpass("Address of the webhook (it is not shown): ").strip()
    return sys.stdin.readline().strip()


def _lines(document: NotifyDocument) -> list[str]:
    ways = [f"mail to {document.email}"] * bool(document.email)
    ways += [f"a webhook on {document.webhook}"] * bool(document.webhook)
    events = ["start after waiting"] * document.starts + ["preemption"] * document.pauses + ["end"] * document.ends
    told = f"{document.user} is not told of detached runs."
    if ways and events:
        named = " or ".join(filter(None, [", ".join(events[:-1]), events[-1]]))
        told = f"{document.user} is told when detached runs {named}: {', '.join(ways)}."
    return [told, *map(_delivery, document.deliveries), *_offers(document)]


def _delivery(entry: NotifyDelivery) -> str:
    of = f"run {entry.run}" if entry.run else "a test"
    how = f"failed: {entry.error}" if entry.error else "was taken"
    return f"  last {entry.channel}, {format_moment(entry.at)}, of {of}: {how}"


def _offers(document: NotifyDocument) -> list[str]:
    said = []
    if document.mail_from and not document.email:
        said.append(f"  `jupyter gpu notify --email ADDRESS`: mails, sent by {document.mail_from}")
    if document.webhook_hosts and not document.webhook:
        said.append(f"  `jupyter gpu notify --webhook`: a webhook on {', '.join(document.webhook_hosts)}")
    if not document.mail_from and not document.webhook_hosts:
        said.append("  This cluster sends neither mails nor to webhooks: its operator can say how.")
        said.append("  (`jupyter gpu docs operate/notify`)")
    return said
