"""A TCP relay that makes a network of ours worse: slow, stalled, lossy, cut. The kernel here may have no netem.

``python relay.py TARGET-HOST:PORT [ADDRESS]`` is one as a process (it prints its port), so that it can stand on another
host; orders come as lines on standard input: ``delay_s 0.01``, ``stall_every_s 1``, ``swallow 1``, ``cut``.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress


class RunOutput:
    """Passes bytes on between clients and a target, in order, ``delay_s`` later in each direction.

    ``stall_every_s``: all that passes stands still for 0.2 to 1 s again and again, as TCP does when packets are lost.
    ``swallow``: what comes vanishes, and no connection ends.
    """

    def __init__(self, target: str, address: str = "127.0.0.1") -> None:
        host, _, port = target.rpartition("//")[2].rpartition(":")
        self._target = (host, int(port))
        self._server = socket.create_server((address, 0))
        self._pairs: list[socket.socket] = []
        self._made: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.delay_s = 0.0
        self.stall_every_s = 0.0
        self.swallow = False
        self._stalled_until = 0.0
        self._stalls_at = 0.0
        self.port: int = self._server.getsockname()[1]
        self.url = f"http://{address}:{self.port}"
        self._spawn(self._accept)

    def cut(self) -> None:
        """Close all connections (new ones are taken)."""
        pairs, self._pairs = self._pairs, []
        for one in pairs:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def pass_on(self) -> None:
        """Swallow no longer. A client that came meanwhile comes again, and does not wait for its answer to time out."""
        self.swallow = False
        self.cut()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for each in self._made:
            each.close()

    def _spawn(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                gateway = socket.create_connection(self._target, timeout=30)
            except OSError:  # nobody is there: the client sees its connection end
                client.close()
                continue
            gateway.settimeout(None)
            self._pairs += [client, gateway]
            self._made += [client, gateway]
            for source, sink in ((client, gateway), (gateway, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._spawn(self._pump, source, sink)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Pass on what comes when it is due; read on meanwhile."""
        waiting: list[tuple[float, int, bytes]] = []
        count, is_open = 0, True
        with suppress(OSError):
            while is_open or waiting:
                pause_s = max(0.0, self._due_s(waiting) - time.monotonic()) if waiting else None
                if is_open and _is_readable(source, pause_s):
                    data = source.recv(1 << 16)
                    is_open, count = bool(data), count + 1
                    if data and not self.swallow:
                        heapq.heappush(waiting, (time.monotonic() + self.delay_s, count, data))
                elif waiting and not is_open:
                    time.sleep(pause_s or 0.0)
                while waiting and self._due_s(waiting) <= time.monotonic():
                    sink.sendall(heapq.heappop(waiting)[2])
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _due_s(self, waiting: list[tuple[float, int, bytes]]) -> float:
        self._stall(time.monotonic())
        return max(waiting[0][0], self._stalled_until)

    def _stall(self, now_s: float) -> None:
        if self.stall_every_s and now_s > self._stalls_at:
            self._stalled_until = now_s + random.uniform(0.2, 1.0)
            self._stalls_at = self._stalled_until + random.uniform(0.5, 1.5) * self.stall_every_s


def _is_readable(source: socket.socket, pause_s: float | None) -> bool:
    """Wait for data, at most ``pause_s``, to the tenth of a millisecond."""
    return bool(select.select([source], [], [], pause_s)[0])


class RelayProcess:
    """A relay as a process, on this host or (``command``) another; ends with this process."""

    def __init__(self, target: str, address: str = "127.0.0.1", command: Sequence[str] = ()) -> None:
        words = [*command, sys.executable, __file__, target, address]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.place = f"{address}:{self.port}"

    def order(self, *words: object) -> None:
        """``delay_s 0.01``, ``stall_every_s 1``, ``swallow 1``, ``cut``."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    """Relay until standard input ends."""
    relay = RunOutput(*sys.argv[1:3])
    print(relay.port, flush=True)
    for line in sys.stdin:
        name, *value = line.split()
        if name == "cut":
            relay.cut()
        else:
            setattr(relay, name, float(value[0]))
    relay.close()


if __name__ == "__main__":
    main()
