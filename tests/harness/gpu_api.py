"""Plays the server extension's routes and events in the browser, for states that a test machine cannot have."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from playwright.sync_api import Page, Route, WebSocketRoute

GIB = 1 << 30
Document = dict[str, Any]


def gpu(index: int, state: str = "free", **more: Any) -> Document:
    """One GPU of 80 GiB."""
    used = {"free": 0, "drained": 0}.get(state, 31 * GIB)
    return {
        "index": str(index),
        "uuid": f"GPU-{index:08x}-0c51-4ee2",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 80 * GIB,
        "used_bytes": used,
        "utilization": 0.0,
        "state": state,
        "user": None,
        "run": None,
        **more,
    }


def run(number: int, state: str = "succeeded", **more: Any) -> Document:
    """One of my runs, submitted ``number`` quarters of an hour ago."""
    at = time.time() - 900 * number - 130
    ended = state in ("succeeded", "failed", "cancelled", "lost")
    waits = state in ("queued", "submitted")
    return {
        "run": f"20261121-03{number:02d}12-9f3a12b{number % 10}",
        "user": "ada",
        "state": state,
        "gpus": 1,
        "ranks": 1,
        "name": "",
        "notebook": "/home/ada/digits.ipynb",
        "cell": f"cell-{number}",
        "queue": "default",
        "priority": "normal",
        "simulated": False,
        "submitted_at": at,
        "granted_at": None if waits else at + 2,
        "running_at": None if waits else at + 2.1,
        "gone_at": at + 130 if ended else None,
        "finished_at": at + 131 if ended else None,
        "queued_s": 75.0 if waits else 2.0,
        "held_s": 0.0 if waits else 128.0,
        "release_ms": 31.0 if ended else None,
        "position": None,
        "reason": "",
        "hosts": ["gpu-01"],
        "gpu_ids": ["0"],
        "gpu_name": "NVIDIA H100 80GB HBM3",
        "results": [],
        "files": [],
        "error": None,
        "notes": [],
        **more,
    }


def page(row: Document, **more: Any) -> Document:
    """``GET runs/<id>``: all of one run."""
    began = row["granted_at"]
    return {
        "schema_version": 1,
        "now": time.time(),
        "run": row,
        "mine": True,
        "code": "",
        "options": {"gpus": "1"},
        "started_at": began,
        "ended_at": row["gone_at"] and row["gone_at"] - 0.03,
        "gpu_use": None,
        "inputs": [],
        "tracked": [],
        "runs": [],
        "links": [],
        "reused": 0,
        "files": [],
        "environment": {"python": "3.11.7"},
        "is_cluster_known": True,
        "trials": [],
        **more,
    }


def active(row: Document, **more: Any) -> Document:
    """The row of ``status`` for a run that goes on."""
    names = ("run", "user", "state", "gpus", "notebook", "queued_s", "held_s", "name", "cell")
    return {**{name: row[name] for name in names}, "since_s": row.get("since_s"), **more}


def waiting(position: int, user: str, **more: Any) -> Document:
    """A place in the queue, with the words of ``scheduling.actions``."""
    return {
        "run": f"20261121-0350{position % 60:02d}-{position:08x}",
        "user": user,
        "queue": "default",
        "priority": "normal",
        "gpus": 2,
        "position": position,
        "reason": "needs 2 GPUs, 1 of 8 is free",
        "start_estimate_s": None,
        **more,
    }


def status(nodes: list[Document], queue: list[Document], runs: list[Document], **more: Any) -> Document:
    """``GET status`` of a cluster that answers; its counts follow from the GPUs."""
    gpus = [gpu for node in nodes for gpu in node["gpus"]]
    free = sum(gpu["state"] == "free" for gpu in gpus)
    counts = {"total": len(gpus), "held": len(gpus) - free, "free": free, "external": 0}
    cluster = {
        "schema_version": 1,
        "simulated": False,
        "nodes": nodes,
        "queue": queue,
        "runs": runs,
        "gpus": counts,
        "user": "ada",
        "role": "user",
        "gateway": {"url": "https://gpu.example.org:8765", "version": "0.1.0", "up": True},
    }
    gateway = {"state": "connected", "url": "https://gpu.example.org:8765"}
    answer = {"schema_version": 1, "version": "0.1.0", "gateway": gateway, "cluster": cluster, "gpus": []}
    return {**answer, "problems": [], **more}


def node(name: str, *gpus: Document, **more: Any) -> Document:
    """A node with its GPUs."""
    return {"id": name, "host": name, "gpus": list(gpus), "up": True, "notes": [], **more}


class GpuApi:
    """Answers the panel's questions with ``status``, ``runs`` and ``kernels``; keeps what was asked of it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        #: how often the status was asked for
        self.asked = 0
        self.clear()
        self._sockets: list[WebSocketRoute] = []
        page.route("**/jupyter-gpu-release/api/**", self._answer)
        page.route_web_socket(re.compile(r".*/jupyter-gpu-release/api/runs/.*/output.*"), self._tell)
        page.route_web_socket(re.compile(r".*/api/events/subscribe.*"), lambda socket: self._sockets.append(socket))

    def clear(self) -> None:
        """Answer for a cluster without nodes; forget what was asked."""
        self.status: Document | int = status([], [], [])
        self.runs: list[Document] = []
        self.kernels: list[Document] = []
        #: of runs: their page, and what the socket of their output says
        self.pages: dict[str, Document] = {}
        self.outputs: dict[str, list[Document]] = {}
        #: the posts, as ``(path below api/, body)``
        self.posts: list[tuple[str, Any]] = []
        #: answers of other routes
        self.documents: dict[str, Document] = {}
        #: answers to posts by the path's last word: a document, or a status and a document
        self.answers: dict[str, tuple[int, Document]] = {}
        #: routes that the real server answers
        self.passes: set[str] = set()

    def emit(self, schema: str, **data: Any) -> None:
        """Send an event to the page, once it has its line for events."""
        while not self._sockets:
            self.page.wait_for_timeout(20)
        schema_id = f"https://schema.jupyter-gpu-release.org/{schema}"
        for socket in self._sockets:
            socket.send(json.dumps({"schema_id": schema_id, "schema_version": "1", **data}))

    def _answer(self, route: Route) -> None:
        path = route.request.url.split("/jupyter-gpu-release/api/")[1].split("?")[0]
        if path in self.passes:
            route.continue_()
            return
        if route.request.method == "POST":
            self.posts.append((path, route.request.post_data_json))
            code, body = self.answers.get(path.rsplit("/", 1)[-1], (200, {}))
            route.fulfill(status=code, json=body)
            return
        self.asked += path == "status"
        if isinstance(self.status, int):
            route.fulfill(status=self.status, json={"message": "no"})
            return
        local = {"schema_version": 1, "gpus": [], "kernels": self.kernels, "problems": []}
        runs = {"schema_version": 1, "runs": self.runs}
        if path.startswith("runs/"):
            page = self.pages.get(path.split("/")[1])
            route.fulfill(status=200 if page else 404, json=page or {"message": "there is no such run"})
            return
        documents = {"status": self.status, "runs": runs, "kernels": local, "cells": {"cells": []}, **self.documents}
        found = documents.get(path)  # the test before may have asked
        route.fulfill(status=404 if found is None else 200, json=found or {"message": "there is no such route"})

    def _tell(self, socket: WebSocketRoute) -> None:
        run = socket.url.split("/runs/")[1].split("/")[0]
        for message in self.outputs.get(run, [{"gone": f"run {run} is not known here"}]):
            socket.send(json.dumps(message))
