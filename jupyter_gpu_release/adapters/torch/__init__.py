"""torch: tensors and modules, what is spread over the ranks of a gang, devices, random numbers, settings."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from ..adapter import Adapter, GroupState, Reducer
from . import devices, distributed, settings


def _whole() -> Any:
    """The library; None while it is half imported."""
    torch = sys.modules["torch"]
    return torch if hasattr(torch, "set_rng_state") and hasattr(torch, "cuda") else None


class TorchAdapter(Adapter):
    """What torch makes."""

    name = "torch"
    can_use_gpu = True
    settings = settings.ALL

    def reducer_for(self, kind: type) -> Reducer | None:
        from . import tensors

        return distributed.reducer_for(kind) or tensors.reducer_for(kind)

    def is_refused(self, value: Any) -> bool:
        return distributed.is_flat(value)

    # ------------------------------------------------------------------------------- devices and threads
    def has_touched_gpu(self) -> bool:
        return devices.has_touched_gpu()

    def is_busy(self) -> bool:
        return devices.is_busy()

    def chosen_device(self, value: Any) -> str | None:
        return str(value) if type(value) is sys.modules["torch"].device else None

    def untouched_reason(self, namespace: dict[str, Any]) -> str:
        return devices.untouched_reason(namespace)

    def hints(self, error: str, ranks: int, gpus: int) -> list[str]:
        if ranks > 1 or "environment variable RANK expected" not in error:
            return []
        wanted = max(gpus, 2)
        text = "init_process_group() is for several processes, and this cell ran as one"
        way = f"--gpus {wanted} --ranks {wanted} runs it as {wanted}, with RANK, WORLD_SIZE and MASTER_ADDR set"
        return [f"{text}: {way}" + (" (--ranks 1 sets them for one)" if gpus < 2 else "")]

    def follow_placement(self, value: Any, device: str) -> None:
        devices.follow_placement(value, device)

    def set_thread_count(self, count: int) -> None:
        if (torch := _whole()) is not None:
            torch.set_num_threads(count)

    def samples(self) -> dict[str, Any]:
        if (torch := _whole()) is None:
            return {}
        weight = torch.nn.Parameter(torch.empty(2, 2))
        module = torch.nn.ParameterList([weight])
        return {"tensor": torch.empty(256), "weight": weight, "module": module, "where": torch.device("cpu")}

    # ------------------------------------------------------------------------------- gangs and saves
    def is_sharded(self, value: Any) -> bool:
        return distributed.holds_shards(value)

    def unwrapped(self, value: Any) -> Any:
        return distributed.unwrap_replica(value)

    def join_again(self, group: GroupState) -> None:
        distributed.join_again(group)

    def why_not_now(self) -> str:
        if not distributed.has_own_gradients():
            return ""
        return "its ranks have gradients that are not put together yet (set_requires_gradient_sync)"

    def remembers_computation(self, value: Any) -> bool:
        return getattr(value, "grad_fn", None) is not None

    # ------------------------------------------------------------------------------- random numbers
    def random_state(self) -> Any:
        torch = _whole()
        return None if torch is None else bytes(torch.get_rng_state().numpy().data)

    def set_random_state(self, state: Any) -> bool:
        torch = _whole()
        if torch is None:
            return False
        torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
        return True

    def seed_afresh(self) -> None:
        sys.modules["torch"].default_generator.seed()

    def seed_devices(self) -> None:
        """From torch's CPU generator: its seed when it is fresh from ``manual_seed``, else from its state."""
        if (torch := _whole()) is None:
            return
        state, seed = torch.get_rng_state(), torch.initial_seed()
        if not torch.equal(state, torch.Generator().manual_seed(seed).get_state()):
            seed = int.from_bytes(hashlib.blake2b(bytes(state.numpy().data), digest_size=7).digest(), "big")
        torch.cuda.manual_seed_all(seed)

    def step_after_devices(self) -> None:
        if devices.has_touched_gpu():
            sys.modules["torch"].rand(1)

    def device_random_state(self) -> Any:
        if not devices.has_touched_gpu():
            return None
        return [bytes(state.numpy().data) for state in sys.modules["torch"].cuda.get_rng_state_all()]

    def set_device_random_state(self, state: Any) -> None:
        torch = sys.modules["torch"]
        if torch.cuda.is_available():
            for device, each in enumerate(state[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(torch.frombuffer(bytearray(each), dtype=torch.uint8), device)

    def generator_state(self, generator: Any) -> Any:
        return generator.get_state() if isinstance(generator, sys.modules["torch"].Generator) else None

    def set_generator_state(self, generator: Any, state: Any) -> None:
        generator.set_state(state)


ADAPTER = TorchAdapter()
