"""Users are told of their detached runs: what, by which ways, how often it is tried, and what never gets out."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from certificates import Authority
from notify_bed import HookBed, MailBed
from sqlalchemy.engine import Engine

from jupyter_gpu_release.client.home import write_secret
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.gateway.db import notifications
from jupyter_gpu_release.gateway.db.database import open_ledger
from jupyter_gpu_release.gateway.db.writer import LedgerWriter
from jupyter_gpu_release.gateway.notifications import channels, notifier
from jupyter_gpu_release.gateway.notifications.addresses import check_email, check_webhook, is_public
from jupyter_gpu_release.gateway.notifications.notifier import Notifier
from jupyter_gpu_release.protocol.config import MailRules, NotifyRules, WebhookRules
from jupyter_gpu_release.protocol.rest import NotifyChange, NotifyDocument
from jupyter_gpu_release.protocol.runs import Attempt, ErrorInfo, Outcome, RunView, ValueInfo

RUN = "20261121-031200-9f3a12b0"
VIEW = RunView(
    RUN,
    "ann",
    "running",
    gpus=2,
    name="fit\nthe model",
    title="secret_code()",
    origin="digits.ipynb [3]",
    detached=True,
    submitted_at=1000.0,
    granted_at=1090.0,
)
OVER = msgspec.structs.replace(VIEW, state="succeeded", gone_at=4690.0, finished_at=4690.0)
RESULTS = Outcome("ok", results=[ValueInfo("model", "Module", 10)])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    found = open_ledger(tmp_path / "home" / "ledger.sqlite")
    yield found
    found.dispose()


def _mail(bed: MailBed, **more: Any) -> MailRules:
    return MailRules("localhost", "gpu@example.org", bed.port, **({"tls": "none"} | more))


def _hooks(bed: HookBed, **more: Any) -> WebhookRules:
    return WebhookRules([bed.place], **({"private_addresses": True, "plain_http": True} | more))


def _play(engine: Engine, rules: NotifyRules, play: Callable[[Notifier], Awaitable[None]]) -> NotifyDocument:
    """Run it with a notifier, until all is sent or given up; returns how ann's document looks then."""

    async def whole() -> NotifyDocument:
        ledger = LedgerWriter(engine)
        notifier = Notifier(rules, engine, ledger, pauses_s=(0.0, 0.0))
        try:
            await play(notifier)
            while sending := list(notifier._sending.values()):
                await asyncio.wait(sending)
            await ledger.write(lambda _: None)
        finally:
            ledger.close()
        return notifier.document("ann")

    return asyncio.run(whole())


def test_a_detached_run_is_told_of_by_mail_and_webhook(engine: Engine) -> None:
    with MailBed() as mail, HookBed() as hook:
        rules = NotifyRules(_mail(mail), _hooks(hook), link="https://lab.example.org/lab?gpu-run={run}")

        async def play(notifier: Notifier) -> None:
            notifier.on_stage(VIEW, None)  # nobody wants to be told yet
            await notifier.change("ann", NotifyChange("ann@example.org", hook.url))
            notifier.on_stage(msgspec.structs.replace(VIEW, detached=False), None)
            notifier.on_stage(msgspec.structs.replace(VIEW, granted_at=1010.0), None)  # that was no wait
            notifier.on_stage(msgspec.structs.replace(VIEW, user="bob"), None)
            notifier.on_stage(VIEW, None)
            notifier.on_stage(msgspec.structs.replace(VIEW, state="releasing"), None)
            notifier.on_stage(OVER, RESULTS)

        document = _play(engine, rules, play)
    by_subject = {str(sent["Subject"]): sent for sent in mail.mails}
    assert set(by_subject) == {"fit the model has started", "fit the model has succeeded"}
    ended = by_subject["fit the model has succeeded"]
    assert (ended["To"], ended["From"], ended["Auto-Submitted"]) == (
        "ann@example.org",
        "gpu@example.org",
        "auto-generated",
    )
    text = ended.get_content()
    assert f"Your run fit the model (digits.ipynb [3]), {RUN}: it has succeeded." in text
    assert "It waited for 1 min 30 s and held 2 GPUs for 1 h." in text
    assert f"%gpu_attach {RUN}" in text
    assert f"https://lab.example.org/lab?gpu-run={RUN}" in text
    assert "2 GPUs after 1 min 30 s of waiting" in by_subject["fit the model has started"].get_content()
    told = {body["event"]: body for path, body in hook.told if path == "/hooks/s3cret-of-ann"}
    assert (told["end"]["run"], told["end"]["state"], told["end"]["held_s"]) == (RUN, "succeeded", 3600.0)
    assert told["start"]["waited_s"] == 90.0
    assert len(mail.mails) == len(hook.told) == 2
    assert text.rstrip().splitlines()[-1].startswith("ann of this GPU cluster has asked for mails to this address.")
    assert "secret_code" not in text + str(hook.told)
    assert {(entry.channel, entry.run, entry.error) for entry in document.deliveries} == {
        ("mail", RUN, ""),
        ("webhook", RUN, ""),
    }
    assert (document.email, document.webhook) == ("ann@example.org", "localhost")


