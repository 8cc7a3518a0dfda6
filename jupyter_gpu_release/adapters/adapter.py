"""The seam between the package and a library: :class:`Adapter`, and the records that adapters give and get.

How to write one for a further library: CONTRIBUTING.md, "Adapters of libraries".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

#: gets the pickler and an object, and returns what ``__reduce__`` would, or NotImplemented for pickle's own way
Reducer = Callable[[Any, Any], Any]
#: setting → value
Values = dict[str, Any]


@dataclass(frozen=True)
class LibrarySettings:
    """Settings of a library. Each function gets the loaded ``module``; ``write`` may raise anything."""

    module: str
    #: all settings as they are
    read: Callable[[Any], Values]
    #: what they are unless somebody sets them; of settings that are not named nothing is usual
    usual: Callable[[Any], Mapping[str, Any]]
    #: sets one of them
    write: Callable[[Any, str, Any], None]
    #: only what is set is read: a setting that is not there any more is None
    only_set: bool = False
    #: False: they go to a cell another way
    goes_along: bool = True
    #: False: of no account for what a cell computes, so that they are no part of a cache key
    that_count: bool = True


@dataclass
class GroupState:
    """Facts on the process group of a run that goes on, with which a save is written, and read."""

    #: it is begun again: what is spread over the ranks travels, too; False: the code makes it itself (a checkpoint)
    is_whole: bool = True
    #: how many ranks it had where the save was made
    was: int = 0
    #: memory of tensors is torch's own (FSDP lets it go, and takes it again), and no part of what was read
    owns_memory: bool = False
    #: replicas (module in them, what they were made with) that are to be wrapped again once all is read
    replicas: list[tuple[Any, Any, dict[str, Any]]] = field(default_factory=list)
    #: name of a group where the save was made → that group here
    groups: dict[str, Any] = field(default_factory=dict)
    #: states of FSDP's modules that were read
    states: list[Any] = field(default_factory=list)
    #: id of a parameter that FSDP has put together → (it, this rank's part of it); see :mod:`.torch.sharding`
    parts: dict[int, tuple[Any, Any]] | None = None


class Realm(Protocol):
    """The process that reads a graph."""

    #: it is the notebook's kernel, where everything is in host memory; else a rank
    at_home: bool
    has_gpu: bool
    #: of a save; None: replicas travel as the modules in them, and what is spread over the ranks not at all
    group: GroupState | None


#: functions in streams → those that are called in their place
RECEIVING: dict[Any, Callable[..., Any]] = {}


def receiving(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function of ``streams`` get the :class:`Realm` that reads the stream before its own arguments."""

    @functools.wraps(function)
    def named(*_arguments: Any) -> NoReturn:
        raise TypeError("this stream is a graph of jupyter_gpu_release: read it with serialization.codec")

    RECEIVING[named] = function
    return named


#: reducers that only refuse: what is inside such a thing is of no interest to who looks for the reason
REFUSING: set[Reducer] = set()


def refusing(reducer: Reducer) -> Reducer:
    """Mark a reducer that raises for each object that it gets."""
    REFUSING.add(reducer)
    return reducer


