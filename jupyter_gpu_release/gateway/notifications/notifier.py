"""``Notifier``: tells users of their detached runs, beside everything else, and never in its way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

import msgspec
from sqlalchemy.engine import Engine

from ...errors import OptionError
from ...protocol.config import NotifyRules
from ...protocol.rest import DOCUMENT_VERSION, NotifyChange, NotifyDelivery, NotifyDocument
from ...protocol.runs import Outcome, RunView
from ...protocol.states import RunState
from ...settings.built_in import BUILT_IN
from ..db import notifications
from ..db.notifications import Notice, Preferences
from ..db.writer import LedgerWriter
from .addresses import check_email, check_webhook, shown_webhook
from .channels import DeliveryError, MailServer, WebhookPoster
from .messages import END, PAUSE, START, TEST, facts_of, subject_of, text_of, waited_long

log = logging.getLogger(__name__)
MAIL, WEBHOOK = "mail", "webhook"
#: before each further try
_PAUSES_S = (10.0, 60.0, 300.0, 1800.0)
#: by each way: a mail server that hangs holds up no webhook
_AT_ONCE, _MOST_WAITING, _HOUR_S = 8, 1000, 3600.0
_MOST_AN_HOUR: int = BUILT_IN["messages_an_hour"].default
_FORGOTTEN_S: float = BUILT_IN["delivery_kept_s"].default


class Notifier:
    """Hears of each stage of each run, and sends what its user wants to hear. All on the gateway's event loop.

    A message waits in the ledger until it is sent or given up, so a gateway that restarts sends it.
    """

    def __init__(
        self, rules: NotifyRules, engine: Engine, ledger: LedgerWriter, pauses_s: Sequence[float] = _PAUSES_S
    ) -> None:
        self._rules = rules
        self._engine = engine
        self._ledger = ledger
        self._pauses_s = pauses_s
        self._mail = MailServer(rules.mail) if rules.mail is not None else None
        self._webhooks = WebhookPoster(rules.webhooks)
        self._places = {way: asyncio.Semaphore(_AT_ONCE) for way in (MAIL, WEBHOOK)}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._times: dict[str, deque[float]] = {}
        with engine.connect() as connection:
            self._known = notifications.all_preferences(connection)

    def resume(self) -> None:
        """Go on with what an earlier gateway had not sent."""
        with self._engine.begin() as connection:
            left = notifications.unsent_notices(connection, time.time() - _FORGOTTEN_S)
        for notice in left:
            self._begin(notice)

    # -------------------------------------------------------------------------------------- what happened
    def on_stage(self, view: RunView, outcome: Outcome | None) -> None:
        """A detached run is in another stage: if its user wants to hear of it, a message is on its way from here on."""
        wishes = self._known.get(view.user)
        if wishes is None or not view.detached:
            return
        state = RunState.of(view.state)
        began = state is RunState.RUNNING and not (view.stays or view.reason)  # it could not be preempted
        if wishes.starts and began and waited_long(view, self._rules.waited_s):
            self._tell(wishes, view, START, None)
        elif wishes.pauses and state is RunState.QUEUED and view.attempts:
            self._tell(wishes, view, PAUSE, None)
        elif wishes.ends and state.is_terminal:
            self._tell(wishes, view, END, outcome)

    def _tell(self, wishes: Preferences, view: RunView, event: str, outcome: Outcome | None) -> None:
        subject, text = subject_of(view, event), text_of(view, event, outcome, self._rules.link)
        for channel in _channels(wishes):
            notice = Notice(
                view.run,
                view.user,
                event,
                channel,
                subject,
                text,
                facts_of(view, event),
                len(view.attempts) if event != END else 0,
            )
            if not self._may_send(view.user):
                self._note(notice, f"more than {_MOST_AN_HOUR} messages in an hour: not sent")
            elif len(self._sending) >= _MOST_WAITING:
                self._note(notice, "too many messages wait to be sent: not sent")
            else:
                self._ledger.write(partial(notifications.put_notice, notice=notice, at_s=time.time()))
                self._begin(notice)

    def _may_send(self, user: str) -> bool:
        now_s, times = time.monotonic(), self._times.setdefault(user, deque())
        while times and times[0] < now_s - _HOUR_S:
            times.popleft()
        if len(times) >= _MOST_AN_HOUR:
            return False
        times.append(now_s)
        return True

    # --------------------------------------------------------------------------------------------- sending
    def _begin(self, notice: Notice) -> None:
        if notice.key not in self._sending:
            task = asyncio.get_running_loop().create_task(self._deliver(notice), name=f"notify {notice.key}")
            self._sending[notice.key] = task
            task.add_done_callback(lambda _: self._sending.pop(notice.key, None))

    async def _deliver(self, notice: Notice) -> None:
        for pause_s in (0.0, *self._pauses_s):
            await asyncio.sleep(pause_s)
            if await self._try(notice):
                break
        self._ledger.write(partial(notifications.drop_notice, key=notice.key))

    async def _try(self, notice: Notice) -> bool:
        """Send it once; True: it is sent, or never will be."""
        if notice.channel not in _channels(self._known.get(notice.user, Preferences())):
            return True  # nobody wants it any more
        try:
            async with self._places[notice.channel]:
                await self._send(notice)
        except DeliveryError as error:
            log.warning("%s of the %s of run %s: %s", notice.channel, notice.event, notice.run, error.reason)
            self._note(notice, error.reason)
            return error.is_final
        except Exception as error:  # noqa: BLE001 - a task's entry point; its traceback could quote a webhook
            log.error("%s of the %s of run %s: %s", notice.channel, notice.event, notice.run, type(error).__name__)
            self._note(notice, f"a fault of the gateway ({type(error).__name__})")
            return True
        self._note(notice, "")
        return True

    async def _send(self, notice: Notice) -> None:
        """By the address that the user has now: an old one may be wrong, or nobody's any more."""
        wishes = self._known.get(notice.user, Preferences())
        if notice.channel == WEBHOOK:
            await self._webhooks.post(wishes.webhook, notice)
        elif self._mail is not None:
            await self._mail.send(wishes.email, notice)
        else:
            raise DeliveryError("this cluster sends no mail any more", is_final=True)

    def _note(self, notice: Notice, error: str) -> None:
        wishes = self._known.get(notice.user)
        if wishes is not None:
            said = NotifyDelivery(notice.channel, time.time(), notice.run, error)
            others = [entry for entry in wishes.deliveries if entry.channel != notice.channel]
            self._keep(notice.user, msgspec.structs.replace(wishes, deliveries=[*others, said]))

    def _keep(self, user: str, wishes: Preferences) -> asyncio.Future[None]:
        self._known[user] = wishes
        return self._ledger.write(partial(notifications.put_preferences, user=user, preferences=wishes))

    # ----------------------------------------------------------------------------------------- preferences
    def document(self, user: str) -> NotifyDocument:
        """A user's preferences without secrets, and what may be chosen."""
        wishes, mail = self._known.get(user, Preferences()), self._rules.mail
        return NotifyDocument(
            DOCUMENT_VERSION,
            user,
            wishes.email,
            shown_webhook(wishes.webhook),
            wishes.starts,
            wishes.ends,
            mail.sender if mail is not None else "",
            list(self._rules.webhooks.hosts),
            wishes.deliveries,
            wishes.pauses,
        )

    async def change(self, user: str, change: NotifyChange) -> NotifyDocument:
        """Take a user's change over; raises :class:`OptionError` for an address that is not taken."""
        if change.email:
            check_email(change.email, self._rules)
        if change.webhook:
            check_webhook(change.webhook, self._rules.webhooks)
        before = self._known.get(user, Preferences())
        given = {
            name: value
            for name in ("email", "webhook", "starts", "pauses", "ends")
            if (value := getattr(change, name)) is not None
        }
        renewed = {MAIL: change.email is not None, WEBHOOK: change.webhook is not None}
        told = [entry for entry in before.deliveries if not renewed.get(entry.channel)]
        await self._keep(user, msgspec.structs.replace(before, deliveries=told, **given))
        return self.document(user)

    async def test(self, user: str) -> NotifyDocument:
        """Send a message by each way now, in one try; the document says how it went."""
        wishes = self._known.get(user, Preferences())
        ways = _channels(wishes)
        if not ways:
            raise OptionError("there is no address to tell", hint="`jupyter gpu notify --email ADDRESS`, or --webhook")
        if not self._may_send(user):
            raise OptionError(f"more than {_MOST_AN_HOUR} messages in an hour", hint="wait a little")
        text = f"You asked for this message, {user}: it is how you will be told of your detached GPU runs.\n"
        messages = [Notice("", user, TEST, way, "A test of notifications", text) for way in ways]
        await asyncio.gather(*(self._try(notice) for notice in messages))
        return self.document(user)


def _channels(wishes: Preferences) -> list[str]:
    return [name for name, address in ((MAIL, wishes.email), (WEBHOOK, wishes.webhook)) if address]
