"""Carries out decisions: warn, release, suspend, shut down."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jupyter_client.session import Session
from jupyter_core.utils import ensure_async

from ...client.home import HomePaths
from ...client.rest import GatewayRequests
from ...errors import ConflictError, GpuReleaseError
from ...store.saved_kernels import saved_kernel_path, sweep_saved_kernels
from ...units import format_bytes, format_seconds
from ..gateway import GatewayConnection
from ..models import Released
from ..monitoring.kernels import Watch
from .config import GpuCuller
from .cuda_checkpoint import Suspender, find_suspender
from .policy import Action

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
        raise ConflictError(f"kernel {watch.kernel} is left alone: {why}", hint="wait until its cell has ended")
    # nothing of this gets into the user's namespace: the text runs in a dictionary of its own
    expression = (
        f"(lambda own: (exec({_SOURCE!r}, own), own['in_time'](own[{function!r}], {time.monotonic() + _LATE_S!r}, "
        f"get_ipython().user_ns, {argument!r}))[1])"
        "({'__name__': 'jupyter_gpu_release_request'})"
    )
    content = {
        "code": "",
        "silent": True,
        "store_history": False,
        "allow_stdin": False,
        "stop_on_error": False,
        "user_expressions": {"answer": expression},
    }
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


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of an action. ``frees``: it gave GPU memory back for sure."""

    done: bool
    words: str
    frees: bool = False


class Actor:
    """Carries out actions on kernels. Every method answers with a :class:`Result`; a refusal is one, too."""

    def __init__(self, culler: GpuCuller, gateway: GatewayConnection, kernel_manager: Any) -> None:
        self._culler = culler
        self._gateway = gateway
        self._kernels = kernel_manager
        self.suspender: Suspender | None = None
        #: why nothing can be suspended here, in words
        self.cannot_suspend = "not available because it has not been looked for"

    async def probe(self) -> None:
        """Look for a way to suspend (loads the driver: in a thread)."""
        self.suspender, self.cannot_suspend = await asyncio.to_thread(find_suspender)

    async def on_kernel(self, action: Action, watch: Watch, pids: list[int]) -> Result:
        """Act on a kernel that the policy found idle."""
        try:
            busy, why = watch.conversation.busy()
            if busy is not False and action.touches:
                raise ConflictError(f"left alone after all: {why}")
            match action:
                case Action.RELEASE:
                    return _released(await self.release(watch, self._culler.move_to_host))
                case Action.SUSPEND:
                    return await self._suspend(watch, pids)
                case Action.SHUTDOWN:
                    return await self._shut_down(watch)
                case _:
                    return Result(True, "its user was told")
        except GpuReleaseError as error:
            return Result(False, error.message)

    async def on_lease(self, action: Action, lease: str) -> Result:
        """Act on a warm lease."""
        if action is not Action.RELEASE:
            return Result(True, "its user was told")
        try:
            await self._gateway.ask(GatewayRequests.release_lease, lease)
        except GpuReleaseError as error:
            return Result(False, error.message)
        return Result(True, "its GPUs are free", frees=True)

    async def release(self, watch: Watch, patterns: list[str]) -> Released:
        """Have a kernel's GPU libraries let go. Raises :class:`ConflictError` when it is at work."""
        answer = await let_go(watch, patterns)
        return Released(
            watch.kernel,
            int(answer["freed_bytes"]),
            list(answer["libraries"]),
            list(answer["moved"]),
            list(answer["notes"]),
        )

    async def _suspend(self, watch: Watch, pids: list[int]) -> Result:
        if self.suspender is None:
            raise ConflictError(f"suspending is {self.cannot_suspend}")
        began_s = time.monotonic()
        done: list[int] = []
        try:
            for pid in pids:
                await asyncio.to_thread(self.suspender.suspend, pid)
                done.append(pid)
        except GpuReleaseError:
            await self.restore(done)
            raise
        words = f"{len(done)} processes suspended in {format_seconds(time.monotonic() - began_s)}"
        if watch.conversation.busy()[0]:
            await self.restore(done)
            raise ConflictError("restored at once: a cell was begun meanwhile")
        return Result(True, words, frees=True)

    async def restore(self, pids: list[int]) -> None:
        """Give suspended processes their GPU memory back. Raises the first refusal after all have been tried."""
        refusal: GpuReleaseError | None = None
        suspender = self.suspender
        if suspender is None:
            return
        for pid in pids:
            try:
                await asyncio.to_thread(suspender.restore, pid)
            except GpuReleaseError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    async def _shut_down(self, watch: Watch) -> Result:
        words = "shut down"
        if self._culler.save_before_shutdown:
            target = await asyncio.to_thread(self._saved_path, watch.kernel)
            answer = await save_variables(watch, str(target))
            words = f"{len(answer['saved'])} variables saved to {target}, then shut down"
            if answer["notes"]:
                words += f"; not saved: {'; '.join(answer['notes'])[:300]}"
        busy, why = watch.conversation.busy()
        if busy is not False:
            raise ConflictError(f"left alone after all: {why}")
        await ensure_async(self._kernels.shutdown_kernel(watch.kernel))
        return Result(True, words, frees=True)

    def _saved_path(self, kernel: str) -> Path:
        root = self._gateway.store
        store = Path(root) if root else HomePaths.from_environment().store
        sweep_saved_kernels(store, time.time())
        return saved_kernel_path(store, kernel)


def _released(answer: Released) -> Result:
    if not answer.libraries:
        return Result(True, "no GPU library that can be asked is loaded in it")
    freed = f"{', '.join(answer.libraries)} let {format_bytes(answer.freed_bytes)} go"
    moved = f"; moved to the host: {', '.join(answer.moved)}" if answer.moved else ""
    notes = f" ({'; '.join(answer.notes)})" if answer.notes else ""
    return Result(True, freed + moved + notes, frees=answer.freed_bytes > 0)
