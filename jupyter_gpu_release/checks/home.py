"""Files with secrets: nobody else may read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..client.home import HomePaths
from .finding import Finding, broken, ok


def check_home(home: HomePaths) -> Iterator[Finding]:
    """Folder and token files of this machine's own cluster."""
    if not os.path.exists(home.root):  # False too where it may not be looked for
        yield check_to_come("home", home.root, "JUPYTER_GPU_HOME")
        return
    yield check_mode("home", home.root, 0o700)
    for path in (home.token, home.ray_token, home.connection, home.gateway_config):
        if path.exists():
            yield check_mode("token" if "token" in path.name else "home", path, 0o600)


def check_token_file(named: str) -> Iterator[Finding]:
    """A token file that is named in the settings; empty: none is."""
    if not named:
        return
    path = Path(named).expanduser()
    if path.exists():
        yield check_mode("token", path, 0o600)
    else:
        mend = "put the token there (mode 0600), or name another file: JUPYTER_GPU_TOKEN_FILE"
        yield broken("token", f"there is no token file {path}", mend)


def check_mode(check: str, path: Path, wanted: int) -> Finding:
    """One file or folder."""
    facts = path.stat()
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid != os.getuid():
        return broken(check, f"{path} belongs to another user (uid {facts.st_uid})", f"chown it, or remove {path}")
    if mode & 0o077:
        return broken(check, f"{path} may be read by others (mode {mode:04o})", f"chmod {wanted:o} {path}")
    return ok(check, f"{path} is private (mode {mode:04o})")


def check_to_come(check: str, folder: Path, variable: str) -> Finding:
    """A folder that is not there yet: doctor makes none, it says whether `start` could."""
    above = next(parent for parent in folder.parents if os.path.exists(parent))
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return ok(check, f"{folder} does not exist yet (`jupyter gpu start` makes it)")
    why, mend = "is no folder", f"name another: {variable}"
    if above.is_dir():
        why = "may not be written"
        mend = f"let uid {os.geteuid()} or gid {os.getegid()} write there, or {mend}"
    return broken(check, f"{folder} does not exist, and cannot be made: {above} {why}", mend)
