"""Certificates for tests, made by openssl: an authority, and what it signs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from far_clock import jump_clock

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """One that nobody trusts but who names its file."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.file, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl("req", "-x509", *_KEY, "-keyout", self._key, "-out", self.file, "-subj", f"/CN={name}", "-days", "30")

    def sign(self, name: str, *hosts: str, days: int = 30, ahead_s: int = 0) -> tuple[str, str]:
        """The files of a new certificate for these names and addresses and of its key; ``days=-1``: it has expired.

        ``ahead_s``: it is valid from then on.
        """
        cert, key, asked = (self._folder / f"{name}.{ending}" for ending in ("crt", "key", "csr"))
        names = ",".join(f"IP:{host}" if host.replace(".", "").isdigit() else f"DNS:{host}" for host in hosts)
        _openssl(
            "req", *_KEY, "-keyout", key, "-out", asked, "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}"
        )
        signing = ("-CA", self.file, "-CAkey", self._key, "-CAcreateserial", "-days", str(days))
        clock = jump_clock(self._folder, ahead_s) if ahead_s else {}
        _openssl("x509", "-req", "-in", asked, *signing, "-copy_extensions", "copy", "-out", cert, **clock)
        return str(cert), str(key)


def _openssl(*words: str | Path, **environment: str) -> None:
    done = subprocess.run(
        ["openssl", *map(str, words)], capture_output=True, text=True, timeout=60, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
