"""Scenes for the sidebar: what a team's cluster looks like on a busy day, and clusters that are not there."""

from __future__ import annotations

import math
import time

from gpu_api import GIB, Document, GpuApi, active, gpu, node, page, run, status, waiting


def busy_day(api: GpuApi) -> None:
    """Two nodes with every state of a GPU, a queue, and my runs in every state."""
    mine = run(0, "running", held_s=128.0, name="ResNet, 40 epochs")
    second_place = "2nd in the queue: what is free is kept for lin's run ahead of it, which would start later"
    queued = run(1, "queued", position=2, reason=second_place, gpus=2, notebook="/home/ada/llm.ipynb")
    done = run(
        2,
        results=[{"name": "model", "type": "DigitNet", "bytes": 431_000}, {"name": "history", "type": "list"}],
        files=[{"path": "run_dir/best.pt", "bytes": 430_112}],
    )
    error = {"ename": "OutOfMemoryError", "evalue": "CUDA out of memory. Tried to allocate 2.00 GiB", "mend": ""}
    failed = run(3, "failed", error=error, notebook="/home/ada/diffusion.ipynb")
    other = {**active(mine), "run": "20261121-031112-00000001", "user": "grace", "held_s": 7300.0, "notebook": ""}
    first = node(
        "gpu-01",
        gpu(0, "running", user="ada", run=mine["run"], utilization=0.87, used_bytes=12 * GIB),
        gpu(1, "running", user="grace", run=other["run"], utilization=0.64, used_bytes=71 * GIB),
        gpu(
            2,
            "warm",
            user="ada",
            run=done["run"],
            lease="lease-7",
            warm_until=time.time() + 245,
            notebook="/home/ada/digits.ipynb",
            used_bytes=2 * GIB,
        ),
        gpu(3),
    )
    second = node(
        "gpu-02",
        gpu(0, "idle-kernel", uuid="GPU-local", used_bytes=21 * GIB),
        gpu(1, "unattributed"),
        gpu(2, "drained"),
        gpu(3),
    )
    queue = [
        waiting(1, "lin", gpus=4, reason="next in the queue: needs 4 GPUs, 2 of 8 are free", start_estimate_s=720.0),
        waiting(2, "ada", run=queued["run"], reason=second_place, start_estimate_s=1500.0),
        waiting(3, "grace", reason=second_place.replace("2nd", "3rd")),
    ]
    live = [active(mine, progress="Epoch 17/40  loss 0.213  acc 0.941"), active(queued), other]
    hours = {"held_s": 8100.0, "used_s": 7560.0, "saved_s": 39_600.0, "others_s": 25_200.0}
    week = {"held_s": 61_000.0, "used_s": 55_100.0, "saved_s": 248_000.0, "others_s": 151_000.0}
    usage = {"today": hours, "week": week, "days": _days(), "stored_bytes": 11 * GIB}
    api.status = status([first, second], queue, live, gpus=LOCAL, usage=usage, choices={"environments": ["vision"]})
    api.runs = [mine, queued, done, failed]
    api.kernels = [KERNEL]


def _days() -> list[Document]:
    """Seven days of a team with eight GPUs, the last one half over."""
    day_s, gpus = 86_400.0, 8
    midnight = time.time() // day_s * day_s
    shares = (0.31, 0.44, 0.52, 0.38, 0.07, 0.04, 0.29)
    return [
        {
            "since": midnight - day_s * (6 - number),
            "capacity_s": gpus * day_s * (0.5 if number == 6 else 1),
            "all": {"held_s": gpus * day_s * share, "used_s": gpus * day_s * share * 0.86},
            "own": {"held_s": gpus * day_s * share * 0.2},
        }
        for number, share in enumerate(shares)
    ]


def administrators_day(api: GpuApi) -> None:
    """The busy day as an administrator sees it: everybody's week."""
    busy_day(api)
    assert not isinstance(api.status, int)
    api.status["cluster"]["role"] = "admin"
    names = ("grace", "ada", "lin", "katherine.johnson@example.org", "mary", "dorothy", "annie", "joan", "radia", "eve")
    api.status["usage"]["users"] = {
        name: {"held_s": 300_000.0 / (1 + place), "used_s": 250_000.0 / (1 + place), "saved_s": 90_000.0 * place}
        for place, name in enumerate(names)
    }


