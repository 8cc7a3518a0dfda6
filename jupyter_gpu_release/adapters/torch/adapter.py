"""The adapter of torch."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ..adapter import Adapter, GroupState, Reducer
from ..memory import Layout, Place
from . import devices, distributed, operators, process_group, settings


def _is_tensor(thing: Any) -> bool:
    return isinstance(thing, getattr(sys.modules["torch"], "Tensor", ()))


def _whole() -> Any:
    """The library; None while it is half imported."""
    torch = sys.modules["torch"]
    return torch if hasattr(torch, "set_rng_state") and hasattr(torch, "cuda") else None


class TorchAdapter(Adapter):
    """Tensors and modules, devices, random numbers, settings."""

    name = "torch"
    gives_values = True
    can_use_gpu = True
    carried_calls = (
        "register_pytree_node",
        "register_dataclass",
        "register_fake",
        "register_autograd",
        "register_vmap",
        "register_kernel",
        "register_parametrization",
        *settings.CALLS,
    )
    settings = settings.ALL

    def _of(self, part: str) -> Any:
        """A module here that needs torch."""
        return importlib.import_module(f".{part}", __package__)

    def reducer_for(self, kind: type) -> Reducer | None:
        return operators.reducer_for(kind) or distributed.reducer_for(kind) or self._of("tensors").reducer_for(kind)

    def has_rows(self, kind: type) -> bool:
        return kind.__name__ == "Tensor"

    def gives_the_same(self, kind: type) -> bool:
        return any(base.__module__.startswith("torch.utils.data.") for base in kind.__mro__)

    def is_refused(self, value: Any) -> bool:
        return distributed.is_flat(value)

    # ------------------------------------------------------------------------------- memory and identity
    def class_of(self, thing: Any) -> type | None:
        """A module whose parameters are parametrized gets a class of its own."""
        kind = type(thing)
        is_parametrized = kind.__module__ == "torch.nn.utils.parametrize" and "__getstate__" in vars(kind)
        return kind.__base__ if is_parametrized else None

    def update_in_place(self, old: Any, new: Any) -> bool | None:
        if operators.reducer_for(type(old)) is not None:  # the dispatcher calls the new one by now
            return False
        return self._of("memory").update(old, new) if _is_tensor(old) else None

    def take_remarks(self) -> list[str]:
        return self._of("memory").take_remarks()  # type: ignore[no-any-return]

    def registration_of(self, cls: type) -> Any:
        return getattr(sys.modules.get("torch.utils._pytree"), "SUPPORTED_NODES", {}).get(cls)

    def register_class(self, cls: type, registration: Any) -> None:
        pytree = sys.modules["torch.utils._pytree"]
        if cls not in pytree.SUPPORTED_NODES:
            _, flatten, unflatten, flatten_with_keys, *_ = registration
            pytree.register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=flatten_with_keys)

    def extensions(self) -> Iterable[tuple[Any, str, Any]]:
        return [(sys.modules["torch.ops"], name, operator) for name, operator in operators.made_here()]

    def can_change(self, kind: type) -> bool | None:
        return issubclass(kind, getattr(sys.modules["torch"], "Tensor", ())) or None

    def stands_alone(self, thing: Any) -> bool:
        """A view of memory that is not dense could not be found in it."""
        if not _is_tensor(thing):
            return True
        layout = self.layout_of(thing)
        return layout is not None and layout.is_dense

    def has_usual_state(self, method: Any) -> bool:
        return getattr(method, "__module__", "") == "torch.nn.modules.module"

    def items_of(self, thing: Any) -> Any:
        """The tensors of TorchScript lie in a C++ object, and may be those of the model that was traced."""
        is_script = type(thing).__module__ == "torch.jit._script" and hasattr(thing, "parameters")
        return [*thing.parameters(), *thing.buffers()] if is_script else None

    def named_parts(self, thing: Any) -> dict[str, Any]:
        return {"grad": thing.grad} if _is_tensor(thing) and thing.is_leaf else {}

    def nbytes_of(self, value: Any) -> int | None:
        return value.nbytes if _is_tensor(value) else None

    def shape_of(self, value: Any) -> tuple[int, ...] | None:
        return getattr(value, "shape", None)

    def layout_of(self, thing: Any) -> Layout | None:
        return self._of("memory").layout_of(thing) if _is_tensor(thing) else None

    def kind_of_view(self, view: Any) -> tuple[type | None, bool]:
        return type(view), bool(view.requires_grad)

    def bytes_of(self, thing: Any, *, to_write: bool) -> tuple[int, Any] | None:
        from . import memory

        return memory.bytes_of(thing)

    def view_at(self, live: Any, place: Place, address: int, strides: tuple[int, ...]) -> Any:
        return self._of("memory").view_at(live, place, address, strides)

    def replaced_memory(self, old: Any, new: Any) -> dict[Any, Any]:
        return self._of("memory").replaced_memory(old, new) if _is_tensor(old) else {}

    def over_new_memory(self, thing: Any, replaced: Mapping[Any, Any]) -> Any:
        if _is_tensor(thing) and type(thing).__name__ in ("Tensor", "Parameter"):
            self._of("memory").look_at_new_memory(thing, replaced)
        return thing

    def reduce_array_over(self, pickler: Any, array: Any, owner: Any) -> Any:
        is_here = _is_tensor(owner) and owner.device.type == "cpu"
        return self._of("tensors").reduce_over_tensor(pickler, array, owner) if is_here else None

    def array_over_new_memory(self, array: Any, owner: Any, replaced: Mapping[Any, Any]) -> Any:
        is_here = _is_tensor(owner) and owner.device.type == "cpu"
        return self._of("memory").array_over_new_memory(array, owner, replaced) if is_here else None

    def fill_view(self, old: Any, new: Any) -> bool:
        return type(old).__name__ == "Tensor" and _is_tensor(old) and self._of("memory").fill_view(old, new)

    def writing_rank(self, value: Any) -> int | None:
        is_tensor = type(value).__name__ == "Tensor" and _is_tensor(value)
        return 2 if is_tensor and self._of("memory").is_partial_view(value) else 1

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

    def limit_gpu_memory(self, share: float) -> None:
        if (torch := _whole()) is not None:  # once it opens the GPU: opening it takes a second, and memory
            torch.cuda._lazy_call(lambda: torch.cuda.set_per_process_memory_fraction(share))

    def says_memory_is_out(self, error: str) -> bool:
        return "CUDA out of memory" in error

    def lacks_gpu(self, error: str) -> bool:
        return any(words in error for words in devices.NO_GPU)

    def follow_placement(self, value: Any, device: str) -> None:
        devices.follow_placement(value, device)

    def compute_a_little(self) -> None:
        import torch

        weight = torch.ones(256, 256, requires_grad=True)
        (weight @ weight).sum().backward()
        assert weight.grad is not None

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

    def has_group(self) -> bool:
        return process_group.is_there()

    def group_facts(self, ranks: int) -> dict[str, Any]:
        return process_group.capture(ranks)

    def restore_group(self, made: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
        return process_group.restore(made, rank, ranks)

    def why_of_this_size(self, names: Mapping[str, Any], ranks: int) -> str:
        return process_group.why_of_this_size(names, ranks)

    def resize_samplers(self) -> None:
        process_group.resize_samplers()

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
            sys.modules["torch"].rand(1, device="cpu")

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
