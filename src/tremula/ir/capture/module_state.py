"""After a recording the user's modules have the tensors they had before it, whatever happened."""

import contextlib
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

_CONTAINERS = (dict, list, deque)
_LEAVES = (Tensor, nn.Module, type, types.FunctionType, types.ModuleType, str, bytes, int, float)
_DEPTH = 4  # of objects that forward may have made, searched for tensors of the recording
_MISSING = object()


@contextlib.contextmanager
def state_restored(model: nn.Module) -> Iterator[None]:
    """What forward does to attributes that hold tensors is undone at the end of the block.

    Numbers and other plain values that it sets stay, as they do when a model runs in PyTorch.
    """
    before = [_ModuleState(module) for module in model.modules()]
    try:
        yield
    finally:
        for state in before:
            state.restore()


def unregistered_tensors(model: nn.Module) -> dict[int, Tensor]:
    """By id: tensors that modules hold in attributes, lists and dicts without registering them."""
    result: dict[int, Tensor] = {}
    for module in model.modules():
        own = [value for name, value in vars(module).items() if name not in _TABLES]
        containers = _ModuleState(module).contents.values()
        inner = [item for container, _ in containers for item in _items(container)]
        result |= {id(value): value for value in (*own, *inner) if isinstance(value, Tensor)}
    return result


class _ModuleState:
    """The attributes of a module and the contents of its containers, at one time."""

    def __init__(self, module: nn.Module):
        self.module = module
        self.kind = type(module)
        self.attributes = dict(vars(module))
        self.contents: dict[int, tuple[Any, Any]] = {}  # by id: a container, and a copy of it
        for value in self.attributes.values():
            self._note(value)

    def _note(self, value: object) -> None:
        if isinstance(value, tuple):
            for item in value:
                self._note(item)
        elif isinstance(value, _CONTAINERS) and id(value) not in self.contents:
            self.contents[id(value)] = (value, _copy(value))
            for item in _items(value):
                self._note(item)

    def restore(self) -> None:
        if type(self.module) is not self.kind:
            self.module.__class__ = self.kind
        own = {id(value) for name, value in self.attributes.items() if name in _TABLES}
        for key, (container, before) in self.contents.items():
            is_kept = key not in own and not _holds(before, Tensor)
            if not _is_same(container, before) and not (is_kept and not _holds(container, _FAKE)):
                _refill(container, before)
        now = vars(self.module)
        for name in [*now, *(n for n in self.attributes if n not in now)]:
            self._restore_attribute(name, now)

    def _restore_attribute(self, name: str, now: dict[str, Any]) -> None:
        before, after = self.attributes.get(name, _MISSING), now.get(name, _MISSING)
        if after is before:
            return
        if before is _MISSING:
            if _holds(after, _FAKE):
                del now[name]
        elif after is _MISSING or _holds(before, Tensor) or _holds(after, _FAKE):
            now[name] = before


def _copy(container: Any) -> Any:  # noqa: ANN401 - a container of any of these kinds
    return dict(container) if isinstance(container, dict) else list(container)


def _items(container: Any) -> list[Any]:  # noqa: ANN401
    return list(container.values() if isinstance(container, dict) else container)


def _is_same(container: Any, before: Any) -> bool:  # noqa: ANN401
    if len(container) != len(before):
        return False
    if isinstance(container, dict) and list(container) != list(before):
        return False
    return all(a is b for a, b in zip(_items(container), _items(before), strict=True))


def _refill(container: Any, before: Any) -> None:  # noqa: ANN401
    container.clear()
    (container.update if isinstance(container, dict) else container.extend)(before)


def _holds(value: object, kind: type, depth: int = _DEPTH, seen: set[int] | None = None) -> bool:
    """Whether a value is, or has in it, a tensor of a kind."""
    seen = set() if seen is None else seen
    if isinstance(value, weakref.ref):
        value = value()
    if isinstance(value, kind):
        return True
    if value is None or isinstance(value, _LEAVES) or depth == 0 or id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, (*_CONTAINERS, tuple, set, frozenset)):
        return any(_holds(item, kind, depth, seen) for item in _items(value))
    inner = getattr(value, "__dict__", None)
    return isinstance(inner, dict) and any(_holds(v, kind, depth - 1, seen) for v in inner.values())


_FAKE = FakeTensor
# Tables of every module: what forward enters there, such as hooks, is undone in any case.
_TABLES = frozenset(vars(nn.Module()))
