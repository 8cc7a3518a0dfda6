"""A real gateway: each user's own addresses, by routes and ``jupyter gpu notify``; a detached run tells its user."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from notify_bed import HookBed, MailBed
from ray_bed import GatewayBed, RayBed, request

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.config import MailRules, NotifyRules, WebhookRules
from jupyter_gpu_release.protocol.rest import NotifyChange


def test_a_user_sets_an_own_address_and_is_told(
    ray_bed: RayBed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    until: Callable[..., None],
) -> None:
    with MailBed() as mail, HookBed() as hook:
        rules = NotifyRules(
            MailRules("localhost", "gpu@example.org", mail.port, tls="none", domains=["example.org"]),
            WebhookRules([hook.place], private_addresses=True, plain_http=True),
        )
        bed = GatewayBed(ray_bed, tmp_path, notify=rules)
        assert bed.deploy().ok
        try:
            _ann_and_bob(bed, hook, monkeypatch, capsys, until)
            until(lambda: len(mail.mails) == 2, "a test mail and that of the run")
        finally:
            bed.end()
    assert {str(sent["To"]) for sent in mail.mails} == {"ann@example.org"}
    home = Path(bed.config.home)
    written = [path.read_text(errors="replace") for path in (home / "log").iterdir() if path.is_file()]
    assert written
    assert not [text for text in written if "s3cret" in text], "the webhook is in a log"
    assert (home / "ledger.sqlite").stat().st_mode & 0o077 == 0


def _ann_and_bob(
    bed: GatewayBed,
    hook: HookBed,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    until: Callable[..., None],
) -> None:
    with bed.rest() as root:
        secrets = {name: root.create_token(TokenRequest(name, "user", 3600.0)).secret for name in ("ann", "bob")}
    monkeypatch.setenv("JUPYTER_GPU_URL", bed.url)
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", secrets["ann"])
    monkeypatch.setattr("sys.stdin", io.StringIO(hook.url + "\n"))
    assert main(["notify", "--email", "ann@example.org", "--webhook", "--on", "end", "--test"]) == 0
    said = capsys.readouterr().out
    assert "ann is told when detached runs end: mail to ann@example.org, a webhook on localhost." in said
    assert said.count(", of a test: was taken") == 2
    assert main(["notify", "--email", "ann@elsewhere.org"]) == 2
    assert "only to example.org" in capsys.readouterr().err
    assert main(["notify", "--json"]) == 0
    shown = capsys.readouterr().out
    assert (json.loads(shown)["email"], json.loads(shown)["starts"]) == ("ann@example.org", False)
    assert "s3cret" not in said + shown
    with GatewayClient(bed.url, secrets["bob"]) as bob, GatewayClient(bed.url, secrets["ann"]) as ann:
        assert (bob.notify().user, bob.notify().email, bob.notify().webhook) == ("bob", "", "")
        bob.change_notify(NotifyChange("bob@example.org"))
        assert ann.notify().email == "ann@example.org"
        run = request("print 1\nvalues 5", "", detach=True, name="overnight")
        began_s = time.time()
        monkeypatch.setenv("JUPYTER_GPU_TOKEN", secrets["ann"])
        ann._ask("POST", "/v1/runs", dict, {}, run)
        until(lambda: len(hook.told) == 2, "the webhook's words of the run")
        assert (hook.told[1][1]["run"], hook.told[1][1]["name"]) == (run.run, "overnight")
        until(lambda: {entry.run for entry in ann.notify().deliveries} == {run.run}, "both ways are done")
        assert all(entry.at >= began_s - 1 and not entry.error for entry in ann.notify().deliveries)
    assert main(["notify", "--no-email", "--no-webhook"]) == 0
    assert "ann is not told of detached runs." in capsys.readouterr().out
