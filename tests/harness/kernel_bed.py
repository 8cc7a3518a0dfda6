"""A real kernel, driven as a front end does."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager
from kernel_transport import end_kernel, start_kernel
from network_hosts import NetworkHost


@dataclass
class Shown:
    """What one cell showed, and its reply."""

    reply: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> str:
        return str(self.reply["status"])

    @property
    def traceback(self) -> str:
        return "\n".join(self.reply.get("traceback", []))

    def text(self, name: str = "stdout") -> str:
        streams = [m["content"] for m in self.messages if m["msg_type"] == "stream"]
        return "".join(content["text"] for content in streams if content["name"] == name)

    def lines(self) -> list[str]:
        """The whole lines of its standard output: of the last one a part may be under way."""
        return self.text().split("\n")[:-1]

    def displays(self, mime: str = "text/plain") -> list[Any]:
        kinds = ("display_data", "update_display_data", "execute_result")
        data = [m["content"]["data"] for m in self.messages if m["msg_type"] in kinds]
        return [bundle[mime] for bundle in data if mime in bundle]

    @property
    def receipt(self) -> str:
        """The last thing that was displayed (in a failed cell it stands under the traceback)."""
        shown = [text for text in self.displays() if "free" in text or "held" in text or "run 2" in text]
        return str(shown[-1]) if shown else self.traceback

    @property
    def receipt_facts(self) -> dict[str, Any]:
        """The same for programs that read the notebook."""
        of_ours = [m["content"].get("metadata", {}).get("jupyter_gpu_release", {}) for m in self.messages]
        return next(facts for facts in reversed(of_ours) if "status" in facts)


class Notebook:
    """One kernel and its client."""

    def __init__(self, folder: Path, *, load: bool = True, kernel: str = "python3") -> None:
        self.folder = folder
        self.manager, self.client = start_kernel(kernel, folder)
        if load:
            assert self.run("%load_ext jupyter_gpu_release").status == "ok"

    def run(self, code: str, limit_s: float = 180, **options: Any) -> Shown:
        """Run one cell to its end."""
        messages: list[dict[str, Any]] = []
        reply = self.client.execute_interactive(code, timeout=limit_s, output_hook=messages.append, **options)
        return Shown(reply["content"], messages)

    def ok(self, code: str, limit_s: float = 180) -> Shown:
        """Run one cell that must succeed."""
        shown = self.run(code, limit_s)
        assert shown.status == "ok", shown.traceback
        return shown

    def value(self, expression: str) -> Any:
        """A JSON-able value from the kernel's namespace."""
        wanted = {"value": f"__import__('json').dumps({expression})"}
        reply = self.client.execute_interactive("", user_expressions=wanted, timeout=180, output_hook=lambda _: None)
        answer = reply["content"]["user_expressions"]["value"]
        assert answer["status"] == "ok", answer
        return json.loads(eval(answer["data"]["text/plain"]))

    def begin(self, code: str, **options: Any) -> str:
        """Send a cell and do not wait; :meth:`until` and :meth:`end` follow it."""
        self._messages: list[dict[str, Any]] = []
        return str(self.client.execute(code, **options))

    def until(self, predicate: Any, limit_s: float = 180) -> Shown:
        """Collect output of the cell begun until ``predicate(shown)`` holds."""
        deadline = time.monotonic() + limit_s
        while True:
            shown = Shown({"status": "busy"}, list(self._messages))
            if predicate(shown):
                return shown
            assert time.monotonic() < deadline, [m["content"] for m in self._messages]
            try:
                self._messages.append(self.client.get_iopub_msg(timeout=0.5))
            except Exception as error:
                if type(error).__name__ != "Empty":
                    raise

    def end(self, message_id: str, limit_s: float = 180) -> Shown:
        """The reply and all output of the cell begun."""
        reply = self.client.get_shell_msg(timeout=limit_s)
        while reply["parent_header"].get("msg_id") != message_id:
            reply = self.client.get_shell_msg(timeout=limit_s)
        self.until(
            lambda shown: any(
                m["msg_type"] == "status"
                and m["content"]["execution_state"] == "idle"
                and m["parent_header"].get("msg_id") == message_id
                for m in shown.messages
            ),
            limit_s,
        )
        return Shown(reply["content"], list(self._messages))

    def interrupt(self) -> None:
        """The stop button."""
        self.manager.interrupt_kernel()

    @property
    def pid(self) -> int:
        provisioner: Any = self.manager.provisioner
        return int(provisioner.pid)

    def kill(self) -> None:
        """SIGKILL, as an out-of-memory killer does."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        end_kernel(self.manager, self.client)


class RemoteNotebook(Notebook):
    """A kernel on another host; its front end speaks to it through sockets in a folder."""

    def __init__(
        self, host: NetworkHost, folder: Path, environment: Mapping[str, str], prefix: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.manager = KernelManager(transport="ipc", ip=str(folder / "k"))
        spec = self.manager.kernel_spec
        assert spec is not None
        spec.argv = host.command([*prefix, sys.executable, *spec.argv[1:]])
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, **environment})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=180)
        assert self.run("%load_ext jupyter_gpu_release").status == "ok"