def test_only_what_one_wants_to_hear_and_of_failures_the_kind_of_error_alone(engine: Engine) -> None:
    with MailBed() as mail:

        async def play(notifier: Notifier) -> None:
            await notifier.change("ann", NotifyChange("ann@example.org", starts=False))
            notifier.on_stage(VIEW, None)
            failed = msgspec.structs.replace(OVER, state="failed", name="")
            notifier.on_stage(failed, Outcome("error", ErrorInfo("ValueError", "patient 4711 is missing")))

        _play(engine, NotifyRules(_mail(mail)), play)
    (sent,) = mail.mails
    assert sent["Subject"] == "digits.ipynb [3] has failed"
    assert "The error: ValueError." in sent.get_content()
    assert "4711" not in sent.as_string()


def test_a_run_that_steps_aside_is_told_of_each_time_and_so_is_its_next_start(engine: Engine) -> None:
    aside = Attempt(1090.0, 1200.0, user="bob", place="epoch 37", was_saved=True)
    waits = msgspec.structs.replace(VIEW, state="queued", granted_at=None, attempts=[aside])
    again = msgspec.structs.replace(waits, state="running", granted_at=1400.0)
    twice = msgspec.structs.replace(waits, attempts=[aside, Attempt(1400.0, 1500.0, status="lost", reason="gone")])

    with MailBed() as mail:

        async def play(notifier: Notifier) -> None:
            await notifier.change("ann", NotifyChange("ann@example.org"))
            for view in (msgspec.structs.replace(VIEW, state="queued"), waits, again, twice):
                notifier.on_stage(view, None)

        assert _play(engine, NotifyRules(_mail(mail)), play).pauses
        told = {str(sent["Subject"]): sent.get_content() for sent in mail.mails}
        texts = " ".join(sent.get_content() for sent in mail.mails)
        assert len(mail.mails) == 3

        async def silent(notifier: Notifier) -> None:
            await notifier.change("ann", NotifyChange(pauses=False))
            notifier.on_stage(waits, None)

        assert not _play(engine, NotifyRules(_mail(mail)), silent).pauses
    assert len(mail.mails) == 3
    assert set(told) == {"fit the model was stopped, and goes on later", "fit the model goes on"}
    assert f"{RUN}: preempted for bob at epoch 37." in texts
    assert "gone: again from the beginning." in texts
    assert "2 GPUs again after 3 min 20 s of waiting" in told["fit the model goes on"]


def test_the_end_counts_all_parts_of_a_run_that_preempted(engine: Engine) -> None:
    aside = [Attempt(1090.0, 1200.0, user="bob"), Attempt(1400.0, 1500.0, user="bob")]
    over = msgspec.structs.replace(OVER, attempts=aside, granted_at=1600.0, gone_at=1700.0, finished_at=1700.0)

    with MailBed() as mail:

        async def play(notifier: Notifier) -> None:
            await notifier.change("ann", NotifyChange("ann@example.org"))
            notifier.on_stage(over, RESULTS)

        _play(engine, NotifyRules(_mail(mail)), play)
    (sent,) = mail.mails
    assert "It waited for 6 min 30 s and held 2 GPUs for 5 min 10 s." in sent.get_content()


def test_a_mail_server_that_hangs_holds_up_no_webhook(engine: Engine) -> None:
    """It takes connections and says nothing: more mails wait for it than are sent at once."""
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, HookBed() as hook:
        port = silent.getsockname()[1]
        rules = NotifyRules(MailRules("127.0.0.1", "gpu@example.org", port, tls="none"), _hooks(hook))

        async def play(notifier: Notifier) -> None:
            await notifier.change("ann", NotifyChange("ann@example.org"))
            await notifier.change("bob", NotifyChange(webhook=hook.url))
            for number in range(20):
                notifier.on_stage(msgspec.structs.replace(OVER, run=f"{RUN}-{number}"), RESULTS)
            mails = list(notifier._sending.values())
            notifier.on_stage(msgspec.structs.replace(OVER, user="bob"), RESULTS)
            (bobs,) = set(notifier._sending.values()) - set(mails)
            await asyncio.wait([bobs, *mails], return_when=asyncio.FIRST_COMPLETED)
            assert bobs.done()
            assert notifier.document("ann").deliveries == [], "a mail's try was over first"
            for mail in mails:
                mail.cancel()
            silent.close()

        _play(engine, rules, play)
    assert len(hook.told) == 1


