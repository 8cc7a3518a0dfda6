"""An assistant on a real cluster: the SDK's own client starts ``jupyter gpu mcp``, and trains, looks, goes on."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import block
from optional_libraries import mcp

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.states import RunState

Client, Parameters = mcp.Client, mcp.StdioServerParameters
_FIRST = """
import matplotlib.pyplot as plt
print("hello")
number = 41
facts = {"one": 1}
plt.plot([1, 2])
plt.show()
"""
_LIMIT_S = 120.0


class _Assistant:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> list[Any]:
        answer = await self._client.call_tool(tool, arguments)
        assert not answer.is_error, answer.content
        return list(answer.content)

    async def refused(self, tool: str, **arguments: Any) -> str:
        answer = await self._client.call_tool(tool, arguments)
        assert answer.is_error
        return str(answer.content[0].text)

    async def submit(self, code: str, **arguments: Any) -> str:
        (said,) = await self.call("submit", code=code, **arguments)
        return str(said.text.split()[0].rstrip(":"))

    async def until(self, run: str, word: str) -> list[Any]:
        """All that a run has put out when the first line of ``follow`` has this word."""
        after, parts = 0, []
        async with asyncio.timeout(_LIMIT_S):
            while True:
                first, *more = await self.call("follow", run=run, after=after, wait_s=5)
                parts += more
                if word in first.text:
                    return parts
                if found := re.search(r"after=(\d+)", first.text):
                    after = int(found[1])


@pytest.mark.thorough
def test_an_assistant_works_with_runs_by_reference(cluster: Ready, tmp_path: Path) -> None:
    home = str(Path(cluster.connection.token_file).parent)
    environment = {**os.environ, "JUPYTER_GPU_HOME": home}
    asked = json.loads(block("use/assistants.md", "## Set it up", "{").text)["mcpServers"]["gpu"]
    program = Path(sys.executable).with_name(asked["command"])
    command = Parameters(command=str(program), args=asked["args"], env=environment, cwd=tmp_path)

    async def work() -> tuple[str, str]:
        async with Client(command) as client:
            assistant = _Assistant(client)
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"status", "estimate", "submit", "follow", "results", "runs", "cancel"}
            (status,) = await assistant.call("status")
            assert status.text.startswith("4 simulated GPUs")
            (when,) = await assistant.call("estimate", gpus=2)
            assert "start" in when.text
            first = await assistant.submit(_FIRST, options={"timeout": "5m", "name": "first"})
            shown = await assistant.until(first, "that is all")
            assert [part.type for part in shown] == ["text", "image"]
            assert shown[0].text == "hello\n"
            assert base64.b64decode(shown[1].data).startswith(b"\x89PNG")
            inputs = {"number": first, "known": f"{first}:facts"}
            second = await assistant.submit("answer = number + known['one']\nprint(answer)", gpus=0, inputs=inputs)
            assert (await assistant.until(second, "that is all"))[0].text == "42\n"
            facts, *pictures = await assistant.call("results", run=first)
            assert "number: int" in facts.text
            assert len(pictures) == 1
            sleeping = await assistant.submit("import time\nprint('asleep')\ntime.sleep(600)")
            await assistant.until(sleeping, "running")
            (ended,) = await assistant.call("cancel", run=sleeping)
            assert "is being ended" in ended.text
            await assistant.until(sleeping, "cancelled")
            (listed,) = await assistant.call("runs")
            assert "(first): succeeded" in listed.text
            assert "→ the nearest that fits: --gpus 4" in await assistant.refused("submit", code="x = 1", gpus=99)
            assert "no run" in await assistant.refused("results", run="r-none")
            left = await assistant.submit("import time\ntime.sleep(600)")
            await assistant.until(left, "running")
            return second, left

    second, left = asyncio.run(work())
    target = find_gateway(environment=environment)
    assert target is not None
    with GatewayClient.for_target(target) as gateway:
        assert {link.name for link in gateway.lineage(second).links if link.run == second} == {"number", "known"}
        asyncio.run(_until_over(gateway, left))


async def _until_over(gateway: GatewayClient, run: str) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while not RunState.of(gateway.run(run).state).is_terminal:
            await asyncio.sleep(0.2)
