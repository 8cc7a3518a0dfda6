"""``jupyter gpu runs export RUN [FILE]`` and ``runs import FILE``: through the store, as everything large."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

from ..client.config import configured_target
from ..client.discovery import Target
from ..client.loading import store_of
from ..errors import ForbiddenError, GatewayUnavailableError, NoSuchRunError, OptionError, StoreError
from ..protocol.states import RunState, is_run_id
from ..store.bundle import BundleReader, unpack_bundle, write_bundle
from ..store.identity import expect_store
from ..store.layout import RunPaths
from ..store.run_folders import read_manifest, require_store
from ..units import format_bytes, format_count
from .connect import open_gateway

#: how long the manifest on the store may come after the gateway's word that a run is over
_SETTLING_S, _LOOK_S = 10.0, 0.05


def export_run(arguments: argparse.Namespace) -> int:
    """Write one run of the caller's own to a file."""
    with open_gateway() as gateway:
        run = gateway.newest().run if arguments.run == "last" else arguments.run
        if not is_run_id(run):
            raise NoSuchRunError(f"{run} is not the id of a run", hint="`jupyter gpu runs` lists them")
        view = gateway.view(run)
    target = Path(arguments.file or f"{run}.jgr.tar")
    if target.exists():
        raise OptionError(f"{target} is there already", hint=f"jupyter gpu runs export {run} ANOTHER.jgr.tar")
    if not RunState.of(view.state).is_terminal:
        raise OptionError(f"run {run} is {view.state}", hint="export it when it is over")
    if view.collected_at is not None:
        raise StoreError(f"the results of {run} were removed: {view.collected_because}", hint="run the cell again")
    if view.outcome is None:
        raise ForbiddenError(f"run {run} belongs to {view.user}: its values are the owner's", hint=f"ask {view.user}")
    by, found = f"{view.user}@{platform.node()}", _target()
    store = _store(found)
    _await_manifest(store, run)
    values = view.outcome.values
    told = "" if values is None else values.digest or None  # no digest: of a ledger from before they were kept
    head = write_bundle(store, run, target, exported_by=by, secret=found.token, told=told)
    sys.stdout.write(
        f"{run} is in {target} ({format_bytes(target.stat().st_size)}, {format_count(len(head.files), 'file')}, "
    )
    sys.stdout.write(f"{format_count(len(head.blobs), 'blob')}).\n")
    for path in head.left_out:
        sys.stdout.write(f"  · left out, as it is no plain file of a run: {path}\n")
    return 0


def import_run(arguments: argparse.Namespace) -> int:
    """Verify a file, and make it a run of the caller's."""
    if arguments.file:
        raise OptionError(f"runs import takes one FILE, not {arguments.file} too", hint="jupyter gpu runs import FILE")
    path, found = Path(arguments.run), _target()
    try:
        file = path.open("rb")
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}", hint="name the file that was exported") from error
    with file, open_gateway(timeout_s=600.0) as gateway:
        reader = BundleReader(file, str(path))
        proved = reader.is_proved(found.token)
        if not proved and not arguments.trust:
            raise OptionError(
                f"{path} was not exported here by you, but by {_shown(reader.head.exported_by)!r} as it says: loading "
                "its values (unpickling) runs code that whoever made it may have put there",
                hint=f"if you trust them: jupyter gpu runs import --trust {path}",
            )
        store = _store(found)
        expect_store(store, gateway.health().store_id)
        require_store(store)
        name = unpack_bundle(store, reader)
        row = gateway.import_run(name, _shown(reader.head.exported_by))
    sys.stdout.write(f"{row.run} is here ({format_bytes(reader.head.total_bytes)}, verified), exported by ")
    sys.stdout.write(f"{row.imported_from or row.user}{'' if proved else ', trusted because you said so'}.\n")
    return 0


def _await_manifest(store: Path, run: str) -> None:
    """The gateway knows a run's end a moment before its manifest does; a shared filesystem may show it later still."""
    deadline = time.monotonic() + _SETTLING_S
    while not _is_settled(RunPaths.of(store, run)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)  # in the end write_bundle says in words what it found


def _is_settled(paths: RunPaths) -> bool:
    return paths.manifest.exists() and RunState.of(read_manifest(paths)["state"]).is_terminal


def _target() -> Target:
    found = configured_target()
    if found is None:
        raise GatewayUnavailableError("no gateway is configured, and none runs here", hint="`jupyter gpu start`")
    return found


def _store(target: Target) -> Path:
    store = store_of(target)
    if not (store / "runs").is_dir():
        raise StoreError(
            f"the cluster's store {store} cannot be seen from here",
            hint="is it mounted? Name in JUPYTER_GPU_STORE where this machine sees it",
        )
    return store


def _shown(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:100]
