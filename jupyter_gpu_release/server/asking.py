"""Asking a kernel to let its GPU go: one silent request on its shell channel, and only while it is idle."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from importlib.resources import files
from typing import Any

from jupyter_client.session import Session

from ..errors import ConflictError, GpuReleaseError
from .watching import Watch

_SOURCE = files(__package__).joinpath("in_kernel.py").read_text()
_PATIENCE_S = 60.0
#: a request that had to wait so long in the kernel stood behind a cell of the user's: then it does nothing
_LATE_S = 10.0


async def let_go(watch: Watch, patterns: list[str]) -> dict[str, Any]:
    """Have the kernel's GPU libraries let go; see :func:`in_kernel.let_go` for the answer."""
    return await _call(watch, "let_go", patterns)


async def save_variables(watch: Watch, path: str) -> dict[str, Any]:
    """Have the kernel write its variables to ``path``; see :func:`in_kernel.save`."""
    return await _call(watch, "save", path)


async def _call(watch: Watch, function: str, argument: Any) -> dict[str, Any]:
    """Raises :class:`ConflictError` when the kernel is at work, is not Python, does not answer or refuses."""
    if watch.language != "python":
        raise ConflictError(f"kernel {watch.kernel} speaks {watch.language or 'an unknown language'}, not Python")
    busy, why = watch.conversation.busy()
    if busy is not False:
        raise ConflictError(f"kernel {watch.kernel} is left alone: {why}", mend="wait until its cell has ended")
    # nothing of this gets into the user's namespace: the text runs in a dictionary of its own
    expression = (
        f"(lambda own: (exec({_SOURCE!r}, own), own['in_time'](own[{function!r}], {time.monotonic() + _LATE_S!r}, "
        f"get_ipython().user_ns, {argument!r}))[1])"
        "({'__name__': 'jupyter_gpu_release_request'})"
    )
    content = {
        "code": "", "silent": True, "store_history": False, "allow_stdin": False, "stop_on_error": False,
        "user_expressions": {"answer": expression},
    }  # fmt: skip
    return _read(watch.kernel, await _request(watch, content))


async def _request(watch: Watch, content: dict[str, Any]) -> dict[str, Any]:
    manager = watch.manager
    session = Session(config=manager.session.config, key=manager.session.key)
    watch.conversation.own_sessions.add(session.session)
    before = getattr(manager, "last_activity", None)
    stream = manager.connect_shell()
    reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def on_reply(parts: list[bytes]) -> None:
        _, rest = session.feed_identities(parts)
        message = session.deserialize(rest)
        if message["header"]["msg_type"] == "execute_reply" and not reply.done():
            reply.set_result(message["content"])

    stream.on_recv(on_reply)
    try:
        session.send(stream, "execute_request", content)
        return await asyncio.wait_for(reply, _PATIENCE_S)
    except TimeoutError as error:
        raise ConflictError(f"kernel {watch.kernel} did not answer within {_PATIENCE_S:.0f} s") from error
    finally:
        stream.close()
        if before is not None:
            # our request is no activity of the user: Jupyter's own idle clock goes on
            manager.last_activity = before


def _read(kernel: str, content: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = content["user_expressions"]["answer"]
        if answer["status"] != "ok":
            raise ConflictError(f"kernel {kernel} refused: {answer.get('ename')}: {answer.get('evalue')}")
        document: dict[str, Any] = json.loads(ast.literal_eval(answer["data"]["text/plain"]))
    except GpuReleaseError:
        raise
    except (KeyError, TypeError, ValueError, SyntaxError) as error:
        raise ConflictError(f"kernel {kernel} gave no answer that can be read: {content.get('status')}") from error
    if document.get("late"):
        raise ConflictError(f"kernel {kernel} is left alone: a cell was begun meanwhile")
    return document
