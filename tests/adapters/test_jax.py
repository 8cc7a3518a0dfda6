"""Classes of a notebook that are trees to JAX: as one of them is registered, so is another."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from optional_libraries import jax

from jupyter_gpu_release.adapters.jax import ADAPTER
from jupyter_gpu_release.serialization import codec, rebuild
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust


@dataclasses.dataclass
class Fields:
    """Registered by its fields."""

    a: Any
    b: Any


@dataclasses.dataclass
class Others(Fields):
    """Arrives elsewhere."""


class Pair:
    """Registered by methods, with or without the keys."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    def tree_flatten(self) -> Any:
        """Its parts."""
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, _rest: None, parts: Any) -> Pair:
        """Made of them."""
        return cls(*parts)


class Keyed(Pair):
    """With keys."""

    def tree_flatten_with_keys(self) -> Any:
        """Its parts with their keys."""
        return ((jax.tree_util.GetAttrKey("a"), self.a), (jax.tree_util.GetAttrKey("b"), self.b)), None


def _by_node(cls: Any) -> None:
    jax.tree_util.register_pytree_node(cls, lambda pair: ((pair.a,), pair.b), lambda b, parts: cls(*parts, b))


def _by_fields(cls: Any) -> None:
    jax.tree_util.register_dataclass(cls, data_fields=["a"], meta_fields=["b"])


@pytest.mark.parametrize(
    ("register", "base"),
    [
        (_by_node, Pair),
        (_by_fields, Fields),
        (jax.tree_util.register_pytree_node_class, Pair),
        (jax.tree_util.register_pytree_with_keys_class, Keyed),
    ],
)
def test_a_class_is_a_tree_where_it_arrives(register: Any, base: Any) -> None:
    here, there = (type("Mine", (base,), {}) for _ in range(2))
    register(here)
    known = ADAPTER.registration_of(here)
    assert known is ADAPTER.registration_of(here)
    for _ in range(2):  # told twice, it is kept once
        ADAPTER.register_class(there, known)
    shown = [jax.tree_util.tree_flatten_with_path(kind(1, 2))[0] for kind in (here, there)]
    assert shown[0] == shown[1] != []
    assert ADAPTER.registration_of(base) is None


_OF_THE_NOTEBOOK = """
import jax
class Keyed:
    def __init__(self, a): self.a = a
    def tree_flatten_with_keys(self): return ((jax.tree_util.GetAttrKey("a"), self.a),), None
    def tree_flatten(self): return (self.a,), None
    @classmethod
    def tree_unflatten(cls, _rest, parts): return cls(*parts)
"""


@pytest.mark.parametrize(
    "statement", ["register_pytree_with_keys_class(Keyed)", "register_pytree_with_keys(Keyed, f, Keyed.tree_unflatten)"]
)
def test_a_class_of_the_notebook_keeps_its_keys(statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is told of a class once it has its methods."""
    here: dict[str, Any] = {"__name__": "__main__"}
    exec(f"{_OF_THE_NOTEBOOK}\nf = Keyed.tree_flatten_with_keys\njax.tree_util.{statement}", here)
    dump = codec.dump({"value": here["Keyed"](1)}, NamespaceInfo(here, at_home=True))
    monkeypatch.setattr(rebuild, "class_with_id", lambda _: None)  # as in another process
    realm = NamespaceInfo({"jax": jax}, at_home=False)
    there = codec.load(dump.stream, dump.buffers, realm, trust=Trust.OWN).values["value"]
    assert type(there) is not here["Keyed"]
    assert jax.tree_util.tree_flatten_with_path(there)[0] == [((jax.tree_util.GetAttrKey("a"),), 1)]
