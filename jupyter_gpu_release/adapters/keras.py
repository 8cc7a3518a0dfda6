"""Keras: models, layers, optimisers, metrics by what is in them, so that what several of them share stays shared.

Keras' own way is an archive, from which each model is made anew: it lacks the totals of metrics and the states of
dropout layers, and a layer of two models becomes two.
"""

from __future__ import annotations

import collections
import importlib
import io
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from .. import streams
from .adapter import Adapter, LibrarySettings, Reducer, Values

#: compiled for this process: made anew when they are needed
_COMPILED = ("train_function", "test_function", "predict_function")
#: tables by the ids of objects, which :func:`settle` makes anew: table → attribute that it is of
_TABLES = {"stored_ids": "config", "_trainable_variables_indices": "_trainable_variables", "_nodes": "_nodes_by_depth"}
#: methods that each layer has in a form of its own
_WRAPPED = ("build", "quantize")
#: attributes that lead from one thing of a graph of layers to the next: they travel in a table
_LINKS = ("_inbound_nodes", "_outbound_nodes", "operation", "_keras_history")


def _reducer_for(kind: type) -> Reducer | None:
    saveable = _class_of("keras.src.saving.keras_saveable", "KerasSaveable")
    if saveable is not None and issubclass(kind, saveable):
        return reduce_saveable if kind.__reduce__ is saveable.__reduce__ else None
    for (module, name), reducer in _BY_CLASS.items():
        base = _class_of(module, name)
        if base is not None and issubclass(kind, base):
            return reducer
    return None


