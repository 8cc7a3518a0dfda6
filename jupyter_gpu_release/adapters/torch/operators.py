"""Operators of ``torch.library.custom_op``: registered anew where they arrive, from what they were told."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ... import streams

#: method that tells an operator something, its arguments, and its named ones
Told = tuple[str, tuple[Any, ...], dict[str, Any]]


def is_operator(kind: type) -> bool:
    """Tell if objects of a class are such operators."""
    return kind.__name__ == "CustomOpDef" and kind.__module__.startswith("torch.")


def reduce_operator(_pickler: Any, operator: Any) -> Any:
    """By its schema and the user's functions. (The rest belongs to the dispatcher of this process.)"""
    made_of = (operator._namespace, operator._name, operator._schema, operator._init_fn, tuple(operator._tags))
    return make_operator, (made_of, list(_told(operator)))


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
def make_operator(made_of: tuple[Any, ...], told: list[Told]) -> Any:
    """The operator, which takes the place of one of the same name."""
    from torch.library import CustomOpDef

    *definition, tags = made_of
    operator = CustomOpDef(*definition, tags=tags)
    for name, arguments, named in told:
        getattr(operator, name)(*arguments, **named)
    return operator