def test_more_than_can_be_sent_are_said_and_not_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "_MOST_WAITING", 1)
    said = []
    with HookBed() as hook:

        async def play(notifier: Notifier) -> None:
            await notifier.change("ann", NotifyChange(webhook=hook.url))
            for run in ("r1", "r2"):
                notifier.on_stage(msgspec.structs.replace(OVER, run=run), RESULTS)
            said.extend(notifier.document("ann").deliveries)

        _play(engine, NotifyRules(webhooks=_hooks(hook)), play)
    assert len(hook.told) == 1
    assert [(each.run, each.error) for each in said] == [("r2", "too many messages wait to be sent: not sent")]


def test_a_user_gets_so_many_messages_an_hour(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    refused: dict[str, str] = {}
    monkeypatch.setattr(notifier, "_MOST_AN_HOUR", 2)
    monkeypatch.setattr(notifier, "time", SimpleNamespace(monotonic=lambda: now_s, time=time.time))
    with HookBed() as hook:

        async def play(notifier: Notifier) -> None:
            nonlocal now_s
            for user in ("ann", "bob"):
                await notifier.change(user, NotifyChange(webhook=hook.url))
            for at_s, run in ((0, "a1"), (9, "a2"), (99, "a3"), (99, "b1"), (3601, "a4"), (3602, "a5")):
                now_s, user = at_s, {"a": "ann", "b": "bob"}[run[0]]
                notifier.on_stage(msgspec.structs.replace(OVER, run=run, user=user), RESULTS)
                refused.update({each.run: each.error for each in notifier.document(user).deliveries})

        _play(engine, NotifyRules(webhooks=_hooks(hook)), play)
    assert sorted(facts["run"] for _, facts in hook.told) == ["a1", "a2", "a4", "b1"]
    assert refused == dict.fromkeys(("a3", "a5"), "more than 2 messages in an hour: not sent")


def test_slack_gets_the_text_alone_without_its_marks() -> None:
    notice = notifier.Notice("r", "ann", "end", "webhook", "a < b", "<@everyone> & all", {"run": "r"}, 0)
    assert channels._body(httpx.URL("https://chat.example.org/x"), notice) == {
        "text": "a < b\n<@everyone> & all",
        "run": "r",
    }
    assert channels._body(httpx.URL("https://hooks.slack.com/x"), notice) == {
        "text": "a &lt; b\n&lt;@everyone&gt; &amp; all"
    }


def test_mails_go_to_the_senders_domain_unless_the_operator_names_others() -> None:
    def may(address: str, *domains: str) -> bool:
        rules = NotifyRules(MailRules("localhost", "GPU cluster <gpu@Example.org>", domains=list(domains)))
        try:
            return check_email(address, rules) == address
        except OptionError as refused:
            return not refused.hint.startswith("only to ")

    assert may("ann@example.org")
    assert not may("ann@elsewhere.net")
    assert may("ann@elsewhere.net", "elsewhere.net")
    assert not may("ann@example.org", "elsewhere.net")
    assert may("ann@elsewhere.net", "*")


def test_what_is_not_taken_is_tried_again_a_few_times_and_said(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "jupyter_gpu_release")

    def told_by(*statuses: int) -> tuple[int, str]:
        with HookBed(list(statuses)) as hook:

            async def play(notifier: Notifier) -> None:
                await notifier.change("ann", NotifyChange(webhook=hook.url))
                notifier.on_stage(OVER, RESULTS)

            document = _play(engine, NotifyRules(webhooks=_hooks(hook)), play)
        assert {path for path, _ in hook.told} == {"/hooks/s3cret-of-ann"}, "a redirect was followed"
        assert "s3cret" not in document.__repr__() + caplog.text
        return len(hook.told), document.deliveries[0].error

    assert told_by(503, 429) == (3, "")
    assert told_by(500, 500, 500, 500) == (3, "the webhook answers with HTTP 500")
    assert told_by(404) == (1, "the webhook answers with HTTP 404")
    assert told_by(302) == (1, "the webhook answers with a redirect, which is not followed")
    with engine.begin() as connection:
        assert notifications.unsent_notices(connection, 0.0) == [], "what is given up is forgotten"


def test_a_mail_server_that_refuses_or_is_not_there_is_said(engine: Engine) -> None:
    def error_of(rules: MailRules) -> str:
        async def play(notifier: Notifier) -> None:
            await notifier.change("ann", NotifyChange("ann@example.org"))
            notifier.on_stage(OVER, RESULTS)

        return _play(engine, NotifyRules(rules), play).deliveries[0].error

    with MailBed(refuse="550 no such user here") as mail:
        assert error_of(_mail(mail)) == "the mail server refuses the address: no such user here"
        gone = _mail(mail)
    assert error_of(gone) == "the mail server: Connection refused"


def test_mail_with_tls_and_a_login(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "ca")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("mail", "localhost"))
    write_secret(tmp_path / "password", "correct horse")

    async def play(notifier: Notifier) -> None:
        await notifier.change("ann", NotifyChange("ann@example.org"))
        assert [entry.error for entry in (await notifier.test("ann")).deliveries] == expected

    with MailBed(tls, password="correct horse") as mail:
        rules = _mail(mail, tls="starttls", user="gpu", password_file=str(tmp_path / "password"))
        expected = ["the mail server: its certificate is not trusted (unable to get local issuer certificate)"]
        _play(engine, NotifyRules(rules), play)
        trusted = ssl.create_default_context(cafile=str(authority.file))
        monkeypatch.setattr(channels, "client_context", lambda: trusted)
        expected = [""]
        _play(engine, NotifyRules(rules), play)
        assert (len(mail.mails), mail.was_encrypted) == (1, [True])
        write_secret(tmp_path / "password", "wrong")
        expected = ["the mail server refuses the cluster's login"]
        _play(engine, NotifyRules(rules), play)


