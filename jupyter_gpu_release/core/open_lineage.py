"""Runs as OpenLineage run events: https://openlineage.io/docs/spec/object-model (field names of spec 2-0-2).

What a run made is the dataset ``RUN/NAME``; the run that uses it has a dataset of that name among its inputs. Where the
specification has no word, our own facets begin with ``gpuRelease``. ``runId`` is our id, which is no UUID.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from .documents import RunRow
from .ingredients import TrackedFile
from .provenance import Lineage, RunFacts, RunSummary

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
    files = [_file(file) for file in lineage.tracked]
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


def _file(file: TrackedFile) -> dict[str, Any]:
    facets = {"version": _facet(datasetVersion=file.digest)}
    facets["gpuReleaseFile"] = _facet(bytes=file.bytes, mtimeNs=file.mtime_ns)
    return {"namespace": _FILES, "name": file.path, "facets": facets}


def _run_facets(row: RunRow, facts: RunFacts) -> dict[str, Any]:
    environment = facts.environment
    facets = {
        "nominalTime": _facet(nominalStartTime=_time(row.running_at or row.submitted_at)),
        "processing_engine": _facet(name="jupyter_gpu_release", version=facts.versions.get("jupyter_gpu_release", "")),
        "gpuReleaseEnvironment": _facet(
            python=environment.python, platform=environment.platform, image=environment.image,
            packages=environment.packages, hosts=row.hosts,
        ),
        "gpuReleaseGpus": _facet(gpus=row.gpus, name=row.gpu_name, ids=row.gpu_ids, simulated=row.simulated,
                                 heldS=row.held_s, queuedS=row.queued_s, releaseMs=row.release_ms),
    }  # fmt: skip
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
        "eventType": state, "eventTime": _time(at_s), "producer": _PRODUCER, "schemaURL": _SCHEMA,
        "run": {"runId": run, "facets": facets}, "job": job, "inputs": inputs, "outputs": outputs,
    }  # fmt: skip


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
