"""A mail server and a web server on this machine that write down what they are told."""

from __future__ import annotations

import base64
import email
import email.policy
import json
import socketserver
import ssl
import threading
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class _Bed:
    """Answers in a thread of its own until its ``with`` ends."""

    def __init__(self, server: socketserver.TCPServer) -> None:
        self._server = server
        self.port = int(server.server_address[1])
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class MailBed(_Bed):
    """SMTP, with STARTTLS where ``tls`` has a certificate; ``refuse`` answers the recipient, ``password`` is wanted."""

    def __init__(self, tls: ssl.SSLContext | None = None, refuse: str = "", password: str = "") -> None:
        self.mails: list[EmailMessage] = []
        self.was_encrypted: list[bool] = []
        self.tls, self.refuse, self.password = tls, refuse, password
        bed = self

        class _Talk(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                _Session(bed, self).talk()

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Talk)
        server.daemon_threads = True
        super().__init__(server)


class _Session:
    def __init__(self, bed: MailBed, handler: socketserver.StreamRequestHandler) -> None:
        self._bed, self._socket = bed, handler.connection
        self._file = handler.connection.makefile("rwb", buffering=0)
        self._encrypted = self._known = False

    def talk(self) -> None:
        try:
            self._say("220 here")
            while line := self._file.readline():
                word = line.split()[0].upper() if line.split() else b""
                if not getattr(self, f"_on_{word.decode().lower()}", self._on_other)(line):
                    return
        except OSError:  # the client is gone
            pass
        finally:
            self._file.close()
            self._socket.close()

    def _say(self, text: str) -> bool:
        self._file.write(text.encode() + b"\r\n")
        return True

    def _on_ehlo(self, line: bytes) -> bool:
        offers = ["STARTTLS"] if self._bed.tls is not None and not self._encrypted else []
        offers += ["AUTH PLAIN"] if self._bed.password else []
        for offer in ("here", *offers):
            self._say(f"250-{offer}")
        return self._say("250 done")

    def _on_starttls(self, line: bytes) -> bool:
        self._say("220 go on")
        assert self._bed.tls is not None
        self._file.close()
        self._socket = self._bed.tls.wrap_socket(self._socket, server_side=True)
        self._file = self._socket.makefile("rwb", buffering=0)
        self._encrypted = True
        return True

    def _on_auth(self, line: bytes) -> bool:
        user, password = base64.b64decode(line.split()[2]).decode().split("\0")[1:]
        self._known = (user, password) == ("gpu", self._bed.password)
        return self._say("235 welcome" if self._known else "535 no")

    def _on_rcpt(self, line: bytes) -> bool:
        if self._bed.password and not self._known:
            return self._say("530 who are you?")
        return self._say(self._bed.refuse or "250 ok")

    def _on_data(self, line: bytes) -> bool:
        self._say("354 go on")
        lines: list[bytes] = []
        while (line := self._file.readline()) not in (b".\r\n", b""):
            lines.append(line)
        mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self._bed.was_encrypted.append(self._encrypted)
        self._bed.mails.append(mail)
        return self._say("250 taken")

    def _on_quit(self, line: bytes) -> bool:
        self._say("221 bye")
        return False

    def _on_other(self, line: bytes) -> bool:
        return self._say("250 ok")


class HookBed(_Bed):
    """HTTP: answers with ``statuses`` one after the other (then 200), and keeps path and JSON of what it is told.

    ``tls``: it is a proxy, too, and answers for the host that it is asked for, with this certificate.
    """

    def __init__(self, statuses: list[int] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        left = list(statuses or [])
        bed = self

        class _Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                bed.told.append((self.path, json.loads(body)))
                self.send_response(left.pop(0) if left else 200)
                self.send_header("Location", f"http://localhost:{bed.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def do_CONNECT(self) -> None:
                assert tls is not None
                self.send_response(200)
                self.end_headers()
                with tls.wrap_socket(self.connection, server_side=True) as within:
                    self.rfile, self.wfile = within.makefile("rb"), within.makefile("wb", buffering=0)
                    self.handle_one_request()
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _Answer))
        self.place = f"localhost:{self.port}"
        self.url = f"http://{self.place}/hooks/s3cret-of-ann"
