"""A real WebSocket gateway that plays scripts instead of running cells."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from jupyter_gpu_release.protocol.cell import CellPayload, Graph
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, RunRequest, RunView, ValueInfo
from jupyter_gpu_release.protocol.session import (
    PROTOCOL,
    Accepted,
    Bye,
    ClientMessage,
    Events,
    Heartbeat,
    Hello,
    Refused,
    Signal,
    Submit,
    Subscribe,
    Update,
    Welcome,
)
from jupyter_gpu_release.protocol.wire import decode, encode
from jupyter_gpu_release.serialization import codec, rebuild

TOKEN = "a-token-for-tests"


class FakeRun:
    """One submission, played by a script: a function that gets this and says what happens."""

    def __init__(self, gateway: FakeGateway, request: RunRequest) -> None:
        self.gateway = gateway
        self.request = request
        self.payload: CellPayload = decode(request.payload, CellPayload)
        self.signals: queue.Queue[str] = queue.Queue()
        self.view = RunView(
            run=request.run,
            user="ann",
            state="queued",
            gpus=request.ask.gpus,
            ranks=request.ask.ranks,
            simulated=True,
            submitted_at=time.time(),
            session=request.session,
        )
        self.events: list[Event] = []

    def update(self, state: str, **facts: Any) -> None:
        self.view = msgspec.structs.replace(self.view, state=state, seq=self.view.seq + 1, **facts)
        self.gateway.send(Update(self.view, after_event=len(self.events)))

    def accept(self) -> None:
        self.gateway.send(Accepted(self.view))

    def start(self) -> None:
        self.accept()
        self.update(
            "running",
            position=None,
            reason="",
            granted_at=time.time(),
            running_at=time.time(),
            hosts=["box"],
            gpu_ids=["0"],
        )

    def emit(self, *pairs: tuple[str, dict[str, Any]]) -> None:
        first = len(self.events) + 1
        events = [Event(first + n, time.time(), kind, data) for n, (kind, data) in enumerate(pairs)]
        self.events += events
        self.gateway.send(Events(self.request.run, events))

    def say(self, text: str, **more: Any) -> None:
        self.emit(("stream", {"name": "stdout", "text": text, **more}))

    def end(self, status: str = "ok", state: str = "", **facts: Any) -> None:
        states = {"ok": "succeeded", "lost": "lost"}
        outcome = Outcome(status=status, started_s=time.time() - 1, ended_s=time.time(), **facts)
        now = time.time()
        word = state or states.get(status, "failed")
        self.update(word, outcome=outcome, gone_at=now, finished_at=now, release_ms=9.0, reason="")

    def fail(self, error: ErrorInfo, status: str = "error", **facts: Any) -> None:
        self.end(status, error=error, **facts)

    def wait_for_signal(self) -> str:
        return self.signals.get(timeout=20)


def graph_of(**values: Any) -> dict[str, Any]:
    """What a run brings home: arguments for :meth:`FakeRun.end`."""
    results = [ValueInfo(name, type(value).__name__, 100) for name, value in values.items()]
    dump = codec.dump(values, rebuild.NamespaceInfo(values, at_home=False))
    return {"values": Graph(stream=dump.stream, buffers=[bytes(each) for each in dump.buffers]), "results": results}


class FakeGateway:
    """Plays ``scripts[--name of the run]``; remembers what it was told."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.scripts: dict[str, Callable[[FakeRun], None]] = {}
        self.runs: list[FakeRun] = []
        self.hellos: list[Hello] = []
        #: released once for each client that was welcomed
        self.greeted = threading.Semaphore(0)
        self.byes = 0
        self.said_bye = threading.Event()
        #: while set, nobody is answered
        self.is_away = threading.Event()
        self.refuse_all: Refused | None = None
        self.embedded = True
        self._connections: list[ServerConnection] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.server: Server = serve(self._serve, "127.0.0.1", 0, compression=None, max_size=None)
        self.port = self.server.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def script(self, name: str) -> Callable[[Callable[[FakeRun], None]], Callable[[FakeRun], None]]:
        def keep(play: Callable[[FakeRun], None]) -> Callable[[FakeRun], None]:
            self.scripts[name] = play
            return play

        return keep

    def send(self, message: Any) -> None:
        with self._lock:
            for connection in self._connections:
                connection.send(encode(message))

    def drop_connections(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def close(self) -> None:
        self.drop_connections()
        self.server.shutdown()
        for thread in [*self._threads, self._thread]:
            thread.join(10)

    def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        if self.is_away.is_set():
            connection.close(1013, "away")
            return
        if connection.request.headers.get("Authorization") != f"Bearer {TOKEN}":
            connection.close(1008, "no token")
            return
        try:
            for data in connection:
                assert isinstance(data, bytes)
                self._take(connection, decode(data, ClientMessage))
        except ConnectionClosed:
            return

    def _take(self, connection: ServerConnection, message: Any) -> None:
        if isinstance(message, Hello):
            self.hellos.append(message)
            with self._lock:
                connection.send(encode(self.refuse_all or self._welcome()))
                if self.refuse_all:
                    return
                self._connections.append(connection)
                for run, after in message.resume.items():
                    self._go_on(connection, self.find(run), after)
            self.greeted.release()
        elif isinstance(message, Submit):
            self._submit(message.request)
        elif isinstance(message, Signal):
            self.find(message.run).signals.put(message.signal)
        elif isinstance(message, Subscribe):
            self._go_on(connection, self.find(message.run), message.after)
        elif isinstance(message, Heartbeat):
            connection.send(encode(message))
        elif isinstance(message, Bye):
            self.byes += 1
            self.said_bye.set()

    def _welcome(self) -> Welcome:
        return Welcome(PROTOCOL, "0", "ann", True, 4, str(self.store), embedded=self.embedded)

    def _go_on(self, connection: ServerConnection, run: FakeRun, after: int) -> None:
        if run.events[after:]:
            connection.send(encode(Events(run.request.run, run.events[after:])))
        connection.send(encode(Update(run.view, after_event=len(run.events))))

    def _submit(self, request: RunRequest) -> None:
        if any(run.request.run == request.run for run in self.runs):
            return
        run = FakeRun(self, request)
        self.runs.append(run)
        thread = threading.Thread(target=self._play, args=(run,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _play(self, run: FakeRun) -> None:
        script = self.scripts.get(run.request.name)
        if script is None:
            run.start()
            run.end()
        else:
            script(run)

    def find(self, run: str) -> FakeRun:
        return next(each for each in self.runs if each.request.run == run)