def run_page(api: GpuApi) -> str:
    """The page of a run that is over, with everything that a page can have; returns the run's id."""
    busy_day(api)
    earlier, later = run(5, name="Load CIFAR-10"), run(6, name="Evaluate")
    results = [{"name": "model", "type": "ResNet", "bytes": 44 << 20}, {"name": "history", "type": "list", "bytes": 96}]
    row = run(0, name="ResNet, 40 epochs", gpus=2, results=results, release_ms=31.0, finished_at=time.time())
    busy = [0, 4, 35, *(round(86 + 9 * math.sin(step / 3)) for step in range(70)), None, None, 60, 3]
    memory = [1, 8, *(min(61, 20 + 3 * step) for step in range(71)), None, None, 61, 60]
    use = {
        "mean_utilization": 0.81,
        "peak_utilization": 0.97,
        "peak_memory_bytes": 49 * GIB,
        "span_s": 1.66,
        "total_memory_bytes": 80 * GIB,
        "utilization": busy,
        "memory": memory,
        "since": row["granted_at"],
    }
    api.pages[row["run"]] = page(
        row,
        code=_CODE,
        gpu_use=use,
        options={"gpus": "2", "gpu-type": "h100", "timeout": "1 h", "detach": ""},
        inputs=[
            {"name": "train", "type": "TensorDataset", "bytes": 588 << 20, "run": earlier["run"]},
            {"name": "epochs", "type": "int", "bytes": 5},
        ],
        tracked=[{"path": "data/cifar10/train.parquet", "bytes": 163 << 20}],
        runs=[{"run": each["run"], "state": each["state"], "name": each["name"]} for each in (earlier, later, row)],
        links=[
            {"run": row["run"], "name": "train", "source": earlier["run"]},
            {"run": later["run"], "name": "model", "source": row["run"]},
        ],
        reused=2,
        files=[{"path": "best.pt", "bytes": 44 << 20}, {"path": "logs/events.out.tfevents", "bytes": 96_000}],
    )
    lines = "".join(f"Epoch {n}/40  loss {1 / n:.3f}  acc {1 - 0.6 / n:.3f}\n" for n in range(1, 41))
    receipt = (
        "✓ 2 × H100 80GB · queued 2.0 s · held 2 min 8 s · free 31 ms after the last statement · back: model, history"
    )
    output: list[Document] = [
        {"output_type": "stream", "name": "stdout", "text": lines},
        {"output_type": "display_data", "data": {"text/plain": receipt}, "metadata": {}},
    ]
    api.outputs[row["run"]] = [{"changes": [{"op": "add", "output": each} for each in output], "mine": True}]
    return str(row["run"])


def sweep_page(api: GpuApi) -> str:
    """The page of a sweep that goes on; returns its id."""
    busy_day(api)
    sweep = "20261121-040000-5eeb5eeb"
    ends = ("succeeded",) * 5 + ("failed", "cancelled") + ("succeeded",) * 4 + ("running", "running", "queued")
    trials = []
    for number, state in enumerate(ends):
        rate, width = round(0.1 * 0.7**number, 6), (64, 128, 256)[number % 3]
        metric = {"val_acc": round(0.93 - 0.4 * abs(number - 7) / 9, 6)} if state == "succeeded" else {}
        title = f"fit {number}(lr={rate}, width={width}, optimizer='adamw')"
        named = {"name": f"fit {number}", "title": title, "sweep": sweep, "metric": metric, "run": f"trial-{number}"}
        trials.append(run(0, state, price="" if state == "queued" else "0.09 EUR", **named))
    told = {"name": "fit", "title": "fit: 9 succeeded, 2 running, 1 failed, 1 cancelled, 1 queued", "sweep": sweep}
    row = run(0, "running", gpus=2, held_s=128.0 * 13, run=sweep, detached=True, **told)
    api.pages[sweep] = page(row, code=_CODE, trials=trials, options={"priority": "low", "restartable": ""})
    return sweep


