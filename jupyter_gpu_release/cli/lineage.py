"""``runs show``, OpenLineage document.

What a run made is the dataset ``RUN/NAME``; the run that uses it has a dataset of that name among its inputs. Where the
specification has no word, our own facets begin with ``gpuRelease``. ``runId`` is our id, which is no UUID.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ..protocol.lineage import Lineage, RunFacts, RunSummary, TrackedFile
from ..protocol.rest import RunRow
from ..units import format_bytes

SCHEMA_VERSION = 1
_PRODUCER = "https://schema.jupyter-gpu-release.org/producer/1"
_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_EVENTS = {"succeeded": "COMPLETE", "failed": "FAIL", "lost": "FAIL", "cancelled": "ABORT"}
_VALUES, _FILES = "jupyter-gpu-release", "file"


def lineage_document(row: RunRow, lineage: Lineage) -> dict[str, Any]:
    """``runs show --json``: the run's row as before, and one event for it and each run above and below it."""
    others = [run for run in lineage.runs if run.run != row.run]
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [row],
        "root": row.run,
        "events": [_whole(row, lineage), *(_brief(run, lineage) for run in others)],
        "links": lineage.links,
        "reused": lineage.reused,
        "reusable": lineage.is_reusable,
        "cut": lineage.cut,
    }


def _whole(row: RunRow, lineage: Lineage) -> dict[str, Any]:
    facts = lineage.facts
    inputs = [
        _dataset(_name_of_input(used.name, used.run, row.run), type=used.type, bytes=used.bytes, digest=used.digest)
        for used in facts.used
    ]
    files = [_file_dataset(file) for file in lineage.tracked]
    outputs = [_dataset(f"{row.run}/{value.name}", type=value.type, bytes=value.bytes) for value in row.results]
    outputs += [
        {"namespace": _FILES, "name": f"{row.run}/{file.path}", "facets": {"gpuReleaseFile": _facet(bytes=file.bytes)}}
        for file in row.files
    ]
    job = {"sourceCode": _facet(language="python", sourceCode=facts.code)} if facts.code else {}
    state = _EVENTS.get(row.state, "RUNNING")
    at_s = row.finished_at or row.running_at or row.submitted_at
    facets, named = _run_facets(row, facts), _job(row.notebook, row.name, job)
    return _event(state, at_s, row.run, facets, named, [*inputs, *files], outputs)


def _file_dataset(file: TrackedFile) -> dict[str, Any]:
    facets = {"version": _facet(datasetVersion=file.digest)}
    facets["gpuReleaseFile"] = _facet(bytes=file.bytes, mtimeNs=file.mtime_ns)
    return {"namespace": _FILES, "name": file.path, "facets": facets}


def _run_facets(row: RunRow, facts: RunFacts) -> dict[str, Any]:
    environment = facts.environment
    facets = {
        "nominalTime": _facet(nominalStartTime=_time(row.running_at or row.submitted_at)),
        "processing_engine": _facet(name="jupyter_gpu_release", version=facts.versions.get("jupyter_gpu_release", "")),
        "gpuReleaseEnvironment": _facet(
            python=environment.python,
            platform=environment.platform,
            image=environment.image,
            packages=environment.packages,
            digest=environment.digest,
            hosts=row.hosts,
        ),
        "gpuReleaseGpus": _facet(
            gpus=row.gpus,
            name=row.gpu_name,
            ids=row.gpu_ids,
            simulated=row.simulated,
            heldS=row.held_s,
            queuedS=row.queued_s,
            releaseMs=row.release_ms,
        ),
    }
    if row.error is not None:
        facets["errorMessage"] = _facet(message=f"{row.error.ename}: {row.error.evalue}", programmingLanguage="python")
    return facets


def _brief(run: RunSummary, lineage: Lineage) -> dict[str, Any]:
    inputs = [_dataset(f"{link.source}/{link.name}") for link in lineage.links if link.run == run.run]
    outputs = {f"{run.run}/{link.name}": None for link in lineage.links if link.source == run.run}
    state = _EVENTS.get(run.state, "OTHER" if not run.is_known else "RUNNING")
    job = _job(run.notebook, run.name, {})
    return _event(state, run.submitted_at, run.run, {}, job, inputs, [_dataset(name) for name in outputs])


def _event(
    state: str,
    at_s: float,
    run: str,
    facets: dict[str, Any],
    job: dict[str, Any],
    inputs: list[Any],
    outputs: list[Any],
) -> dict[str, Any]:
    return {
        "eventType": state,
        "eventTime": _time(at_s),
        "producer": _PRODUCER,
        "schemaURL": _SCHEMA,
        "run": {"runId": run, "facets": facets},
        "job": job,
        "inputs": inputs,
        "outputs": outputs,
    }


