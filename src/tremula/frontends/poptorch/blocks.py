"""Blocks, name scopes and attributes: what a model says about itself while it is recorded."""

import builtins
import functools
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import torch

from tremula.frontends.poptorch.block_places import place_of
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.recording import Recording, active

Args = ParamSpec("Args")
Result = TypeVar("Result")


class _Scope:
    """Marks where the recording of a model enters and leaves it; outside of one, does nothing."""

    _recording: Recording | None = None

    def __enter__(self) -> Self:
        self._recording = active()
        if self._recording is not None:
            self._enter(self._recording)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._recording is not None:
            self._leave(self._recording)

    def _enter(self, recording: Recording) -> None:
        raise NotImplementedError

    def _leave(self, recording: Recording) -> None:
        raise NotImplementedError


def _start(recording: Recording, user_id: str | int | None, ipu_id: int | None) -> None:
    name = recording.block_name(user_id)
    recording.start_block(name, ipu_id, place_of(name, ipu_id))


class Block(_Scope):
    """Operations inside `with poptorch.Block(…)` form a block. Has no effect outside of a model."""

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None):
        self._user_id = user_id
        self._ipu_id = ipu_id

    @staticmethod
    def useAutoId() -> None:  # noqa: N802
        """Number blocks without an id from 0 again; call it at the start of forward."""
        recording = active()
        if recording is not None:
            recording.restart_auto_ids()

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """Begin a block that lasts until the next one begins."""
        recording = active()
        if recording is not None:
            _start(recording, user_id, ipu_id)

    def _enter(self, recording: Recording) -> None:
        name = recording.block_name(self._user_id)
        recording.begin_block(name, self._ipu_id, place_of(name, self._ipu_id))

    def _leave(self, recording: Recording) -> None:
        recording.end_block()


def BlockFunction(  # noqa: N802
    user_id: str | None = None, ipu_id: int | None = None
) -> Callable[[Callable[Args, Result]], Callable[Args, Result]]:
    """Decorate a function or method so that its operations form a block."""

    def decorated(function: Callable[Args, Result]) -> Callable[Args, Result]:
        @functools.wraps(function)
        def in_block(*args: Args.args, **kwargs: Args.kwargs) -> Result:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return in_block

    return decorated


class _BlockStart:
    """Starts one block: within a recording always the same one, however often it is called."""

    def __init__(self, user_id: str | int | None, ipu_id: int | None):
        self._user_id = user_id
        self._ipu_id = ipu_id
        self._seen: tuple[weakref.ref[Recording], str] | None = None

    def _start(self) -> None:
        recording = active()
        if recording is None:
            return
        user_id = self._user_id
        if user_id is None and self._seen is not None and self._seen[0]() is recording:
            user_id = self._seen[1]
        _start(recording, user_id, self._ipu_id)
        if user_id is None and recording.block is not None:
            self._seen = weakref.ref(recording), recording.blocks[recording.block].user_id

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": None}  # a copy has its own recordings


class _BlockHook(_BlockStart):
    """The hook that BeginBlock puts on a module: runs before its forward."""

    def __call__(self, module: torch.nn.Module, inputs: object) -> None:  # noqa: ARG002
        self._start()

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self._user_id}, ipu_id={self._ipu_id})"


class LegacyBeginBlockFn(_BlockStart):
    """A plain function that starts a block when it is called."""

    def __init__(
        self,
        layer_to_call: Callable,
        user_id: str | int | None = None,
        ipu_id: int | None = None,
    ):
        super().__init__(user_id, ipu_id)
        self._layer_to_call = layer_to_call

    def __call__(self, *args, **kwargs) -> Any:  # noqa: ANN401
        self._start()
        return self._layer_to_call(*args, **kwargs)


def BeginBlock(  # noqa: N802
    layer_to_call: object,
    user_id: str | int | None = None,
    ipu_id: int | None = None,
) -> Any:  # noqa: ANN401
    """Let a module begin a block whenever it runs. Returns the module itself, still of its class.

    The block lasts until another one begins. A function is wrapped instead.
    """
    if isinstance(layer_to_call, torch.nn.Module):
        if _hooks_of(layer_to_call):
            raise createPoptorchError("module has already been assigned to a block.")
        layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
        return layer_to_call
    if callable(layer_to_call):
        return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)
    raise createPoptorchError(
        f"BeginBlock needs a torch.nn.Module or a function, got {type(layer_to_call).__name__}."
    )


def removeBlocks(module: torch.nn.Module) -> None:  # noqa: N802
    """Remove the hooks of BeginBlock from a module and from those inside it."""
    assert isinstance(module, torch.nn.Module), f"expected a torch.nn.Module, got {module!r}"
    for inner in module.modules():
        for key in _hooks_of(inner):
            del inner._forward_pre_hooks[key]


def _hooks_of(module: torch.nn.Module) -> dict[int, _BlockHook]:
    hooks = module._forward_pre_hooks.items()
    return {key: hook for key, hook in hooks if isinstance(hook, _BlockHook)}


def module_repr(m: torch.nn.Module) -> str:
    """The tree of a module as PyTorch shows it, with the blocks that begin in it."""
    head = "".join(f"{hook!r} " for hook in _hooks_of(m).values())
    extra = m.extra_repr().splitlines()
    children = [
        f"({name}): {_indented(module_repr(child))}"
        for name, child in m._modules.items()
        if child is not None
    ]
    lines = extra + children
    name = m._get_name()
    if not lines:
        return f"{head}{name}()"
    if len(extra) == 1 and not children:
        return f"{head}{name}({extra[0]})"
    return f"{head}{name}(\n  " + "\n  ".join(lines) + "\n)"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def print(*args, **kwargs) -> None:
    """Python's print, but modules are shown with their blocks."""
    shown = (module_repr(arg) if isinstance(arg, torch.nn.Module) else arg for arg in args)
    builtins.print(*shown, **kwargs)  # noqa: T201


class NameScope(_Scope):
    """Operations inside `with poptorch.NameScope("name")` have their names prefixed with it."""

    def __init__(self, name: str):
        assert isinstance(name, str), f"a name scope is named by text, got {name!r}"
        self.name = name

    def _enter(self, recording: Recording) -> None:
        recording.push_name(self.name)

    def _leave(self, recording: Recording) -> None:
        recording.pop_name()


class Attribute(_Scope):
    """Operations inside `with poptorch.Attribute(group={"key": "value"})` carry these notes."""

    def __init__(self, **attributes: dict[str, str]):
        for group, notes in attributes.items():
            assert isinstance(notes, dict), (
                f"the attributes {group!r} must be a dict, got {notes!r}"
            )
        self._attributes = attributes

    def _enter(self, recording: Recording) -> None:
        recording.push_attributes(self._attributes)

    def _leave(self, recording: Recording) -> None:
        recording.pop_attributes()
