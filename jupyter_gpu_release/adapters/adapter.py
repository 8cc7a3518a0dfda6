"""The seam between the package and a library: :class:`Adapter`, and the records that adapters give and get.

How to write one for a further library: CONTRIBUTING.md, "Adapters of libraries".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from .memory import Layout, Place

#: gets the pickler and an object, and returns what ``__reduce__`` would, or NotImplemented for pickle's own way
Reducer = Callable[[Any, Any], Any]
#: setting → value
Values = dict[str, Any]


@dataclass(frozen=True)
class LibrarySettings:
    """Settings of a library. Each function gets the loaded ``module``; ``write`` may raise anything.

    After a NotLoadedError it is called again when that module is imported.
    """

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
    #: a rank is given its threads right before the cell: these settings change with it
    follow_threads: bool = False


@dataclass(frozen=True)
class Staying:
    """A setting that belongs to its process: a handler that writes to a file, a callback. The receipt names it."""

    thing: Any = field(repr=False)

    def __reduce__(self) -> Any:
        raise TypeError("it belongs to its process")


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


class NotLoadedError(Exception):
    """A setting is of a module, or made of its classes, that this process has not imported: it waits for that."""

    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.module = module


class ImmovableError(Exception):
    """The cell cannot go on elsewhere; says why."""


class Realm(Protocol):
    """The process that reads a graph."""

    #: it is the notebook's kernel, where everything is in host memory; else a rank
    at_home: bool
    has_gpu: bool
    #: of a save; None: replicas travel as the modules in them, and what is spread over the ranks not at all
    group: GroupState | None


class Reader(Protocol):
    """Puts one graph together."""

    @property
    def realm(self) -> Realm:
        """The process that it is read in."""


#: functions in streams → those that are called in their place
RECEIVING: dict[Any, Callable[..., Any]] = {}


def receiving(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function of ``streams`` get the :class:`Reader` of the stream before its own arguments."""

    @functools.wraps(function)
    def named(*_arguments: Any) -> NoReturn:
        raise TypeError("this stream is a graph of jupyter_gpu_release: read it with serialization.codec")

    named.__qualname__ = function.__name__
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

    #: objects of the library are values: a small one that a cell ends with goes home for ``_``
    gives_values = False

    #: functions that register or set something which travels, and attributes that do, the latter with the name before
    #: them (``cudnn.benchmark``), the former where another library's would be meant, too (``style.use``)
    carried_calls: Collection[str] = ()

    # ------------------------------------------------------------------------ taken apart and put together
    def reducer_for(self, kind: type) -> Reducer | None:
        """The reducer for a class; None: pickle's own way, or another adapter's.

        Asked once for each class that is of this library or made from one of its classes. The objects of a metaclass of
        the library are classes of the notebook. Its reducer may return None: then they travel as all classes do. The
        reducer is called for each object, with the pickler, which offers:

        * ``realm``: the sender (:class:`Realm`); ``compact``: only to compare, nobody reads it
        * ``keep``: a list for objects that must live until the dump ends
        * ``remarks``: a list for sentences on how the value travels otherwise than it is
        * ``remarks_on_parts``: the same with the part that they are on, which may have a name of its own
        * ``modules``: a set for names of modules that whoever reads it needs
        * ``can_write(thing)``: tells if something can be pickled that could be left out
        * ``holders``: a dict for objects of which one dump has one only
        * ``reference_for(view)``: how to write a view of memory that the receiver has, or None
        * ``note_memory_sent(key)``, ``is_memory_sent(key)``: whether memory travels as a whole

        What puts the object together is a function of a module of the library's, or of this one's package if it is one
        of ``streams`` or of a plug-in. The reducer raises PicklingError with the reason if the object cannot travel.
        """

    def reading(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function that a graph calls in the place of one of the library's that it names."""
        return function

    def is_refused(self, value: Any) -> bool:
        """Tell if an object of the library never travels, whatever is in it. Asked after something has failed."""
        return False

    def settle(self) -> None:
        """Mend what the library keeps by the ids of objects. Called when a graph was read, and when it was bound."""

    def take_remarks(self) -> list[str]:
        """Sentences for the receipt on objects that were brought to what came back, each once."""
        return []

    def most_visited(self) -> int:
        """The number of objects that have to be looked through where one is put in another's place."""
        return 0

    def nbytes_of(self, value: Any) -> int | None:
        """The size of an object in bytes, if it knows it without being written. ``value`` is of the library."""

    def shape_of(self, value: Any) -> tuple[int, ...] | None:
        """The shape of an object, said where its text would be too long."""

    def words_of(self, value: Any) -> tuple[str, ...] | None:
        """Words that say all of it, if of equal objects it does not matter which one it is. They go into keys."""

    # ------------------------------------------------------------------------------- compared, updated in place
    def class_of(self, thing: Any) -> type | None:
        """The class as which an object counts when it is compared with another; None: its own."""

    def update_in_place(self, old: Any, new: Any) -> bool | None:
        """Make the notebook's object ``old`` what came back for it, so that whoever holds it sees what the run did.

        Both are of one class. True: done. False: it cannot be; nothing has happened, and ``new`` will stand in its
        place. None: what can be done with attributes, slots and items is enough.
        """

    def can_change(self, kind: type) -> bool | None:
        """Tell if objects of a class can be changed, so that it matters who else holds one. None: if Python can."""

    def has_usual_state(self, method: Any) -> bool:
        """Tell if a ``__getstate__`` or ``__reduce__`` of the library's gives the attributes as they are."""
        return False

    def holds_itself(self, kind: type) -> bool:
        """Tell if what belongs to objects of a class holds them, in ways that only they can mend."""
        return False

    def stands_alone(self, thing: Any) -> bool:
        """Tell if what holds a ``thing`` can travel without it, since the one of before is put there."""
        return not self.holds_itself(type(thing))

    def named_parts(self, thing: Any) -> dict[str, Any]:
        """Objects that users know as attributes of a ``thing``, and that are not in its ``__dict__``."""
        return {}

    def is_opaque(self, kind: type) -> bool:
        """Tell if what objects of a class consist of is nobody's but theirs, so that nobody looks into them."""
        return False

    def own_memory(self, thing: Any) -> Iterable[int]:
        """Ids of objects in it that may change hands at any time, so that nothing follows from who holds them."""
        return ()

    def hidden_parts(self, thing: Any) -> Iterable[Any]:
        """Objects to which it refers unseen by the garbage collector, as often as it does."""
        return ()

    def items_of(self, thing: Any) -> Any:
        """Objects in it that are no attributes, slots or items of a built-in container, in an iterable with a length.

        None: it has no place for such.
        """

    def has_more_items(self, thing: Any) -> bool:
        """Tell if it holds objects that are too many for :meth:`items_of` to tell of."""
        return False

    def set_items(self, thing: Any, items: dict[int, Any]) -> None:
        """Put others in the place of those with these numbers in :meth:`items_of`."""

    # --------------------------------------------------------------- memory that several objects look at
    def layout_of(self, thing: Any) -> Layout | None:
        """The place of an object's elements in memory at which others may look, too; None: it has no such memory."""

    def kind_of_view(self, view: Any) -> tuple[type | None, bool]:
        """The class and a flag by which :meth:`view_at` makes such an object again. Asked if it has a layout."""
        return type(view), False

    def bytes_of(self, thing: Any, *, to_write: bool) -> tuple[int, Any] | None:
        """Address and bytes (a flat numpy array) of all memory at which a ``thing`` looks that has a layout.

        Raises NotThereError if that cannot be had.
        """

    def view_at(self, live: Any, place: Place, address: int, strides: tuple[int, ...]) -> Any:
        """Make a view of this library that looks at ``address`` in the memory of ``live``, an object of any library.

        Raises NotThereError, ValueError, TypeError or RuntimeError if there is no such place.
        """

    def replaced_memory(self, old: Any, new: Any) -> dict[Any, Any]:
        """Key of the memory of ``old`` → the memory of ``new``, which stands in its place; empty: it cannot."""
        return {}

    def over_new_memory(self, thing: Any, replaced: Mapping[Any, Any]) -> Any:
        """The object over the memory in ``replaced``, if its own was: itself, or another in its place."""
        return thing

    def reduce_array_over(self, pickler: Any, array: Any, owner: Any) -> Any:
        """Reduce a numpy array that looks at the memory of ``owner``, an object of the library; None: numpy's way."""

    def array_over_new_memory(self, array: Any, owner: Any, replaced: Mapping[Any, Any]) -> Any:
        """Such an array over the memory in ``replaced``, or itself; None: numpy's way."""

    def fill_view(self, old: Any, new: Any) -> bool:
        """Tell if ``old`` is a view of memory that was not sent, and got the values of ``new``."""
        return False

    def writing_rank(self, value: Any) -> int | None:
        """0: others may look at its memory, so it is written first; 2: it looks at a part of another's; else None."""

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

    def limit_gpu_memory(self, share: float) -> None:
        """Take so much of the GPU's memory at most. Raises what the library does where it is too late for that.

        Called in a rank before its cell, which has a part of a GPU; must not open it.
        """

    def says_memory_is_out(self, error: str) -> bool:
        """Tell if an error has the library's words for a GPU without enough free memory."""
        return False

    def hints(self, error: str, ranks: int, gpus: int) -> list[str]:
        """Sentences that explain the library's words in a cell's error, if ``ranks`` and ``gpus`` are the reason."""
        return []

    def lacks_gpu(self, error: str) -> bool:
        """Tell if an error has the library's words for a process that sees no GPU."""
        return False

    def follow_placement(self, value: Any, device: str) -> None:
        """The notebook has moved ``value`` to a device that it does not have: it shall be there in GPU cells.

        Called in the kernel for each name that goes to a cell and was moved. ``device`` is empty if it was moved to the
        CPU. ``value`` may be of any class.
        """

    def compute_a_little(self) -> None:
        """Use the library's threads: called in a fork of the fork server, to see if it works there.

        It raises, or never returns, where it does not.
        """

    def set_thread_count(self, count: int) -> None:
        """Have the library compute in so many threads. Called in a rank before a cell, and in the fork that saves."""

    def registration_of(self, cls: type) -> Any:
        """The library's record of a class of the notebook, outside of the class; None: it has none. It travels along.

        It is the same object until somebody registers the class anew.
        """

    def register_class(self, cls: type, registration: Any) -> None:
        """Have the library keep this of a class that has arrived, unless it keeps something already."""

    def extended_classes(self) -> Iterable[type]:
        """Classes of which :meth:`extensions` tells."""
        return ()

    def extensions(self) -> Iterable[tuple[Any, str, Any]]:
        """Attributes that others have put into the library by a call: (class or module, name, what it is now).

        They travel both ways. Asked before and after each cell, so fast. Such a value equals itself alone, or is plain.
        """
        return ()

    def what_stays(self) -> Iterable[str]:
        """Sentences for a receipt on what the library has in the notebook and no GPU cell has. Each is said once."""
        return ()

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

    def has_group(self) -> bool:
        """Tell if the cell has made a process group."""
        return False

    def group_facts(self, ranks: int) -> dict[str, Any]:
        """Plain values that say what the process groups of this cell's ``ranks`` were made with; empty: there is none.

        Raises ImmovableError for what cannot be made again.
        """
        return {}

    def restore_group(self, made: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
        """Make them again; returns when all ranks have, with the old name of each. The library may not be loaded yet.

        Raises LoadError where they cannot be made of so many ranks.
        """
        return {}

    def why_of_this_size(self, names: Mapping[str, Any], ranks: int) -> str:
        """The reason why a gang with these names goes on at its size only; empty: there is none."""
        return ""

    def resize_samplers(self) -> None:
        """Let what deals out data to ranks deal it out to as many as there are now."""

    def has_rows(self, kind: type) -> bool:
        """Tell if a loop over such an object goes over its rows by their index, and to begin one changes nothing."""
        return False

    def gives_the_same(self, kind: type) -> bool:
        """Tell if what such an object gives a loop depends on it and on random states alone.

        A restartable cell then evaluates the loop's header again, and skips what was used.
        """
        return False

    def remembers_computation(self, value: Any) -> bool:
        """Tell if an object of the library is a result from which the cell may go back through its computation."""
        return False
