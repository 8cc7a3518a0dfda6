"""Ways to a user: a mail server and webhooks. Each try has a time limit, and what it raises holds no secret."""

from __future__ import annotations

import asyncio
import functools
import smtplib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import TYPE_CHECKING

from ...client.home import read_secret
from ...errors import GpuReleaseError
from ...host.certificates import client_context
from ...protocol.config import MailRules, WebhookRules
from ..db.notifications import Notice
from .addresses import check_webhook, domain_of, is_public, port_of

if TYPE_CHECKING:
    import httpx

#: of one answer of a server, and of a whole try
_ANSWER_S, _TRY_S = 10.0, 40.0
_MAILS_AT_ONCE = 2
_LONGEST_REASON = 200
_FOOTER = (
    "{user} of this GPU cluster has asked for mails to this address. "
    "To change that: `jupyter gpu notify`, or *Tell Me of Detached Runs…* in JupyterLab."
)
#: of httpx
_TIMEOUTS = frozenset({"ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"})
_PASSES = frozenset({408, 425, 429})


class DeliveryError(Exception):
    """A message was not taken. ``is_final``: another try would end like this one."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason[:_LONGEST_REASON]
        self.is_final = is_final


class MailServer:
    """Sends mails in threads of its own: a server that hangs holds up mails, and nothing else."""

    def __init__(self, rules: MailRules) -> None:
        self._rules = rules
        self._threads = ThreadPoolExecutor(_MAILS_AT_ONCE, thread_name_prefix="mail")

    async def send(self, address: str, notice: Notice) -> None:
        """Hand one mail to the server; raises :class:`DeliveryError`."""
        work = functools.partial(self._send, address, _mail(self._rules.sender, address, notice))
        try:
            await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(self._threads, work), _TRY_S)
        except TimeoutError:
            raise DeliveryError(f"the mail server did not answer within {_TRY_S:.0f} s") from None

    def _send(self, address: str, mail: EmailMessage) -> None:
        try:
            with self._connect() as server:
                if self._rules.user:
                    server.login(self._rules.user, read_secret(Path(self._rules.password_file)))
                server.send_message(mail, self._rules.sender, [address])
        except smtplib.SMTPRecipientsRefused as error:
            code, said = error.recipients[address]
            raise DeliveryError(f"the mail server refuses the address: {_said(said)}", is_final=code >= 500) from None
        except smtplib.SMTPAuthenticationError:
            raise DeliveryError("the mail server refuses the cluster's login") from None
        except smtplib.SMTPResponseException as error:
            reason = f"the mail server refuses: {_said(error.smtp_error)}"
            raise DeliveryError(reason, is_final=error.smtp_code >= 500) from None
        except GpuReleaseError:
            raise DeliveryError("the cluster cannot read the password for its mail server") from None
        except smtplib.SMTPNotSupportedError as error:
            raise DeliveryError(f"the mail server cannot do what the cluster is set to: {error}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"the mail server: {_network_reason(error)}") from None

    def _connect(self) -> smtplib.SMTP:
        host, port = self._rules.host, self._rules.port
        if self._rules.tls == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=_ANSWER_S, context=client_context())
        server = smtplib.SMTP(host, port, timeout=_ANSWER_S)
        try:
            if self._rules.tls == "starttls":
                server.starttls(context=client_context())
        except BaseException:
            server.close()
            raise
        return server


def _mail(sender: str, address: str, notice: Notice) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, address, notice.subject
    mail["Date"] = formatdate(localtime=True)
    mail["Message-ID"] = make_msgid(domain=domain_of(sender))
    mail["Auto-Submitted"] = "auto-generated"  # nobody's holiday notice answers it
    mail.set_content(f"{notice.text}\n{_FOOTER.format(user=notice.user)}\n")
    return mail


class WebhookPoster:
    """Asks webhooks: hosts that the operator named, at addresses that were looked at, without following redirects."""

    def __init__(self, rules: WebhookRules) -> None:
        self._rules = rules

    async def post(self, address: str, notice: Notice) -> None:
        """Tell one webhook; raises :class:`DeliveryError`."""
        import httpx

        try:
            async with asyncio.timeout(_TRY_S):
                status = await self._ask(check_webhook(address, self._rules), notice)
        except TimeoutError:
            raise DeliveryError(f"the webhook did not answer within {_TRY_S:.0f} s") from None
        except GpuReleaseError as error:
            raise DeliveryError(error.message, is_final=True) from None
        except (httpx.HTTPError, OSError) as error:
            raise DeliveryError(f"the webhook: {_network_reason(error)}") from None
        if not 200 <= status < 300:
            what = "a redirect, which is not followed" if 300 <= status < 400 else f"HTTP {status}"
            is_final = 300 <= status < 500 and status not in _PASSES
            raise DeliveryError(f"the webhook answers with {what}", is_final=is_final)

    async def _ask(self, url: httpx.URL, notice: Notice) -> int:
        import httpx

        trust = await asyncio.to_thread(client_context)
        place = url if self._rules.proxy else url.copy_with(host=await self._address_of(url))
        async with httpx.AsyncClient(
            verify=trust, trust_env=False, timeout=_ANSWER_S, follow_redirects=False, proxy=self._rules.proxy or None
        ) as client:
            request = client.build_request(
                "POST",
                place,
                json=_body(url, notice),
                headers={"Host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": url.host},
            )
            answer = await client.send(request, stream=True)  # what it says is nobody's business
            await answer.aclose()
            return answer.status_code

    async def _address_of(self, url: httpx.URL) -> str:
        """The IP address that is asked: looked up once, so that it cannot be another one than the one looked at."""
        found = await asyncio.get_running_loop().getaddrinfo(url.host, port_of(url), type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in found]
        if not self._rules.private_addresses and not all(is_public(address) for address in addresses):
            raise DeliveryError(f"{url.host} has an address within this network, which is not asked", is_final=True)
        return addresses[0]


def _body(url: httpx.URL, notice: Notice) -> dict[str, str | float]:
    """``text``, as Slack and what is like it want it; others get the facts, too."""
    text = f"{notice.subject}\n{notice.text}"
    if url.host.endswith("slack.com"):
        return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}
    return {"text": text, **notice.facts}


def _said(text: bytes | str) -> str:
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    return " ".join(plain.split())


def _network_reason(error: BaseException) -> str:
    """A few words; never the whole message, which may quote an address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message})"
        if isinstance(cause, TimeoutError) or type(cause).__name__ in _TIMEOUTS:
            return "no answer in time"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return {"ConnectError": "no connection", "SMTPServerDisconnected": "it hung up"}.get(
        type(error).__name__, type(error).__name__
    )