def _job(notebook: str, name: str, facets: dict[str, Any]) -> dict[str, Any]:
    return {"namespace": notebook or "notebook", "name": name or "cell", "facets": facets}


def _name_of_input(name: str, source: str, run: str) -> str:
    return f"{source}/{name}" if source else f"{run}/in/{name}"


def _dataset(name: str, **facts: Any) -> dict[str, Any]:
    facets: dict[str, Any] = {"gpuReleaseValue": _facet(**facts)} if facts else {}
    if facts.get("digest"):
        facets["version"] = _facet(datasetVersion=facts["digest"])
    return {"namespace": _VALUES, "name": name, "facets": facets}


def _facet(**facts: Any) -> dict[str, Any]:
    return {"_producer": _PRODUCER, "_schemaURL": f"{_PRODUCER}#facet", **facts}


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


_MOST_LISTED = 12
_DIGEST_LETTERS = 20
#: generations that are drawn; ``--json`` has all that the gateway tells
_DEPTH = 6


def print_lineage(console: Console, row: RunRow, lineage: Lineage) -> None:
    """Code, inputs, files, environment; then the runs above and below."""
    facts, environment = lineage.facts, lineage.facts.environment
    if facts.code.strip():
        console.print(Text("\ncode", style="dim"))
        console.print(Text("\n".join(f"  {line}" for line in facts.code.strip("\n").splitlines())))
    sections = {
        "inputs": [_input(used.name, used.type, used.bytes, used.run, used.digest) for used in facts.used],
        "read": [_file(file) for file in lineage.tracked],
        "packages": [", ".join(f"{name} {_short(version)}" for name, version in environment.packages.items())],
        "where": [
            " · ".join(
                filter(
                    None,
                    (
                        f"Python {environment.python}" if environment.python else "",
                        environment.platform,
                        environment.image,
                        f"environment {environment.digest[:12]}" if environment.digest else "",
                    ),
                )
            )
        ],
    }
    for title, lines in sections.items():
        _print_section(console, title, [line for line in lines if line])
    known = {run.run: run for run in lineage.runs}
    for title, up in (("made from", True), ("made from it", False)):
        tree = Tree(Text(title, style="dim"), guide_style="dim")
        _grow(tree, row.run, lineage, known, up=up, path=(row.run,))
        if tree.children:
            console.print()
            console.print(tree)
    _print_reuse(console, lineage)


def _print_section(console: Console, title: str, lines: list[str]) -> None:
    if not lines:
        return
    console.print(Text(f"\n{title}", style="dim"))
    for line in lines[:_MOST_LISTED]:
        console.print(Text(f"  {line}"))
    if len(lines) > _MOST_LISTED:
        console.print(Text(f"  and {len(lines) - _MOST_LISTED} more"))


def _print_reuse(console: Console, lineage: Lineage) -> None:
    if lineage.is_reusable or lineage.reused:
        times = f"used again {lineage.reused} times" if lineage.reused != 1 else "used again once"
        console.print(Text(f"\n--cache: {times if lineage.reused else 'its results may be used again'}", style="dim"))
    if lineage.cut:
        console.print(Text("There are more runs than are shown here.", style="dim"))


def _grow(
    tree: Tree, run: str, lineage: Lineage, known: dict[str, RunSummary], *, up: bool, path: tuple[str, ...]
) -> None:
    """Add the runs next to ``run``; one that is on the way here already is not followed again."""
    names: dict[str, list[str]] = {}
    for link in lineage.links:
        here, other = (link.run, link.source) if up else (link.source, link.run)
        if here == run:
            names.setdefault(other, []).append(link.name)
    for other, through in names.items():
        branch = tree.add(_label(known.get(other, RunSummary(other, is_known=False)), through))
        if other in path:
            continue
        if len(path) >= _DEPTH:
            branch.add(Text("…", style="dim"))
        else:
            _grow(branch, other, lineage, known, up=up, path=(*path, other))


def _label(run: RunSummary, through: Iterable[str]) -> Text:
    names = ", ".join(sorted(through))
    if not run.is_known:
        return Text.assemble(run.run, f"  {names}  ", ("not known here", "dim"))
    what = " · ".join(filter(None, (run.name or run.notebook, run.state, _when(run.submitted_at))))
    return Text.assemble(run.run, f"  {names}  ", (what, "dim"))


def _when(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s)) if at_s else ""


def _input(name: str, kind: str, size: int, run: str, digest: str) -> str:
    source = f" from run {run}" if run else ""
    return f"{name} ({kind}, {format_bytes(size)}){source} {_short(digest)}".rstrip()


def _file(file: TrackedFile) -> str:
    return f"{file.path} ({format_bytes(file.bytes)}) {_short(file.digest) or 'changed meanwhile'}"


def _short(digest: str) -> str:
    return f"{digest[:_DIGEST_LETTERS]}…" if len(digest) > 2 * _DIGEST_LETTERS else digest
