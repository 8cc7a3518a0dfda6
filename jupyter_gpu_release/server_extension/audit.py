"""Records of every action: an event for JupyterLab, a line in the audit log, a count."""

from __future__ import annotations

import errno
import os
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec
from jupyter_events import EventLogger
from traitlets.config import LoggingConfigurable

from . import metrics

_PREFIX = "https://schema.jupyter-gpu-release.org"
IDLE_POLICY, REQUEST, CHANGED = (f"{_PREFIX}/{name}/v1" for name in ("idle_policy", "request", "changed"))
#: id of each schema, and its file
SCHEMAS = {IDLE_POLICY: "idle_policy.yaml", REQUEST: "request.yaml", CHANGED: "changed.yaml"}
#: what people do; an event with another word would be refused by its schema, and with it the request
Act = Literal["cancel", "pin", "unpin", "release", "extend", "keep", "start", "change"]


class ActionLog(LoggingConfigurable):
    """Writes all three. A log that cannot be written is said once and never stops an action."""

    def __init__(self, events: EventLogger, audit_log: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._events = events
        self._audit_log = Path(audit_log).expanduser() if audit_log else None
        self.problem = ""
        for schema, name in SCHEMAS.items():
            if schema not in events.schemas:
                events.register_event_schema(files(__package__).joinpath("events", name).read_text())

    @property
    def schemas(self) -> set[str]:
        """The ids of the schemas that the server knows."""
        return set(self._events.schemas.schema_ids)

    def policy(self, now_s: float, **facts: Any) -> None:
        """An action of the idle policy; ``facts`` as in ``events/idle_policy.yaml``. ``now_s``: unix time."""
        dry_run, done = str(facts["dry_run"]).lower(), str(facts["done"]).lower()
        metrics.CULLS.labels(facts["action"], facts["rule"], dry_run, done).inc()
        said = self.log.warning if facts["action"] not in ("warn", "notify") else self.log.info
        said("GPU policy: %s %s %s: %s", facts["action"], facts["kind"], facts["subject"], facts["reason"])
        self._write(IDLE_POLICY, facts, now_s)

    def request(self, now_s: float, action: Act, subject: str, user: str, result: str) -> None:
        """Record what a person asked for."""
        self.log.info("GPU: %s asked to %s %s", user, action, subject)
        self._write(REQUEST, {"action": action, "subject": subject, "user": user, "result": result}, now_s)

    def changed(self, what: str) -> None:
        """Tell front ends to look again (not in the audit log)."""
        self._events.emit(schema_id=CHANGED, data={"what": what})

    def _write(self, schema: str, facts: dict[str, Any], now_s: float) -> None:
        self._events.emit(schema_id=schema, data=facts)
        if self._audit_log is None:
            return
        line = msgspec.json.encode({"at": now_s, "schema": schema, **facts}) + b"\n"
        try:
            descriptor = os.open(self._audit_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                if os.write(descriptor, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
            self.problem = ""
        except OSError as error:
            if not self.problem:
                self.log.error("GPU policy: the audit log %s cannot be written: %s", self._audit_log, error)
            self.problem = f"the audit log {self._audit_log} cannot be written: {error.strerror}"