def test_what_one_gateway_could_not_send_the_next_one_does(engine: Engine) -> None:
    with HookBed() as hook:

        async def write_down() -> None:
            ledger = LedgerWriter(engine)
            notifier = Notifier(NotifyRules(webhooks=_hooks(hook)), engine, ledger)
            await notifier.change("ann", NotifyChange(webhook=hook.url))
            notifier.on_stage(OVER, RESULTS)
            for task in notifier._sending.values():
                task.cancel()  # the gateway is killed
            ledger.close()

        async def play(notifier: Notifier) -> None:
            notifier.resume()
            notifier.resume()  # whatever happens, once

        asyncio.run(write_down())
        assert hook.told == []
        _play(engine, NotifyRules(webhooks=_hooks(hook)), play)
        _play(engine, NotifyRules(webhooks=_hooks(hook)), play)
    assert [body["run"] for _, body in hook.told] == [RUN]


def test_webhooks_reach_nothing_that_the_operator_did_not_allow(engine: Engine) -> None:
    with HookBed() as hook:
        rules = _hooks(hook, private_addresses=False)

        async def play(notifier: Notifier) -> None:
            await notifier.change("ann", NotifyChange(webhook=hook.url))  # a name says nothing of its address
            notifier.on_stage(OVER, RESULTS)

        document = _play(engine, NotifyRules(webhooks=rules), play)
    assert hook.told == []
    assert document.deliveries[0].error == "localhost has an address within this network, which is not asked"
    allowed = WebhookRules(["hooks.slack.com", "chat.example.org:8443"])
    assert check_webhook("https://HOOKS.slack.com/services/x", allowed).host == "hooks.slack.com"
    assert check_webhook("https://chat.example.org:8443/x", allowed).port == 8443
    for wrong in (
        "https://chat.example.org/x",
        "https://evil.example/x",
        "http://hooks.slack.com/x",
        "file:///etc/passwd",
        "https://hooks.slack.com:22/x",
        "https://hooks.slack.com@evil.example/x",
        "https://u:p@hooks.slack.com/x",
        "https://hooks.slack.com.evil.example/x",
        "https://[::1]/x",
        "hooks.slack.com",
        "https://hooks.slack.com/\n",
    ):
        with pytest.raises(OptionError) as refused:
            check_webhook(wrong, allowed)
        assert "/x" not in str(refused.value), "an error must not repeat the address"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("140.82.112.3", True),
        ("2606:4700::1111", True),
        ("10.1.2.3", False),
        ("127.0.0.1", False),
        ("::1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("224.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::1", False),
    ],
)
def test_addresses_within_the_network_are_known(address: str, expected: bool) -> None:
    assert is_public(address) is expected


@pytest.mark.parametrize("address", ["", "ann", "ann@", "a b@example.org", "ann@example.org\nBcc: x@y.z", "a@b,c@d"])
def test_only_one_plain_address_is_an_address(engine: Engine, address: str) -> None:
    async def play(notifier: Notifier) -> None:
        if not address:  # empty means: no longer
            assert (await notifier.change("ann", NotifyChange(""))).email == ""
            return
        with pytest.raises(OptionError, match="is not an e-mail address"):
            await notifier.change("ann", NotifyChange(address))

    _play(engine, NotifyRules(MailRules("localhost", "gpu@example.org")), play)
