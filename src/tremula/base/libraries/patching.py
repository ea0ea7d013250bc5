"""Replacing names of other libraries: for one thread, for a block, and only what is listed.

    with replaced(torch.random, "set_rng_state", ignore):
        compile()          # this thread's calls of set_rng_state are ignored

While any thread is inside such a block the library holds a *dispatcher*, which calls the
replacement of the thread that calls it, or the original where the thread has none:

    torch.random.set_rng_state ─► dispatcher ─┬─ thread 1 (inside a block) ─► its replacement
                                              └─ every other thread        ─► the original

A function that scripts take out of its library (`from torch_geometric.nn import knn`, then
`self.op = knn`) is replaced in place, by `replaced_in_place`: the function object stays and gets
the code of a dispatcher, so that every reference is replaced, whenever it was taken.

Blocks are counted: the last one to end puts the original back. What is not called but read (a
flag, a level) cannot differ between threads; `replaced_for_all` replaces it for the process, counts
blocks in the same way, and lets a thread wait that wants another value than the one in force.

Every replacement has a row in `patches.PATCHES`; one without a row is an error.
"""

import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from tremula.base.context_values import set_inside
from tremula.base.libraries.patches import PATCHES
from tremula.base.processes import fork_safe

Key = tuple[int, str]  # id of an owner and a name of it
_lock = fork_safe(threading.Condition(threading.RLock()))
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
    restore: Callable[[], object]
    n_blocks: int = 0


@dataclass(eq=False)
class _ProcessValue:
    """An attribute that has another value for the whole process."""

    owner: Any
    original: Any
    blocks: list[tuple[int, Any]] = field(default_factory=list)  # threads and their values


# -- for one thread --------------------------------------------------------------------------------


@contextmanager
def replaced(owner: type | ModuleType, name: str, value: object) -> Iterator[None]:
    """A function, property or class of a library is another one inside the block, for this thread.

    A class is only replaced where it is called; `isinstance` still means the original.
    """
    with _replaced_in(owner, {name: value}, _enter):
        yield


@contextmanager
def wrapped(owner: type | ModuleType, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """`replaced` by what `wrap` makes of the function, property or class in force."""
    with replaced(owner, name, wrap(in_force(owner, name))):
        yield


@contextmanager
def replaced_in_place(
    owner: ModuleType, functions: Mapping[str, Callable[..., Any]]
) -> Iterator[None]:
    """`replaced` for functions of a module, and for all other references to them."""
    with _replaced_in(owner, functions, _enter_in_place):
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
    owner: type | ModuleType,
    values: Mapping[str, Any],
    enter: Callable[[Any, str, Key], _Dispatch],
) -> Iterator[None]:
    for name in values:
        _require_listed(owner, name)
    with _lock:
        entered = [_entered(owner, name, enter) for name in values]
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


def _entered(
    owner: type | ModuleType, name: str, enter: Callable[[Any, str, Key], _Dispatch]
) -> _Dispatch:
    key = (id(owner), name)
    if key not in _dispatches:
        _dispatches[key] = enter(owner, name, key)
    _dispatches[key].n_blocks += 1
    return _dispatches[key]


def _enter(owner: type | ModuleType, name: str, key: Key) -> _Dispatch:
    original = vars(owner)[name]
    setattr(owner, name, _dispatcher(key, original))
    return _Dispatch(key, original, lambda: setattr(owner, name, original))


def _leave(dispatch: _Dispatch) -> None:
    dispatch.n_blocks -= 1
    if not dispatch.n_blocks:
        del _dispatches[dispatch.key]
        dispatch.restore()


def _dispatcher(key: Key, original: object) -> Any:  # noqa: ANN401
    """What stands in a library for a name that threads have different values of."""
    if isinstance(original, property):
        return property(lambda self: _in_force.get().get(key, original).fget(self))
    if isinstance(original, type):
        return _class_dispatcher(key, original)
    assert callable(original), f"{original!r} is read, not called: use replaced_for_all"

    @functools.wraps(original)
    def call(*args: object, **kwargs: object) -> Any:  # noqa: ANN401
        return _in_force.get().get(key, original)(*args, **kwargs)

    with contextlib.suppress(ValueError, TypeError):  # of functions without a readable signature
        # Keras reads that of Layer.__init__.
        call.__signature__ = inspect.signature(original)  # pyright: ignore[reportAttributeAccessIssue]
    return call


