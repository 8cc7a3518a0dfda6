"""The waiting kernel gives its running cell the names that it asks for and that were held back."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import GpuReleaseError
from ...protocol.cell import INLINE_LIMIT_BYTES, Graph
from ...protocol.events import Event
from ...protocol.fetch import FETCH, Answer, Fetch
from ...protocol.lineage import UsedInput
from ...protocol.runs import ValueInfo
from ...protocol.session import Supply
from ...protocol.wire import encode
from ...serialization import codec
from ...serialization.diagnosis import find_trouble
from ...serialization.sharing.references import Key, KnownInputs
from ...store.mapped.mapping import refuse_torn
from ...submission.lineage import used_inputs, with_large_digests
from ..namespace.values import store_of

if TYPE_CHECKING:
    from ...client.session import GatewaySession
    from ...submission.request import Submission
    from ..context import KernelContext


@dataclass(frozen=True)
class _Given:
    """An answer, and what it makes an input; ``memo``: id → (number, object) of what is in its graph."""

    answer: Answer
    info: ValueInfo | None = None
    used: tuple[UsedInput, ...] = ()
    memo: Mapping[int, tuple[int, Any]] | None = None


class HeldBack:
    """Serialises in a thread of its own, so that output is shown and an interrupt passed on meanwhile.

    The notebook's values do not change: its cell waits.
    """

    def __init__(self, notebook: KernelContext, session: GatewaySession, submission: Submission) -> None:
        self._notebook = notebook
        self._session = session
        self._run = submission.request.run
        self._ask = submission.request.ask
        self._prepared = submission.prepared
        self._given: dict[str, _Given] = {}
        self._first = 0
        self._questions: queue.SimpleQueue[Fetch | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def answer_questions(self, events: Iterable[Event]) -> None:
        """Answer the questions among ``events``."""
        for event in events:
            if event.kind == FETCH:
                self._questions.put(msgspec.convert(event.data, Fetch))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._answer_forever, name="gpu-fetch", daemon=True)
                    self._thread.start()

    def close(self, *, goes_on: bool) -> None:
        """The cell waits no more; what the run was given is among its inputs. ``goes_on``: the run may ask for more."""
        self._is_over = True
        self._questions.put(None)
        if goes_on and self._prepared.held:
            self._refuse_all()
        for name, given in list(self._given.items()):
            if given.info is not None and given.memo is not None:
                self._prepared.add_fetched(name, self._prepared.held[name], given.info, given.memo)

    def _refuse_all(self) -> None:
        body = encode(Answer(error="its cell does not wait any more"))
        for rank in range(self._ask.ranks + self._ask.ps + self._ask.evaluator):
            self._session.supply(Supply(self._run, rank, body))

    # ------------------------------------------------------------------------------ the thread
    def _answer_forever(self) -> None:
        while not self._is_over and (question := self._questions.get()) is not None:
            given = self._given.get(question.name) or self._give(question.name)
            body = encode(msgspec.structs.replace(given.answer, ask=question.ask))
            self._session.supply(Supply(self._run, question.rank, body, list(given.used)))

    def _give(self, name: str) -> _Given:
        """Once, however many ranks ask; known before it is sent, so that what a run has is an input."""
        try:
            given = self._made(name)
        except GpuReleaseError as error:
            given = _Given(Answer(error=error.message))
        except Exception as error:  # noqa: BLE001 - reducers are foreign code, and a GPU is held until there is an answer
            given = _Given(Answer(error=f"{type(error).__name__}: {error}"))
        self._given[name] = given
        return given

    def _made(self, name: str) -> _Given:
        if name not in self._prepared.held:
            return _Given(Answer(error="it is not held back"))
        value = self._prepared.held[name]
        realm = self._notebook.names.realm
        dump = codec.dump({name: value}, realm, known=self._known())
        if name in dump.failed:
            return _Given(Answer(error=str(find_trouble(name, value, realm, dump.failed[name]))))
        refuse_torn(dump.buffers)
        info = ValueInfo(name, type(value).__name__, dump.sizes[name])
        used = used_inputs([info], dump, self._notebook.names.input_capture.lineage, {name: value})
        graph, used = self._placed(dump, used)
        first = self._first or 1 + max((number for number, _ in self._prepared.memo.values()), default=-1)
        memo = {ident: (first + number, thing) for ident, (number, thing) in dump.memo.items()}
        self._first = first + len(dump.memo)
        return _Given(Answer(graph=graph, first=first), info, tuple(used), memo)

    def _placed(self, dump: codec.Dump, used: list[UsedInput]) -> tuple[Graph, list[UsedInput]]:
        """Place it in the message, or beside the run's inputs."""
        if dump.total_bytes <= INLINE_LIMIT_BYTES:
            return Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers]), used
        from ...store.graph_file import blobs_of_buffers, write_graph
        from ...store.run_folders import create_run_folder, require_store

        store = store_of(self._session)
        require_store(store)
        path = create_run_folder(store, self._run).fetched(1 + len(self._given))
        digest = write_graph(path, dump.stream, dump.buffers, name_durable=False)
        return Graph(file=path.name, digest=digest), with_large_digests(used, dump, blobs_of_buffers(path))

    def _known(self) -> KnownInputs:
        """Values that the run has already: they are referred to, so that each is one object there, too."""
        memos = [self._prepared.memo, *(given.memo for given in self._given.values() if given.memo is not None)]
        keys: dict[int, Key] = {id(value): name for name, value in self._prepared.originals.items()}
        things: list[Any] = list(self._prepared.originals.values())
        for memo in memos:
            keys.update((ident, number) for ident, (number, _) in memo.items())
            things += [thing for _, thing in memo.values()]
        return KnownInputs(keys, things)
