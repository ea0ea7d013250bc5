"""Replacing names of other libraries: for one thread, for a block, and only what is listed.

    with replaced(torch.random, "set_rng_state", ignore):
        compile()          # this thread's calls of set_rng_state are ignored

While any thread is inside such a block the library holds a *dispatcher*, which calls the
replacement of the thread that calls it, or the original where the thread has none:

    torch.random.set_rng_state ─► dispatcher ─┬─ thread 1 (inside a block) ─► its replacement
                                              └─ every other thread        ─► the original

Blocks are counted: the last one to end puts the original back. What is not called but read (a
flag, a level) cannot differ between threads; `replaced_for_all` replaces it for the process, counts
blocks in the same way, and lets a thread wait that wants another value than the one in force.

Every replacement has a row in `patches.PATCHES`; one without a row is an error.
"""

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import Any

from tremula.base.context_values import set_inside
from tremula.base.libraries.patches import PATCHES

Key = tuple[int, str]  # id of an owner and a name of it
_lock = threading.Condition(threading.RLock())
_dispatches: dict[Key, "_Dispatch"] = {}
_values_of_process: dict[Key, "_ProcessValue"] = {}
_in_force: ContextVar[Mapping[Key, Any]] = ContextVar("replacements", default=MappingProxyType({}))


class _Missing:
    """In place of a value: there is no such name. A class, which copies of it are, too."""


@dataclass(eq=False)
class _Dispatch:
    """An attribute that holds a dispatcher while a thread replaces it."""

    key: Key
    original: Any
    dispatcher: Any
    n_blocks: int = 0
    holders: list[tuple[Any, str]] = field(default_factory=list)  # owners and the names they use


@dataclass(eq=False)
class _ProcessValue:
    """An attribute that has another value for the whole process."""

    original: Any
    blocks: list[tuple[int, Any]] = field(default_factory=list)  # threads and their values


# -- for one thread --------------------------------------------------------------------------------


@contextmanager
def replaced(owner: type | ModuleType, name: str, value: Any) -> Iterator[None]:  # noqa: ANN401
    """A function, property or class of a library is another one inside the block, for this thread.

    A class is only replaced where it is called; `isinstance` still means the original.
    """
    with _replaced_in((owner,), owner, {name: value}):
        yield