_CODE = """import torch

model = ResNet(depth=18).cuda()
for epoch in range(epochs):  # 40 of them
    loss = train_one(model, train, lr=0.1 * 0.97**epoch)
    print(f"Epoch {epoch + 1}/{epochs}  loss {loss:.3f}")
    history.append(loss)
"""


LOCAL: list[Document] = [
    {
        "index": 0,
        "uuid": "GPU-local",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 80 * GIB,
        "used_bytes": 21 * GIB,
        "utilization": 0.0,
        "unattributed_bytes": 0,
        "temperature_c": 41.0,
    }
]
KERNEL: Document = {
    "id": "k-1",
    "name": "python3",
    "path": "explore.ipynb",
    "connections": 1,
    "used_bytes": 21 * GIB,
    "busy": False,
    "gpus": [{"index": 0, "uuid": "GPU-local", "used_bytes": 21 * GIB, "pids": [1]}],
    "why": "",
    "idle_s": 2520.0,
    "decision": "release",
    "reason": "idle",
    "due_s": 180.0,
    "kept_s": None,
    "suspended": False,
}


def no_cluster(api: GpuApi) -> None:
    """Nothing is configured, nothing runs."""
    message = "no GPU cluster is configured and none runs on this machine"
    gateway = {"state": "none", "message": message, "mend": "run jupyter gpu start"}
    api.status = {**_without("none"), "gateway": gateway, "start": {"state": "possible"}}


def gateway_down(api: GpuApi) -> None:
    """The gateway does not answer: what it said last is still shown."""
    busy_day(api)
    assert not isinstance(api.status, int)
    message = "https://gpu.example.org:8765 does not answer (connection refused)"
    api.status["gateway"] = {
        "state": "unreachable",
        "url": "https://gpu.example.org:8765",
        "message": message,
        "next_try_s": 14.0,
        "age_s": 65.0,
    }


def no_gpu(api: GpuApi) -> None:
    """A cluster of CPU nodes."""
    api.status = status([node("cpu-01")], [], [])


def simulated(api: GpuApi) -> None:
    """The embedded cluster on a machine without a GPU."""
    gpus = [gpu(n, memory_bytes=0, used_bytes=0, utilization=None, name="simulated", uuid="") for n in range(4)]
    mine = run(0, "running", simulated=True)
    gpus[0].update(state="running", user="ada", run=mine["run"])
    document = status([node("laptop", *gpus)], [], [active(mine)])
    document["cluster"]["simulated"] = True
    document["gateway"]["url"] = "http://127.0.0.1:41231"
    api.status, api.runs = document, [mine, run(1), run(2)]


def between(api: GpuApi) -> None:
    """What no test looks for. The run is a stranger's, so that the list of runs is asked for anew."""
    api.clear()
    stranger = {**active(run(99, "running")), "user": "nobody"}
    api.status = status([node("between tests", gpu(0))], [], [stranger])


def crowd(api: GpuApi, *, gpus: int = 512, queued: int = 1000, second: int = 0) -> None:
    """Many nodes of eight GPUs, many who wait; ``second`` moves their use, and the queue by a place."""
    users = ("ada", "grace", "lin", "mary", "katherine")
    nodes = []
    for number in range(gpus // 8):
        own = [
            gpu(
                index,
                "running",
                user=users[(number + index) % 5],
                run=f"20261121-000000-{number:04x}{index:04x}",
                held_s=60.0 * index + second,
                utilization=((number * 7 + index * 13 + second * 3) % 100) / 100,
                used_bytes=((number + index + second) % 80) * GIB,
            )
            if (number + index + second) % 9
            else gpu(index)
            for index in range(8)
        ]
        nodes.append(node(f"gpu-{number + 1:03d}", *own))
    queue = [
        waiting(
            place + 1,
            users[(place + second) % 5],
            run=f"20261121-035000-{place + second:08x}",
            start_estimate_s=30.0 * place + 29 - second % 30,
        )
        for place in range(queued)
    ]
    api.status = status(nodes, queue, [])
    api.runs = [run(n) for n in range(30)]


def _without(state: str) -> Document:
    return {
        "schema_version": 1,
        "version": "0.1.0",
        "gateway": {"state": state},
        "cluster": None,
        "gpus": [],
        "problems": [],
    }