class Adapter:
    """Knowledge of one library. Each hook has a default that fits a library of plain Python objects.

    An adapter is made when its library is first found among the loaded modules, in kernel and rank, and once in a
    process. Making one must not import the library. A hook may: its library is loaded when it is called, unless it says
    otherwise. Hooks are called on whatever thread serialises, never at the same time for one graph. They may block for
    as long as pickling may. Unless a hook says what happens, what it raises ends what was asked for.
    """

    #: the library's, by which its random state travels; it never changes
    name = ""
    #: settings that travel to a cell, and home where the cell changes them. Read before and after each cell, so fast:
    #: what ``read`` raises leaves them out
    settings: tuple[LibrarySettings, ...] = ()

    # ------------------------------------------------------------------------ taken apart and put together
    def reducer_for(self, kind: type) -> Reducer | None:
        """The reducer for a class; None: pickle's own way, or another adapter's.

        Asked once for each class that is of this library or made from one of its classes. The reducer is called for
        each object, with the pickler, which offers:

        * ``realm``: the sender (:class:`Realm`); ``compact``: only to compare, nobody reads it
        * ``keep``: a list for objects that must live until the dump ends
        * ``remarks``: a list for sentences on how the value travels otherwise than it is
        * ``modules``: a set for names of modules that whoever reads it needs
        * ``can_write(thing)``: tells if something can be pickled that could be left out
        * ``holders``: a dict for objects of which one dump has one only
        * ``reference_for(view)``: how to write a view of memory that the receiver has, or None
        * ``note_memory_sent(key)``, ``is_memory_sent(key)``: whether memory travels as a whole

        What puts the object together is a function of a module of the library's, or of this one's package if it is one
        of ``streams`` or of a plug-in. The reducer raises PicklingError with the reason if the object cannot travel.
        """

    def is_refused(self, value: Any) -> bool:
        """Tell if an object of the library never travels, whatever is in it. Asked after something has failed."""
        return False

    def settle(self) -> None:
        """Mend what the library keeps by the ids of objects. Called when a graph was read, and when it was bound."""

    # ------------------------------------------------------------------------------- random numbers
    def random_state(self) -> Any:
        """The state of the library's global generator, as plain values; None: it has none, or nobody has drawn from it.

        Asked before each cell in the kernel and after it in the rank.
        """

    def set_random_state(self, state: Any) -> bool:
        """Set what :meth:`random_state` gave elsewhere. False: the part that has the generator is not loaded yet."""
        return False

    def seed_afresh(self) -> None:
        """Have the generator draw other numbers than in sibling processes. Called in a rank to which no state came."""

    def seed_devices(self) -> None:
        """Have generators of GPUs follow the global one. Called in a rank with a GPU; must not touch the GPU yet."""

    def step_after_devices(self) -> None:
        """Move the global generator if a GPU's has drawn, so that the next cell draws others. Called in a rank."""

    def device_random_state(self) -> Any:
        """The states of the generators of this process's GPUs, for a save of the run; None: there are none in use."""

    def set_device_random_state(self, state: Any) -> None:
        """Set them in the process that goes on, as far as it has such GPUs."""

    def generator_state(self, generator: Any) -> Any:
        """The state of an object that draws random numbers; None: it is no such object of this library."""

    def set_generator_state(self, generator: Any, state: Any) -> None:
        """Have it go on as one of its kind did in this state."""

    # ------------------------------------------------------------------------------- GPUs and threads
    #: the library can compute on a GPU
    can_use_gpu = False

    def has_touched_gpu(self) -> bool:
        """Tell if the library has opened a GPU in this process. Asked in a rank, at each cell's end."""
        return False

    def is_busy(self) -> bool:
        """Tell if reading a GPU's memory could wait, for ever if another rank does not come to a collective.

        Asked after a failure in a rank, if some library has touched a GPU. True: it cannot be told.
        """
        return self.can_use_gpu

    def chosen_device(self, value: Any) -> str | None:
        """The device that an object of the library stands for: ``cpu``, ``cuda:0``; None: it is no device."""

    def untouched_reason(self, namespace: dict[str, Any]) -> str:
        """The likely reason why a cell left its GPU alone, from what its names hold; empty: it cannot be told."""
        return ""

    def hints(self, error: str, ranks: int, gpus: int) -> list[str]:
        """Sentences that explain the library's words in a cell's error, if ``ranks`` and ``gpus`` are the reason."""
        return []

    def follow_placement(self, value: Any, device: str) -> None:
        """The notebook has moved ``value`` to a device that it does not have: it shall be there in GPU cells.

        Called in the kernel for each name that goes to a cell and was moved. ``device`` is empty if it was moved to the
        CPU. ``value`` may be of any class.
        """

    def set_thread_count(self, count: int) -> None:
        """Have the library compute in so many threads. Called in a rank before a cell, and in the fork that saves."""

    def use_terminal(self) -> None:
        """Show things as in a terminal: the cell comes from one, and the library was imported in a notebook's place."""

    def forget_user(self) -> None:
        """Forget the folders of the process's former Unix user. Called in a rank that runs as its cell's owner."""

    def samples(self) -> dict[str, Any]:
        """Small values of the usual kinds, by name. A fork server sends them once around, so that no rank is the first.

        Making and moving them must start neither threads nor a GPU.
        """
        return {}

    # ------------------------------------------------------------------------------- gangs and saves
    def is_sharded(self, value: Any) -> bool:
        """Tell if ``value``, of any class, is spread over the ranks of a gang, or what is in it at first sight."""
        return False

    def unwrapped(self, value: Any) -> Any:
        """The part of an object of the library that travels."""
        return value

    def join_again(self, group: GroupState) -> None:
        """Make whole what was read of a save and belongs to a process group. Called in each rank, in the same order."""

    def why_not_now(self) -> str:
        """The reason why no save can be made at this moment; empty: one can."""
        return ""

    def remembers_computation(self, value: Any) -> bool:
        """Tell if an object of the library is a result from which the cell may go back through its computation."""
        return False