@contextmanager
def wrapped(owner: type | ModuleType, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """`replaced` by what `wrap` makes of the function, property or class in force."""
    with replaced(owner, name, wrap(in_force(owner, name))):
        yield


@contextmanager
def replaced_in_all_modules(
    owner: ModuleType, functions: Mapping[str, Callable[..., Any]]
) -> Iterator[None]:
    """`replaced` for functions of a module, also where other modules have imported them."""
    with _replaced_in(list(sys.modules.values()), owner, functions):
        yield


def in_force(owner: type | ModuleType, name: str) -> Any:  # noqa: ANN401
    """What this thread's calls of a name reach: its replacement, else the original."""
    key = (id(owner), name)
    with _lock:
        dispatch = _dispatches.get(key)
        original = vars(owner)[name] if dispatch is None else dispatch.original
    return _in_force.get().get(key, original)


@contextmanager
def _replaced_in(
    places: Iterable[object],
    owner: type | ModuleType,
    values: Mapping[str, Any],
) -> Iterator[None]:
    for name in values:
        _require_listed(owner, name)
    with _lock:
        entered = [_enter(owner, name) for name in values]
        _hold(places, entered)
    keys = [dispatch.key for dispatch in entered]
    try:
        with set_inside(
            _in_force, {**_in_force.get(), **dict(zip(keys, values.values(), strict=True))}
        ):
            yield
    finally:
        with _lock:
            for dispatch in entered:
                _leave(dispatch)


def _enter(owner: type | ModuleType, name: str) -> _Dispatch:
    key = (id(owner), name)
    dispatch = _dispatches.get(key)
    if dispatch is None:
        original = vars(owner)[name]
        dispatch = _dispatches[key] = _Dispatch(key, original, _dispatcher(key, original))
        dispatch.holders.append((owner, name))
        setattr(owner, name, dispatch.dispatcher)
    dispatch.n_blocks += 1
    return dispatch


def _leave(dispatch: _Dispatch) -> None:
    dispatch.n_blocks -= 1
    if not dispatch.n_blocks:
        del _dispatches[dispatch.key]
        for owner, name in reversed(dispatch.holders):
            setattr(owner, name, dispatch.original)


def _dispatcher(key: Key, original: Any) -> Any:  # noqa: ANN401
    """What stands in a library for a name that threads have different values of."""
    if isinstance(original, property):
        return property(lambda self: _in_force.get().get(key, original).fget(self))
    if isinstance(original, type):
        return _class_dispatcher(key, original)
    assert callable(original), f"{original!r} is read, not called: use replaced_for_all"

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return _in_force.get().get(key, original)(*args, **kwargs)

    with contextlib.suppress(ValueError, TypeError):  # of functions without a readable signature
        call.__signature__ = inspect.signature(original)  # Keras reads that of Layer.__init__
    return call


def _class_dispatcher(key: Key, original: type) -> type:
    class Dispatcher(type(original)):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return _in_force.get().get(key, original)(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

    return Dispatcher(original.__name__, (original,), {"__module__": original.__module__})


# -- functions that other modules have imported ----------------------------------------------------

# How many names a module had when it held none of some functions: it need not be searched again.
_sizes_without: dict[tuple[Key, ...], dict[str, int]] = {}


def _hold(places: Iterable[object], dispatches: list[_Dispatch]) -> None:
    """Put dispatchers into modules that hold the originals.

    A process has thousands of modules, and every model that is compiled asks: those without a new
    name since the last time are left out.
    """
    dispatch_of = {id(dispatch.original): dispatch for dispatch in dispatches}
    known = _sizes_without.setdefault(tuple(dispatch.key for dispatch in dispatches), {})
    for module in places:
        if not isinstance(module, ModuleType) or known.get(module.__name__) == len(vars(module)):
            continue
        patched = [
            (n, dispatch_of[id(v)]) for n, v in list(vars(module).items()) if id(v) in dispatch_of
        ]
        if not patched and module.__name__ != "__main__":
            known[module.__name__] = len(vars(module))
        for name, dispatch in patched:
            dispatch.holders.append((module, name))
            setattr(module, name, dispatch.dispatcher)


# -- for the process -------------------------------------------------------------------------------


@contextmanager
def replaced_for_all(owner: Any, name: str, value: Any, label: str = "") -> Iterator[None]:  # noqa: ANN401
    """An attribute, or an item of a dictionary, has another value for all threads inside the block.

    Threads share a value; one that wants another waits until the others' blocks have ended.
    `label` names an owner that does not know its name. A name that is missing is added.
    """
    _require_listed(owner, name, label)
    key, me = (id(owner), name), threading.get_ident()
    with _lock:
        while any(v is not value and thread != me for thread, v in _blocks(key)):
            _lock.wait()
        state = _values_of_process.setdefault(key, _ProcessValue(_read(owner, name)))
        state.blocks.append((me, value))
        _write(owner, name, value)
    try:
        yield
    finally:
        with _lock:
            last = max(i for i, (thread, _) in enumerate(state.blocks) if thread == me)
            del state.blocks[last]
            _write(owner, name, state.blocks[-1][1] if state.blocks else state.original)
            if not state.blocks:
                del _values_of_process[key]
            _lock.notify_all()


def _blocks(key: Key) -> list[tuple[int, Any]]:
    state = _values_of_process.get(key)
    return [] if state is None else state.blocks


def install(owner: type | ModuleType, name: str, value: Any) -> None:  # noqa: ANN401
    """Replace a name for the rest of the process: a part that a library lacks on this computer."""
    _require_listed(owner, name)
    setattr(owner, name, value)


def install_in_all_modules(owner: ModuleType, functions: Mapping[str, Callable[..., Any]]) -> None:
    """`install` for functions of a module, also where other modules have imported them."""
    new_of = {id(getattr(owner, name)): (name, new) for name, new in functions.items()}
    for module in [m for m in list(sys.modules.values()) if isinstance(m, ModuleType)]:
        for alias, value in list(vars(module).items()):
            if id(value) in new_of:
                name, new = new_of[id(value)]
                _require_listed(owner, name)
                setattr(module, alias, new)


# -- of one object ---------------------------------------------------------------------------------


@dataclass
class AttributeChanges:
    """Attributes of objects (a model, its configuration) that have other values until `undo`."""

    _before: list[tuple[Any, str, Any]] = field(default_factory=list)
    _callbacks: list[Callable[[], object]] = field(default_factory=list)

    def set(self, owner: object, name: str, value: object) -> None:
        """Give an attribute another value, in the object itself."""
        self._before.append((owner, name, vars(owner).get(name, _Missing)))
        setattr(owner, name, value)

    def on_undo(self, callback: Callable[[], object]) -> None:
        """Call something when the changes are undone."""
        self._callbacks.append(callback)

    def undo(self) -> None:
        """Restore all attributes, the last one first."""
        for callback in reversed(self._callbacks):
            callback()
        for owner, name, value in reversed(self._before):
            _write(owner, name, value)
        self._callbacks, self._before = [], []


def _read(owner: Any, name: str) -> Any:  # noqa: ANN401
    return (owner if isinstance(owner, dict) else vars(owner)).get(name, _Missing)


def _write(owner: Any, name: str, value: Any) -> None:  # noqa: ANN401
    if isinstance(owner, dict):
        owner[name] = value
    elif value is _Missing:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


# -- the list --------------------------------------------------------------------------------------


@functools.cache
def _listed() -> frozenset[str]:
    return frozenset(f"{patch.owner}.{name}" for patch in PATCHES for name in patch.names)


def _require_listed(owner: Any, name: str, label: str = "") -> None:  # noqa: ANN401
    if not label:
        is_class = isinstance(owner, type)
        label = f"{owner.__module__}.{owner.__qualname__}" if is_class else owner.__name__
    assert f"{label}.{name}" in _listed(), (
        f"{label}.{name} is replaced, but has no row in base/libraries/patches.py"
    )
