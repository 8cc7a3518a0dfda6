"""TensorFlow: compiled functions, as the function that they were made from, and its random generator."""

from __future__ import annotations

import sys
from typing import Any

from .. import streams
from .adapter import Adapter, Reducer


def _context() -> Any:
    """The context, where operations get their seeds from; None: that part is not loaded."""
    module = sys.modules.get("tensorflow.python.eager.context")
    return module.context() if module is not None else None


class TensorflowAdapter(Adapter):
    """Functions, the usual strategy, random numbers."""

    name = "tensorflow"
    can_use_gpu = True

    def limit_gpu_memory(self, share: float) -> None:
        context = _context()
        if context is None:
            return
        if context._context_handle is not None:
            raise RuntimeError("it has opened its devices already")
        from tensorflow.core.protobuf import config_pb2

        # a limit by virtual devices would forbid the cell's own `set_memory_growth`
        options = config_pb2.GPUOptions(per_process_gpu_memory_fraction=share)
        context._config = config_pb2.ConfigProto(gpu_options=options)

    def says_memory_is_out(self, error: str) -> bool:
        return "OOM when allocating" in error or "ResourceExhaustedError" in error

    def random_state(self) -> Any:
        context = _context()  # without a seed its operations draw from the system
        return None if context is None or context._seed is None else (context._seed, context._rng.getstate())

    def set_random_state(self, state: Any) -> bool:
        context = _context()
        if context is None:
            return False
        seed, drawn = state
        context._set_global_seed(seed)
        context._rng.setstate(drawn)
        return True

    def stands_alone(self, thing: Any) -> bool:
        return False

    def reducer_for(self, kind: type) -> Reducer | None:
        module = sys.modules.get("tensorflow.python.eager.polymorphic_function.polymorphic_function")
        if module is not None and kind is module.Function:
            return reduce_function
        strategies = sys.modules.get("tensorflow.python.distribute.distribute_lib")
        usual = getattr(strategies, "_DefaultDistributionStrategy", None)
        return reduce_strategy if usual is not None and issubclass(kind, usual) else None


def reduce_strategy(_pickler: Any, _strategy: Any) -> Any:
    """The strategy of those that have none: each process has one."""
    return usual_strategy, ()


@streams.named
def usual_strategy() -> Any:
    """The strategy of this process."""
    import tensorflow

    return tensorflow.distribute.get_strategy()


def reduce_function(_pickler: Any, function: Any) -> Any:
    """Reduce what ``@tf.function`` made: it is traced anew where it is called."""
    options = {
        "input_signature": function.input_signature,
        "autograph": function._autograph,
        "jit_compile": function._jit_compile,
        "reduce_retracing": function._reduce_retracing,
    }
    return rebuild_tensorflow_function, (function._python_function, options)


@streams.named
def rebuild_tensorflow_function(function: Any, options: dict[str, Any]) -> Any:
    """The same, not traced."""
    import tensorflow

    return tensorflow.function(function, **options)


ADAPTER = TensorflowAdapter()
