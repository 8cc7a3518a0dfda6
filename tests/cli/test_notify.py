"""``jupyter gpu notify``: how one is told, how the last tries went, and what there is to choose."""

from __future__ import annotations

import io
import shlex

import msgspec
import pytest
from doc_blocks import block

from jupyter_gpu_release.cli.notify import _change, _lines
from jupyter_gpu_release.cli.parser import parse
from jupyter_gpu_release.protocol.rest import NotifyChange, NotifyDelivery, NotifyDocument

_NONE = NotifyDocument(1, "ann", "", "", False, True, "gpu@example.org", ["hooks.example.org"], [], pauses=False)


def test_what_one_is_told_of_and_by_which_ways() -> None:
    mailed = msgspec.structs.replace(_NONE, email="ann@example.org", starts=True, pauses=True)
    assert _lines(mailed)[0] == (
        "ann is told when detached runs start after waiting, preemption or end: mail to ann@example.org."
    )
    both = msgspec.structs.replace(_NONE, email="ann@example.org", webhook="hooks.example.org")
    assert _lines(both) == [
        "ann is told when detached runs end: mail to ann@example.org, a webhook on hooks.example.org."
    ]
    silent = msgspec.structs.replace(both, ends=False)
    assert _lines(silent) == ["ann is not told of detached runs."], "ways without an event are none"


def test_what_there_is_to_choose_is_offered() -> None:
    assert _lines(_NONE) == [
        "ann is not told of detached runs.",
        "  `jupyter gpu notify --email ADDRESS`: mails, sent by gpu@example.org",
        "  `jupyter gpu notify --webhook`: a webhook on hooks.example.org",
    ]
    neither = msgspec.structs.replace(_NONE, mail_from="", webhook_hosts=[])
    assert "neither mails nor to webhooks" in _lines(neither)[1]
    mails_only = msgspec.structs.replace(_NONE, webhook_hosts=[])
    assert [line for line in _lines(mails_only) if "webhook" in line] == []


def test_the_last_tries_say_how_they_went() -> None:
    tries = [NotifyDelivery("mail", 1.8e9, "r1"), NotifyDelivery("webhook", 1.8e9, error="refused")]
    said = _lines(msgspec.structs.replace(_NONE, deliveries=tries))[1:3]
    assert said[0].startswith("  last mail, 2027-01-1")
    assert said[0].endswith(", of run r1: was taken")
    assert said[1].endswith(", of a test: failed: refused")


def test_the_commands_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("https://hooks.example.org/secret\n"))
    lines = block("use/notifications.md", "# Be told when a run starts or ends").commands()
    mail, webhook, events, nothing = (parse(shlex.split(line, comments=True)[2:]) for line in lines)
    assert _change(mail) == NotifyChange(email="ann@example.org")
    assert _change(webhook) == NotifyChange(webhook="https://hooks.example.org/secret")
    assert (_change(events), events.test) == (NotifyChange(starts=False, ends=True, pauses=True), True)
    assert _change(nothing) == NotifyChange()
    every = parse(["notify", "--on", "start, pause,end"])
    assert _change(every) == NotifyChange(starts=True, ends=True, pauses=True)