def _class_of(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


# ------------------------------------------------------------------------------------------- by what is in them
def reduce_saveable(pickler: Any, thing: Any) -> Any:
    """A model, a layer, an optimiser …: its attributes, and where it stands in a graph of layers.

    Of some only Keras' archive knows all: tables of words, models that are spread over devices.
    """
    graph = _Graph.of(pickler, thing) if hasattr(thing, "_inbound_nodes") else None
    if hasattr(thing, "save_assets") or getattr(thing, "_distribute_strategy", None) is not None:
        maker, arguments = _archived(thing)
        return maker, arguments, (None, graph, {}), None, None, fill_keras_object
    _remember(thing)
    return (
        make_keras_object,
        (type(thing),),
        (_attributes(thing, in_graph=graph is not None), graph, _registered(pickler)),
        None,
        None,
        fill_keras_object,
    )


def reduce_linked(pickler: Any, thing: Any) -> Any:
    """A tensor of a graph of layers, or the call of a layer that made it."""
    return (
        make_keras_object,
        (type(thing),),
        (_attributes(thing, in_graph=True), _Graph.of(pickler, thing), {}),
        None,
        None,
        fill_keras_object,
    )


def reduce_plain(_pickler: Any, thing: Any) -> Any:
    """Something that notes what a layer consists of; a variable."""
    _remember(thing)
    return make_keras_object, (type(thing),), (_attributes(thing), None, {}), None, None, fill_keras_object


def reduce_tracked(_pickler: Any, container: Any) -> Any:
    """A container that tells its layer what is put into it: its content is put back past that."""
    content = dict(container) if isinstance(container, dict) else list(container)
    return make_keras_container, (type(container),), (content, vars(container)), None, None, fill_keras_container


def reduce_backend(_pickler: Any, backend: Any) -> Any:
    """The choice of a backend that a preprocessing layer has made."""
    return type(backend), (backend._backend,)


def _attributes(thing: Any, *, in_graph: bool = False) -> dict[str, Any]:
    attributes = vars(thing)
    left = {name for name, origin in _TABLES.items() if origin in attributes}
    if attributes.keys() >= set(_COMPILED):
        left.update(_COMPILED)
    return {
        name: None if name in left else value
        for name, value in attributes.items()
        if not (in_graph and name in _LINKS) and not _is_wrapper(name, value)
    }


def _is_wrapper(name: str, value: Any) -> bool:
    """Tell if it is what ``Layer.__new__`` has put around a method of the layer."""
    return name in _WRAPPED and getattr(getattr(value, "__code__", None), "co_name", "") == f"{name}_wrapper"


def _registered(pickler: Any) -> dict[str, Any]:
    """Classes and functions of the notebook that are registered with Keras, by name; one object for all of one dump."""
    key = (None, "registered with Keras")
    if key not in pickler.holders:
        names = _class_of("keras.src.saving.object_registration", "GLOBAL_CUSTOM_NAMES") or {}
        pickler.holders[key] = {
            name: thing for thing, name in names.items() if getattr(thing, "__module__", "") == "__main__"
        }
    found: dict[str, Any] = pickler.holders[key]
    return found


@streams.named
def make_keras_object(kind: type) -> Any:
    """An object without its attributes."""
    layer = _class_of("keras.src.layers.layer", "Layer")
    return object.__new__(kind) if layer is None or not issubclass(kind, layer) else layer.__new__(kind)


@streams.named
def fill_keras_object(thing: Any, state: tuple[dict[str, Any] | None, Any, dict[str, Any]]) -> None:
    """Set its attributes past its class, which would count and track them once more."""
    attributes, _graph, registered = state
    if attributes is not None:
        vars(thing).update(attributes)
    if registered:
        registration: Any = importlib.import_module("keras.src.saving.object_registration")
        for name, custom in registered.items():
            registration.GLOBAL_CUSTOM_OBJECTS[name] = custom
            registration.GLOBAL_CUSTOM_NAMES[custom] = name
    _remember(thing)
    _place(thing)


def _place(thing: Any) -> None:
    """With PyTorch Keras expects its variables on the device that it chose itself."""
    variable, torch = _class_of("keras.src.backend.common.variables", "KerasVariable"), sys.modules.get("torch")
    value = vars(thing).get("_value") if variable is not None and isinstance(thing, variable) else None
    if torch is not None and isinstance(value, torch.nn.Parameter):
        value.data = value.data.to(sys.modules["keras.src.backend.torch.core"].get_device())


@streams.named
def make_keras_container(kind: type) -> Any:
    """One that is empty."""
    make: Any = kind.__new__
    return make(kind)


@streams.named
def fill_keras_container(container: Any, state: tuple[Any, dict[str, Any]]) -> None:
    """Put its content back."""
    content, attributes = state
    base: Any = next(base for base in (dict, list, set) if isinstance(container, base))
    (base.extend if base is list else base.update)(container, content)
    vars(container).update(attributes)


# --------------------------------------------------------------------------------------------- graphs of layers
class _Graph:
    """Layers, calls of them and the tensors in between, as far as they lead to one thing and are in no other graph.

    Pickle would go from each to the next, and give up after some dozens.
    """

    def __init__(self, things: list[Any]) -> None:
        self.things = things

    @staticmethod
    def __graph_reduce__(pickler: Any, graph: _Graph) -> Any:
        links = [
            {name: value for name in _LINKS if (value := _link(pickler, thing, name)) is not None}
            for thing in graph.things
        ]
        return make_keras_graph, (), (graph.things, links), None, None, link_keras_graph

    @classmethod
    def of(cls, pickler: Any, thing: Any) -> _Graph:
        known: dict[Any, _Graph] = pickler.holders
        if (id(thing), _GRAPH) not in known:
            found = cls(list(_upstream(pickler, thing)))
            known.update({(id(each), _GRAPH): found for each in found.things})
        return known[id(thing), _GRAPH]


_GRAPH = "graph of layers"


def _upstream(pickler: Any, thing: Any) -> Iterator[Any]:
    """A thing, and all that lead to it."""
    seen, waiting = {id(thing)}, [thing]
    while waiting:
        yield (each := waiting.pop())
        for neighbour in _neighbours(each):
            if id(neighbour) not in seen and (id(neighbour), _GRAPH) not in pickler.holders:
                seen.add(id(neighbour))
                waiting.append(neighbour)


def _neighbours(thing: Any) -> Iterable[Any]:
    attributes = vars(thing)
    yield from attributes.get("_inbound_nodes", ())
    if "arguments" in attributes and "outputs" in attributes:  # a call
        yield attributes["operation"]
        yield from attributes["arguments"].keras_tensors
        yield from attributes["outputs"]
    history = attributes.get("_keras_history")
    if history is not None and history.operation is not None:
        yield history.operation


def _link(pickler: Any, thing: Any, name: str) -> Any:
    """Where it leads; calls of layers further on, which nobody follows, only if they travel themselves."""
    value = vars(thing).get(name)
    if name == "_outbound_nodes" and value is not None:
        return [node for node in value if (id(node), _GRAPH) in pickler.holders]
    return value


@streams.named
def make_keras_graph() -> Any:
    """A graph, which nobody needs once it is linked."""
    return _Graph([])


@streams.named
def link_keras_graph(_graph: Any, state: tuple[list[Any], list[dict[str, Any]]]) -> None:
    """Put its things together."""
    for thing, links in zip(*state, strict=True):
        vars(thing).update(links)


# ------------------------------------------------------------------------------------- tables of ids of objects
#: those that have such tables, of all that has travelled from or to this process
_with_tables: dict[int, weakref.ref[Any]] = {}


def _remember(thing: Any) -> None:
    if not vars(thing).keys().isdisjoint((*_TABLES, *_WRAPPED)):
        _with_tables[id(thing)] = weakref.ref(thing)


def settle() -> None:
    """Make the tables of ids anew, and wrappers those of their layers, in all that has arrived or was brought to it."""
    for ident, reference in list(_with_tables.items()):
        thing = reference()
        if thing is None:
            del _with_tables[ident]
        else:
            _settle(vars(thing), thing)
            _own_wrappers(vars(thing), thing)


def _settle(attributes: dict[str, Any], thing: Any) -> None:
    if "stored_ids" in attributes and "config" in attributes:
        stores = attributes["config"].items()
        attributes["stored_ids"] = {name: set(map(id, store)) for name, (_test, store) in stores}
    if "_trainable_variables_indices" in attributes and "_trainable_variables" in attributes:
        variables = attributes["_trainable_variables"]
        attributes["_trainable_variables_indices"] = {thing._var_key(each): n for n, each in enumerate(variables)}
    if "_var_to_optimizer_idx" in attributes:
        attributes["_var_to_optimizer_idx"] = {
            thing._var_key(each): n
            for n, optimizer in enumerate(attributes["_inner_optimizers"])
            for each in optimizer._trainable_variables
        }
    if "_nodes" in attributes and "_nodes_by_depth" in attributes:
        key_of = sys.modules["keras.src.ops.function"].make_node_key
        nodes = [node for level in attributes["_nodes_by_depth"].values() for node in level]
        attributes["_nodes"] = {key_of(node.operation, node.outputs[0]._keras_history.node_index) for node in nodes}


def _own_wrappers(attributes: dict[str, Any], layer: Any) -> None:
    for name in _WRAPPED:
        wrapper: Any = attributes.get(name)
        if not _is_wrapper(name, wrapper):
            continue
        for variable, cell in zip(wrapper.__code__.co_freevars, wrapper.__closure__, strict=True):
            if variable == "obj":
                cell.cell_contents = layer
            elif isinstance(cell.cell_contents, types.MethodType):
                cell.cell_contents = wrapper.__wrapped__ = types.MethodType(cell.cell_contents.__func__, layer)


# ------------------------------------------------------------------------------------------------ Keras' archive
def _archived(model: Any) -> Any:
    unpickle, (archive,) = model.__reduce__()
    registration: Any = sys.modules["keras.src.saving.object_registration"]
    names: dict[Any, str] = registration.GLOBAL_CUSTOM_NAMES
    custom = {registration.get_registered_name(kind): kind for kind in _kinds(model)}
    custom |= {name: thing for thing, name in names.items() if getattr(thing, "__module__", "") == "__main__"}
    is_registered = [name for name, thing in custom.items() if thing in names]
    return rebuild_keras_model, (unpickle.__self__, archive.getvalue(), custom, is_registered)


def _kinds(model: Any) -> Iterable[type]:
    """Types of all that may be in the archive."""
    parts = [model, getattr(model, "optimizer", None), getattr(model, "loss", None)]
    if hasattr(model, "_flatten_layers"):
        parts += model._flatten_layers()
    return {type(part) for part in parts if part is not None and not _is_of_keras(type(part))}


def _is_of_keras(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in ("keras", "builtins")


@streams.named
def rebuild_keras_model(_kind: type, archive: bytes, custom: dict[str, Any], registered: list[str]) -> Any:
    """The model; ``custom``: what Keras calls the classes and functions that are not its own."""
    saving: Any = importlib.import_module("keras.src.saving.saving_lib")
    registration: Any = importlib.import_module("keras.src.saving.object_registration")
    for name in registered:
        registration.GLOBAL_CUSTOM_OBJECTS[name] = custom[name]
        registration.GLOBAL_CUSTOM_NAMES[custom[name]] = name
    return saving._load_model_from_fileobj(io.BytesIO(archive), custom_objects=custom, compile=True, safe_mode=False)


_TRACKING = "keras.src.utils.tracking"
_BY_CLASS: dict[tuple[str, str], Reducer] = {
    ("keras.src.backend.common.keras_tensor", "KerasTensor"): reduce_linked,
    ("keras.src.ops.node", "Node"): reduce_linked,
    ("keras.src.backend.common.variables", "KerasVariable"): reduce_plain,
    (_TRACKING, "Tracker"): reduce_plain,
    (_TRACKING, "TrackedList"): reduce_tracked,
    (_TRACKING, "TrackedDict"): reduce_tracked,
    (_TRACKING, "TrackedOrderedDict"): reduce_tracked,
    (_TRACKING, "TrackedSet"): reduce_tracked,
    ("keras.src.utils.backend_utils", "DynamicBackend"): reduce_backend,
}


# --------------------------------------------------------------------------------------------- settings
_SETTINGS = {"floatx": "float32", "dtype_policy": "float32", "epsilon": 1e-7, "image_data_format": "channels_last"}
#: how often Keras has given each name (``dense``, ``dense_1``), by thread
_NAMES = "object_name_uids"


def _settings(keras: Any) -> Values:
    config = keras.config
    return {
        name: config.dtype_policy().name if name == "dtype_policy" else getattr(config, name)() for name in _SETTINGS
    }


def _set(keras: Any, name: str, value: Any) -> None:
    getattr(keras.config, f"set_{name}")(value)


def _names(module: Any) -> Values:
    return {_NAMES: dict(module.get_global_attribute(_NAMES) or {})}


def _set_names(module: Any, name: str, value: Any) -> None:
    module.set_global_attribute(name, collections.defaultdict(int, value))


# --------------------------------------------------------------------------------------- random numbers
_SEED, _GENERATOR = "global_random_seed", "global_seed_generator"


def _tracker() -> Any:
    """The attributes that Keras has for the whole process, or rather for this thread; None: that part is not loaded."""
    return _class_of("keras.src.backend.common.global_state", "GLOBAL_STATE_TRACKER")


class KerasAdapter(Adapter):
    """All that Keras keeps."""

    name = "keras"

    carried_calls = (
        "register_keras_serializable",
        "set_dtype_policy",
        "set_epsilon",
        "set_floatx",
        "set_global_policy",
        "set_image_data_format",
    )
    settings = (
        LibrarySettings("keras", _settings, lambda _: _SETTINGS, _set),
        LibrarySettings(
            "keras.src.backend.common.global_state", _names, lambda _: {_NAMES: {}}, _set_names, that_count=False
        ),
    )

    def stands_alone(self, thing: Any) -> bool:
        return False

    def reducer_for(self, kind: type) -> Reducer | None:
        return _reducer_for(kind)

    def settle(self) -> None:
        settle()

    def most_visited(self) -> int:
        """A graph of layers of which only a part is replaced cannot be called."""
        return 1_000_000 if "keras.src.ops.node" in sys.modules else 0

    def random_state(self) -> Any:
        """The seed that was set, and what ``keras.random`` draws from: its settings and its state."""
        tracker = _tracker()
        seed, generator = (getattr(tracker, name, None) for name in (_SEED, _GENERATOR))
        if seed is None and generator is None:
            return None
        drawn = None
        if generator is not None:
            numpy = sys.modules["keras"].ops.convert_to_numpy(generator.state.value)
            drawn = (generator.get_config(), numpy.tolist())
        return seed, drawn

    def set_random_state(self, state: Any) -> bool:
        tracker = _tracker()
        if tracker is None:
            return False
        seed, drawn = state
        generator = None
        if drawn is not None:
            settings, numbers = drawn
            generator = sys.modules["keras"].random.SeedGenerator(**{**settings, "seed": settings["seed"] or 0})
            generator._initial_seed = settings["seed"]
            generator.state.assign(numbers)
        setattr(tracker, _SEED, seed)
        setattr(tracker, _GENERATOR, generator)
        return True


ADAPTER = KerasAdapter()
