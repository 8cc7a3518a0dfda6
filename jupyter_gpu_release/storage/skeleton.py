"""Makes a notebook class's skeleton without running the notebook's own class-making code a second time.

``__init_subclass__`` and metaclasses that the notebook defines have run when the class was defined; what they did
(a registry, say) travels as data. They could not run here anyway: the globals they read may not be loaded yet.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

from .identity import travels_by_value


def make_skeleton(meta: type, name: str, bases: tuple[Any, ...], kwargs: dict[str, Any]) -> type:
    """A class of this metaclass, name and bases; ``kwargs``: attributes that must be there from the start."""
    resolved = types.resolve_bases(bases)
    maker = next(part for part in meta.__mro__ if not travels_by_value(part))
    space = dict(maker.__prepare__(name, resolved))
    if resolved is not bases:
        space["__orig_bases__"] = bases
    space.update(kwargs)
    with contextlib.ExitStack() as stack:
        for base in {part for parent in resolved for part in parent.__mro__}:
            if travels_by_value(base) and "__init_subclass__" in vars(base):
                stack.enter_context(_without_hook(base))
        made: type = maker.__new__(meta, name, resolved, space)
        maker.__init__(made, name, resolved, space)  # type: ignore[misc]
    return made


@contextlib.contextmanager
def _without_hook(base: type) -> Iterator[None]:
    hook = vars(base)["__init_subclass__"]
    type.__setattr__(base, "__init_subclass__", classmethod(lambda _cls, **_: None))
    try:
        yield
    finally:
        type.__setattr__(base, "__init_subclass__", hook)
