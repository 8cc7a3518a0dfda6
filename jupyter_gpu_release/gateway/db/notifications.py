"""Users' wishes to be told of their runs, and notifications that are still to be sent."""

from __future__ import annotations

import msgspec
from sqlalchemy import delete, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...protocol.rest import NotifyDelivery
from ...protocol.wire import decode, encode
from .schema import notices, notify_preferences

_insert_preferences = upsert(notify_preferences)
_PUT_PREFERENCES = _insert_preferences.on_conflict_do_update(
    index_elements=["user"], set_={"preferences": _insert_preferences.excluded.preferences}
)
_PUT_NOTICE = upsert(notices).on_conflict_do_nothing()


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one user is told. Neither an address nor a webhook: not at all."""

    email: str = ""
    #: whoever knows it can write there: it is in no answer and no log
    webhook: str = ""
    starts: bool = True
    ends: bool = True
    pauses: bool = True
    #: the latest try by each way
    deliveries: list[NotifyDelivery] = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        """Without the webhook."""
        return f"Preferences(email={self.email!r}, starts={self.starts}, pauses={self.pauses}, ends={self.ends})"


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message to one user by one way (``mail`` or ``webhook``)."""

    run: str
    user: str
    #: ``start``, ``pause``, ``end`` or ``test``
    event: str
    channel: str
    subject: str
    text: str
    #: for programs behind a webhook
    facts: dict[str, str | float] = msgspec.field(default_factory=dict)
    #: attempts of the run before: it may pause, and start again, several times
    earlier: int = 0

    @property
    def key(self) -> str:
        """Unique name: the same event is told once by each way."""
        return f"{self.run} {self.event}{self.earlier or ''} {self.channel}"


def all_preferences(connection: Connection) -> dict[str, Preferences]:
    """User → how they want to be told."""
    rows = connection.execute(select(notify_preferences))
    return {row.user: decode(row.preferences, Preferences) for row in rows}


def put_preferences(connection: Connection, user: str, preferences: Preferences) -> None:
    """Record (or replace) how a user wants to be told."""
    connection.execute(_PUT_PREFERENCES, {"user": user, "preferences": encode(preferences)})


def put_notice(connection: Connection, notice: Notice, at_s: float) -> None:
    """Record a message that is to be sent."""
    connection.execute(_PUT_NOTICE, {"key": notice.key, "at": at_s, "notice": encode(notice)})


def drop_notice(connection: Connection, key: str) -> None:
    """Forget a message: it was sent, or given up."""
    connection.execute(delete(notices).where(notices.c.key == key))


def unsent_notices(connection: Connection, since_s: float) -> list[Notice]:
    """Messages that an earlier gateway did not send; those older than ``since_s`` are forgotten."""
    connection.execute(delete(notices).where(notices.c.at < since_s))
    rows = connection.execute(select(notices.c.notice).order_by(notices.c.at))
    return [decode(row.notice, Notice) for row in rows]
