"""Operators: those of ``torch.library.custom_op`` are registered anew where they arrive, from what they were told.

Others (``torch.ops.aten.add``) are found there by their names.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from ... import streams

#: method that tells an operator something, its arguments, and its named ones
Told = tuple[str, tuple[Any, ...], dict[str, Any]]


_REGISTERED = frozenset({"OpOverloadPacket", "OpOverload"})


def reducer_for(kind: type) -> Any:
    """The reducer of an operator: as the user made it, or as ``torch.ops`` gives it; None: another class."""
    if not kind.__module__.startswith("torch."):
        return None
    return reduce_registered if kind.__name__ in _REGISTERED else _reduce if kind.__name__ == "CustomOpDef" else None


def made_here() -> Iterator[tuple[str, Any]]:
    """Operators of the notebook: ``namespace.name``, and what ``torch.ops`` gives for it."""
    definitions = _definitions()
    for name in {*definitions} - _of_libraries:
        if _is_of_the_notebook(definitions.get(name)):
            yield name.replace("::", "."), find_operator(name, "", None)
        else:
            _of_libraries.add(name)


#: names of operators, which are many
_of_libraries: set[str] = set()


def _definitions() -> Any:
    return getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})


def _is_of_the_notebook(operator: Any) -> bool:
    return operator is not None and operator._init_fn.__module__ == "__main__"


def _reduce(_pickler: Any, operator: Any) -> Any:
    """By its schema and the user's functions. (The rest belongs to the dispatcher of this process.)"""
    made_of = (operator._namespace, operator._name, operator._schema, operator._init_fn, tuple(operator._tags))
    return make_operator, (made_of, list(_told(operator)))


def reduce_registered(_pickler: Any, found: Any) -> Any:
    """By its name, and with what registers it."""
    packet = getattr(found, "overloadpacket", found)
    name, overload = packet._qualified_op_name, getattr(found, "_overloadname", "")
    operator = _definitions().get(name)
    return find_operator, (name, overload, operator if _is_of_the_notebook(operator) else None)


def _told(operator: Any) -> Iterator[Told]:
    for device, kernel in operator._backend_fns.items():
        yield "register_kernel", (device, _users_function(kernel)), {}
    for name, function in (("register_fake", operator._abstract_fn), ("register_vmap", operator._vmap_fn)):
        if function is not None:
            yield name, (function,), {}
    if operator._backward_fn is not None:
        yield "register_autograd", (operator._backward_fn,), {"setup_context": operator._setup_context_fn}
    for name in ("torch_dispatch_fns", "autocast_dtype"):
        for rule in getattr(operator, f"_{name}", {}).items():
            yield f"register_{name.rpartition('_')[0]}", rule, {}


def _users_function(kernel: Any) -> Any:
    """The function in the one that torch has made of it."""
    return inspect.getclosurevars(inspect.unwrap(kernel)).nonlocals["fn"]


@streams.named
def find_operator(name: str, overload: str, _registered: Any) -> Any:
    """The operator as ``torch.ops`` gives it, once it is registered."""
    import torch

    namespace, _, last = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), last)
    return getattr(packet, overload) if overload else packet


@streams.named
def make_operator(made_of: tuple[Any, ...], told: list[Told]) -> Any:
    """The operator, which takes the place of one of the same name."""
    from torch.library import CustomOpDef

    *definition, tags = made_of
    operator = CustomOpDef(*definition, tags=tags)
    for name, arguments, named in told:
        getattr(operator, name)(*arguments, **named)
    return operator
