"""A worker's end of ``launch_map``: it asks for one item after the other, and sends home what came of each.

It asks for the next item when it begins one, so that the answer is there when it needs it. What an item returned goes
home at once: small values in the event, larger ones in a file that is written while the next item runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ...errors import GpuReleaseError
from ...protocol.cell import RESULT, Graph
from ...protocol.fetch import ITEM, NEXT, ItemOutcome, ItemRequest, NextItem
from ...protocol.runs import ErrorInfo
from ...protocol.wire import decode
from ...serialization import codec, exceptions
from ...serialization.rebuild import NamespaceInfo
from ...store.graph_file import write_graph
from ...store.layout import RunPaths
from ...store.run_folders import require_store
from .fetching import AnswerQueue
from .output import OutputSender

#: a question is asked again after this: the gateway may have died with the answer
_AGAIN_S = 10.0
#: who hands out the items has gone if it has not answered after this: the GPU is not held for it
_GONE_S = 60.0
#: larger values go through the store
_INLINE_BYTES = 1 << 16
#: a store that takes longer than this for a value, and for its size, hangs: the GPU is not held for it
_WRITE_S, _SLOW_BYTES_PER_S = 60.0, 10 << 20


class ItemExchange:
    """``lines_of``: the lines of a traceback. Used by the cell's own thread."""

    def __init__(
        self,
        outlet: OutputSender,
        sock: Any,
        realm: NamespaceInfo,
        paths: RunPaths,
        lines_of: Callable[[BaseException], list[str]],
    ) -> None:
        self._outlet = outlet
        self._answers = AnswerQueue(sock)
        self._realm = realm
        self._paths = paths
        self._lines_of = lines_of
        self._asked = 0
        self._writing: threading.Thread | None = None
        #: the item whose value it writes
        self._written = 0
        self._until_s = 0.0

    def item_numbers(self) -> Iterator[int]:
        """Numbers of items, until there is none left; whoever takes one says what came of it, then takes the next."""
        request = self._ask(None)
        while (item := self._answer(request)) is not None:
            request = self._ask(item)
            yield item
        if not self._until_written():
            self._report_silence(self._written, "it")

    def send_value(self, item: int, value: Any) -> None:
        """Send home the value that the call with this item returned."""
        try:
            dump = codec.dump({RESULT: value}, self._realm)
        except Exception as error:  # noqa: BLE001 - foreign reducers
            self._refuse(item, error)
            return
        if RESULT in dump.failed:
            self._refuse(item, dump.failed[RESULT])
            return
        graph = Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers])
        if dump.total_bytes <= _INLINE_BYTES:
            self._send(ItemOutcome(item, graph))
        else:
            self._write(item, graph, dump.total_bytes)

    def send_error(self, item: int, error: BaseException) -> None:
        """Send home the exception that the call with this item raised."""
        lines = self._lines_of(error)
        try:
            pickled = exceptions.pack_error(error)
        except Exception:  # noqa: BLE001 - the user's class may be odd in any way
            pickled = b""
        info = ErrorInfo(type(error).__name__, exceptions.error_text(error), traceback=lines, pickled=pickled)
        self._send(ItemOutcome(item, error=info))

    # --------------------------------------------------------------------------------------- questions
    def _ask(self, begins: int | None) -> ItemRequest:
        self._asked += 1
        request = ItemRequest(self._asked, begins)
        self._outlet.add_event(NEXT, msgspec.to_builtins(request))
        self._outlet.flush()  # a process that dies in the item has said that it began it
        return request

    def _answer(self, request: ItemRequest) -> int | None:
        deadline = time.monotonic() + _GONE_S
        while (left_s := deadline - time.monotonic()) > 0:
            body = self._answers.next_answer(min(_AGAIN_S, left_s))
            if body is None:
                self._outlet.add_event(NEXT, msgspec.to_builtins(request))
                continue
            answer = decode(body, NextItem)
            if answer.ask == request.ask:
                return answer.item
            if not answer.ask:
                return None
        return None

    # ----------------------------------------------------------------------------------------- results
    def _send(self, outcome: ItemOutcome) -> None:
        self._outlet.add_event(ITEM, msgspec.to_builtins(outcome, builtin_types=(bytes,)))

    def _refuse(self, item: int, error: Exception) -> None:
        info = ErrorInfo(
            "CannotSendError",
            f"what it returned cannot leave its process: {error}",
            code="cannot_send",
            hint="return what can be pickled: numbers, arrays, a state_dict",
        )
        self._send(ItemOutcome(item, error=info))

    def _write(self, item: int, graph: Graph, size: int) -> None:
        if not self._until_written():
            self._report_silence(item, "what an item before it returned")
            return
        self._written = item
        self._until_s = time.monotonic() + _WRITE_S + size / _SLOW_BYTES_PER_S
        self._writing = threading.Thread(target=self._write_now, args=(item, graph), name="jgr-item", daemon=True)
        self._writing.start()

    def _write_now(self, item: int, graph: Graph) -> None:
        path = self._paths.item(item)
        try:
            require_store(path.parent.parent.parent)
            digest = write_graph(path, graph.stream, graph.buffers, name_durable=False)
        except GpuReleaseError as error:
            self._send(ItemOutcome(item, error=ErrorInfo("StoreError", error.message, code="store", hint=error.hint)))
        except Exception as error:  # noqa: BLE001 - a thread's entry point: somebody waits for the item
            text = f"what it returned could not be written: {type(error).__name__}: {error}"
            self._send(ItemOutcome(item, error=ErrorInfo("StoreError", text, code="store")))
        else:
            self._send(ItemOutcome(item, Graph(file=path.name, digest=digest)))

    def _report_silence(self, item: int, what: str) -> None:
        text = f"the store did not take {what} within {_WRITE_S:.0f} s: it does not answer"
        hint = "`jupyter gpu doctor` looks at the store"
        self._send(ItemOutcome(item, error=ErrorInfo("StoreError", text, code="store", hint=hint)))

    def _until_written(self) -> bool:
        if self._writing is not None:
            self._writing.join(max(0.0, self._until_s - time.monotonic()))
        return self._writing is None or not self._writing.is_alive()