def _class_dispatcher(key: Key, original: type) -> type:
    class Dispatcher(type(original)):
        def __call__(cls, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
            return _in_force.get().get(key, original)(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

    return Dispatcher(original.__name__, (original,), {"__module__": original.__module__})


# -- functions in place ----------------------------------------------------------------------------


def _enter_in_place(owner: ModuleType, name: str, key: Key) -> _Dispatch:
    function = _plain_function(owner, name)
    code = function.__code__
    original = FunctionType(code, function.__globals__, name, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    function.__code__ = _code_calling(_dispatcher(key, original), code)
    return _Dispatch(key, original, lambda: setattr(function, "__code__", code))


def _plain_function(owner: ModuleType, name: str) -> FunctionType:
    function = vars(owner)[name]
    assert isinstance(function, FunctionType), f"{name} is not a function of Python: {function!r}"
    assert not function.__closure__, f"{name} has a closure, which its code belongs to"
    return function


def _code_calling(target: Callable[..., Any], like: CodeType) -> CodeType:
    """Code that hands its arguments to a function, under the name of the code it stands for."""
    code = _hand_on.__code__
    constants = tuple(target if value == "target" else value for value in code.co_consts)
    return code.replace(co_consts=constants, co_name=like.co_name)


def _hand_on(*args: object, **kwargs: object) -> Any:  # noqa: ANN401
    target: Any = "target"  # a constant of the code, which `_code_calling` exchanges
    return target(*args, **kwargs)


# -- for the process -------------------------------------------------------------------------------


@contextmanager
def replaced_for_all(owner: object, name: str, value: object, label: str = "") -> Iterator[None]:
    """An attribute, or an item of a dictionary, has another value for all threads inside the block.

    Threads share a value; one that wants another waits until the others' blocks have ended.
    `label` names an owner that does not know its name. A name that is missing is added.
    """
    _require_listed(owner, name, label)
    key, me = (id(owner), name), threading.get_ident()
    with _lock:
        while any(v is not value and thread != me for thread, v in _blocks(key)):
            _lock.wait()
        state = _values_of_process.setdefault(key, _ProcessValue(owner, _read(owner, name)))
        state.blocks.append((me, value))
        _write(owner, name, value)
    try:
        yield
    finally:
        with _lock:
            last = max(i for i, (thread, _) in enumerate(state.blocks) if thread == me)
            del state.blocks[last]
            _write_last(key, state)
            _lock.notify_all()


def _write_last(key: Key, state: _ProcessValue) -> None:
    """Write the value of the last block that has not ended, or the original."""
    _write(state.owner, key[1], state.blocks[-1][1] if state.blocks else state.original)
    if not state.blocks:
        del _values_of_process[key]


def _end_blocks_of_parent() -> None:
    """In a forked process, blocks of its parent's other threads would never end."""
    me = threading.get_ident()
    for key, state in list(_values_of_process.items()):
        state.blocks = [(thread, value) for thread, value in state.blocks if thread == me]
        _write_last(key, state)


os.register_at_fork(after_in_child=_end_blocks_of_parent)


def _blocks(key: Key) -> list[tuple[int, Any]]:
    state = _values_of_process.get(key)
    return [] if state is None else state.blocks


def install(owner: type | ModuleType, name: str, value: object) -> None:
    """Replace a name for the rest of the process: a part that a library lacks on this computer."""
    _require_listed(owner, name)
    setattr(owner, name, value)


def install_in_place(owner: ModuleType, functions: Mapping[str, Callable[..., Any]]) -> None:
    """`install` for functions of a module, and for all other references to them."""
    for name, new in functions.items():
        _require_listed(owner, name)
        function = _plain_function(owner, name)
        function.__code__ = _code_calling(new, function.__code__)


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


def _read(owner: object, name: str) -> Any:  # noqa: ANN401
    return (owner if isinstance(owner, dict) else vars(owner)).get(name, _Missing)


def _write(owner: Any, name: str, value: object) -> None:  # noqa: ANN401
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
