"""Gangs as people start them without us: ``python -m benchmarks.gang.competitors KIND ADDRESS COUNT RANKS``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path


def _first_statement(folder: str) -> None:
    import torch

    assert float(torch.ones(8).sum()) == 8.0
    (Path(folder) / f"first-{os.getpid()}").write_text(str(time.time()))


def _last(folder: str, ranks: int) -> float:
    marks = [float(mark.read_text()) for mark in Path(folder).glob("first-*")]
    if len(marks) != ranks:
        raise SystemExit(f"{len(marks)} of {ranks} ranks ran")
    return max(marks)


def ray_train(address: str, count: int, ranks: int) -> list[float]:
    """Ray Train's TorchTrainer with one worker per rank, on the same two nodes."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(address=address, namespace="bench", log_to_driver=False)
    found = []
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            began = time.time()
            TorchTrainer(
                lambda config: _first_statement(config["folder"]),
                train_loop_config={"folder": folder},
                torch_config=TorchConfig(backend="gloo"),
                scaling_config=ScalingConfig(
                    num_workers=ranks, use_gpu=True, resources_per_worker={"GPU": 1, "CPU": 0.1}
                ),
                run_config=RunConfig(storage_path=folder, name="bench"),
            ).fit()
            found.append((_last(folder, ranks) - began) * 1000)
    return found


def accelerate(_address: str, count: int, ranks: int) -> list[float]:
    """``notebook_launcher``: forks this interpreter, so what is imported here is imported there."""
    from accelerate import notebook_launcher

    found = []
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            began = time.time()
            port = str(29500 + number)
            notebook_launcher(_first_statement, (folder,), num_processes=ranks, use_port=port)
            found.append((_last(folder, ranks) - began) * 1000)
    return found


if __name__ == "__main__":
    kind, address, count, ranks = sys.argv[1:]
    print(json.dumps({"ray_train": ray_train, "accelerate": accelerate}[kind](address, int(count), int(ranks))))
