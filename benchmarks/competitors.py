"""What people write without us, on the same cluster: ``python -m benchmarks.competitors KIND[,…] ADDRESS COUNT``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import ray


def standing_actor(count: int) -> list[float]:
    """An actor with torch that is there already, and holds its GPU whether or not anything runs."""

    @ray.remote(num_gpus=1)
    class Standing:
        def first_statement(self) -> float:
            began = time.time()
            import torch

            assert float(torch.ones(8).sum()) == 8.0
            return began

    standing = Standing.remote()
    ray.get(standing.first_statement.remote())
    found = []
    for _ in range(count):
        began = time.time()
        found.append((ray.get(standing.first_statement.remote()) - began) * 1000)
    return found


def actor_without_torch(count: int) -> list[float]:
    """A fresh actor with one GPU that imports nothing."""

    @ray.remote(num_gpus=1)
    class Bare:
        def first_statement(self) -> float:
            return time.time()

    found = []
    for _ in range(count):
        began = time.time()
        bare = Bare.remote()
        found.append((ray.get(bare.first_statement.remote()) - began) * 1000)
        ray.kill(bare)
        time.sleep(1)
    return found


def actor(count: int) -> list[float]:
    """A hand-written actor with one GPU that imports torch."""

    @ray.remote(num_gpus=1)
    class Trainer:
        def first_statement(self) -> float:
            import torch

            assert float(torch.ones(8).sum()) == 8.0
            return time.time()

    found = []
    for _ in range(count):
        began = time.time()
        trainer = Trainer.remote()
        found.append((ray.get(trainer.first_statement.remote()) - began) * 1000)
        ray.kill(trainer)
        time.sleep(1)
    return found


def short_actors(count: int) -> list[tuple[float, float]]:
    """A fresh actor with one GPU for each of many short functions, all asked for at once."""

    @ray.remote(num_gpus=1, num_cpus=0)
    class Worker:
        def work(self) -> tuple[float, float]:
            began = time.time()
            time.sleep(0.1)
            return began, time.time()

    workers = {}
    for _ in range(count):
        worker = Worker.remote()
        workers[worker.work.remote()] = worker
    spans = []
    while workers:
        (done,), _ = ray.wait(list(workers), num_returns=1)
        spans.append(ray.get(done))
        ray.kill(workers.pop(done))
    return spans


def pending_groups(count: int) -> list[tuple[float, float]]:
    """A placement group of all GPUs for each of many short functions: Ray's own queue."""
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_gpus=4, num_cpus=0, max_calls=0)
    def work() -> tuple[float, float]:
        began = time.time()
        time.sleep(0.1)
        return began, time.time()

    groups = {}
    for _ in range(count):
        group = placement_group([{"GPU": 4}])
        groups[work.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote()] = group
    spans = []
    while groups:
        (done,), _ = ray.wait(list(groups), num_returns=1)
        remove_placement_group(groups.pop(done))
        spans.append(ray.get(done))
    return spans


def ray_tune(count: int) -> list[tuple[float, float]]:
    """Ray Tune, one trial at a time, a fresh actor for each."""
    from ray import tune

    def work(_config: dict[str, float]) -> dict[str, float]:
        began = time.time()
        time.sleep(0.1)
        return {"began": began, "ended": time.time()}

    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(work, {"gpu": 1, "cpu": 0}),
            param_space={"x": tune.uniform(0.0, 1.0)},
            tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=1, reuse_actors=False),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        found = [result.metrics for result in tuner.fit()]
    return [(each["began"], each["ended"]) for each in found]


def ray_train(count: int) -> list[float]:
    """Ray Train's TorchTrainer with one worker."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    found = []
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            mark = Path(folder) / "first"

            def loop(config: dict[str, str]) -> None:
                import torch

                assert float(torch.ones(8).sum()) == 8.0
                Path(config["mark"]).write_text(str(time.time()))

            began = time.time()
            TorchTrainer(
                loop,
                train_loop_config={"mark": str(mark)},
                torch_config=TorchConfig(backend="gloo"),
                scaling_config=ScalingConfig(num_workers=1, use_gpu=True, resources_per_worker={"GPU": 1, "CPU": 0.1}),
                run_config=RunConfig(storage_path=folder, name="bench"),
            ).fit()
            found.append((float(mark.read_text()) - began) * 1000)
    return found


def ray_uv(count: int) -> list[float]:
    """A task with one GPU and five small wheels that no task had before, by Ray's own ``runtime_env``."""
    found = []
    for number in range(count):
        packages = [f"bench-{letter}==1000.{number}" for letter in "abcde"]
        options = ["--index-url", os.environ["JGR_BENCH_INDEX"]]

        @ray.remote(num_gpus=1, runtime_env={"uv": {"packages": packages, "uv_pip_install_options": options}})
        def first_statement() -> float:
            import bench_a  # noqa: F401 - it is there

            return time.time()

        began = time.time()
        found.append((ray.get(first_statement.remote()) - began) * 1000)
    return found


if __name__ == "__main__":
    names, address, count = sys.argv[1:]
    ray.init(address=address, namespace="bench", log_to_driver=False)
    kinds = (actor, actor_without_torch, standing_actor, short_actors, pending_groups, ray_train, ray_tune, ray_uv)
    found = {made.__name__: made for made in kinds}
    print(json.dumps({name: found[name](int(count)) for name in names.split(",")}))
