"""A real kernel in its own process, and the messages that its cells send."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_transport import end_kernel, start_kernel
from optional_libraries import skip_without


class Outputs(list[dict[str, Any]]):
    """The iopub messages of one execution, with the reply's content."""

    reply: dict[str, Any]

    @property
    def kinds(self) -> list[str]:
        return [message["msg_type"] for message in self]

    def text(self, name: str = "stdout") -> str:
        return "".join(m["content"]["text"] for m in self if m["msg_type"] == "stream" and m["content"]["name"] == name)

    def plain(self) -> list[str]:
        """The text of the displays as they stand in the end (updates and clearing carried out)."""
        shown: list[tuple[str | None, str]] = []
        for message in self:
            content = message["content"]
            if message["msg_type"] == "clear_output":
                shown = []
            if message["msg_type"] not in ("display_data", "update_display_data"):
                continue
            key, text = content["transient"].get("display_id"), content["data"].get("text/plain", "")
            if message["msg_type"] == "display_data":
                shown.append((key, text))
            else:
                shown = [(k, text if k == key else t) for k, t in shown]
        return [text for _, text in shown]

    @property
    def error(self) -> dict[str, Any]:
        found = [message["content"] for message in self if message["msg_type"] == "error"]
        assert len(found) == 1, self.kinds
        return found[0]

    @property
    def traceback(self) -> str:
        return "\n".join(self.error["traceback"])


class Kernel:
    """A real kernel in its own process."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.folder = folder
        self.manager, self.client = start_kernel("python3", folder, {**os.environ, **environment})

    def run(self, code: str, timeout_s: float = 30.0, **keywords: Any) -> Outputs:
        skip_without(code)
        return self.finish(self.client.execute(code, **keywords), timeout_s)

    def start(self, code: str) -> str:
        return self.client.execute(code)

    def finish(self, message_id: str, timeout_s: float = 30.0) -> Outputs:
        outputs = Outputs()
        while True:
            message = self.client.get_iopub_msg(timeout=timeout_s)
            if message["parent_header"].get("msg_id") != message_id:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
            if message["msg_type"] not in ("status", "execute_input"):
                outputs.append(message)
        while True:
            reply = self.client.get_shell_msg(timeout=timeout_s)
            if reply["parent_header"].get("msg_id") == message_id:
                outputs.reply = reply["content"]
                return outputs

    def value(self, expression: str) -> str:
        """``repr`` of an expression in the kernel."""
        found = self.run(f"print(repr({expression}), end='')")
        assert found.reply["status"] == "ok", found.reply
        return found.text()

    def close(self) -> None:
        end_kernel(self.manager, self.client)
