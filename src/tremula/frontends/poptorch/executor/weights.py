"""Weights of a model on host and device: which are newer, and modules that fetch before reading.

A training step changes the weights on the device and leaves those on the host stale, yet a script
reads them whenever it likes. So a module in training is *wrapped*: objects stay where they are and
change their class, and everything that reads one of them goes through its owner first.

    model = Net()
    step = poptorch.trainingModel(model, …)   # type(model): PoptorchNet, a subclass of Net
    step(x)                                   # device newer; nothing is copied yet
    model.fc.weight.shape                     # not a value: nothing is copied
    model.fc.weight.mean()
      └─ PoptorchParameter.__torch_function__(Tensor.mean, args=(weight,))
           1. weight._owner.copyWeightsToHostIfNeeded()   # device → host, once
           2. Tensor.mean(weight) without hooks           # as on any parameter

PyTorch calls `__torch_function__` for every function that gets such a tensor, alone or in a list.
Copies, pickles and state dictionaries of a wrapped module are plain; `unwrap` restores all classes.
"""

import copyreg
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex

import torch
from torch import Tensor, nn
from torch._utils import _rebuild_parameter
from torch.utils._pytree import tree_map

from tremula.base.errors import suggest
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.capture.capture import model_tensors
from tremula.ir.step import BUFFER, PARAMETER

if TYPE_CHECKING:
    from torch._C import _Index

without_hooks = torch._C.DisableTorchFunctionSubclass  # inside, reading a weight fetches nothing


class Owner(Protocol):
    """The training model that has the newer weights."""

    _host_weights_version: int  # grows with each copy from the device

    def copyWeightsToHostIfNeeded(self) -> bool: ...  # noqa: N802
    def destroy(self) -> None: ...
    def _group_replicas(
        self, parameter: Tensor, group_type: int, shards: int, mode: int
    ) -> None: ...


# Properties of a tensor that can be read without its values.
_WITHOUT_VALUES = frozenset(
    getattr(Tensor, name).__get__
    for name in "shape dtype device requires_grad is_leaf layout ndim grad_fn is_cuda".split()
) | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.stride, Tensor.is_floating_point}


class _FetchesFirst:
    """A tensor that fetches newer values from the device before a torch function reads it."""

    _owner: Owner | None = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN206
        kwargs = kwargs or {}
        if func not in _WITHOUT_VALUES:
            _fetch(args)
            _fetch(kwargs.values())
        with without_hooks():  # otherwise `func` would end up here again
            return func(*args, **kwargs)


def _fetch(arguments: Iterable) -> None:
    """Let the owners of all tensors among arguments, lists in them included, bring newer values."""
    for value in arguments:
        if isinstance(value, _FetchesFirst):
            if value._owner is not None:
                value._owner.copyWeightsToHostIfNeeded()
        elif isinstance(value, tuple | list):
            _fetch(value)


class PoptorchParameter(_FetchesFirst, nn.Parameter):
    """A parameter of a module in training."""

    def replicaGrouping(  # noqa: N802
        self, comm_group_type: int, shards: int, variable_retrieval_mode: int
    ) -> None:
        """See `ParameterOfModel`; this one is for parameters of modules inside the model."""
        assert self._owner is not None, "a parameter in training has an owner"
        self._owner._group_replicas(self, comm_group_type, shards, variable_retrieval_mode)

    def __deepcopy__(self, memo: dict) -> nn.Parameter:
        if id(self) not in memo:
            values = self.data.clone(memory_format=torch.preserve_format)
            memo[id(self)] = nn.Parameter(values, self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple:
        return _rebuild_parameter, (self.data, self.requires_grad, {})

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        """Like that of any other parameter."""
        return repr(nn.Parameter(self.data, self.requires_grad))


class PoptorchBuffer(_FetchesFirst, Tensor):
    """A buffer of a module in training."""

    def __deepcopy__(self, memo: dict) -> Tensor:
        if id(self) not in memo:
            memo[id(self)] = self.detach().clone(memory_format=torch.preserve_format)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple:
        return self.detach().__reduce_ex__(protocol)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return repr(self.detach())


# Errors of PyTorch name the class that the model's author gave.
PoptorchParameter.__name__ = nn.Parameter.__name__
PoptorchBuffer.__name__ = Tensor.__name__


class _WrappedModule:
    """What wrapping adds to a module."""

    _poptorch_owner: Owner
    _poptorch_class: type[nn.Module]

    def copyWeightsToHostIfNeeded(self) -> bool:  # noqa: N802
        """Fetch the weights if the device has newer ones; whether it had."""
        return self._poptorch_owner.copyWeightsToHostIfNeeded()

    def destroy(self) -> None:
        """Fetch the weights, release the compiled program, and give the module its class back."""
        self._poptorch_owner.destroy()

    def state_dict(self, *args, **kwargs) -> dict[str, Any]:
        self._poptorch_owner.copyWeightsToHostIfNeeded()
        return super().state_dict(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def __copy__(self) -> nn.Module:
        """A module of the user's own class that shares everything; nothing is read."""
        made = object.__new__(self._poptorch_class)
        made.__dict__.update(self.__dict__)
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple:
        # A copy or pickle is a module of the user's own class; see `_FetchesFirst` for its tensors.
        self._poptorch_owner.copyWeightsToHostIfNeeded()
        wrapper = type(self)
        _set_class(self, self._poptorch_class)
        try:
            made = self.__reduce_ex__(protocol)
        finally:
            _set_class(self, wrapper)
        if made[0] is not copyreg.__newobj__:  # pyright: ignore[reportAttributeAccessIssue]
            return made
        (kind, *rest), state = made[1], made[2:]
        assert not rest, f"{kind.__name__} takes arguments to be made, which a copy does not know"
        return copyreg._reconstructor, (kind, object, None), *state  # pyright: ignore[reportAttributeAccessIssue]


def is_wrapped(model: nn.Module) -> bool:
    return isinstance(model, _WrappedModule)


def wrap(model: nn.Module, owner: Owner) -> None:
    """Make everything that reads the module or its weights fetch from `owner` first."""
    if isinstance(model, _WrappedModule) and model._poptorch_owner is not owner:
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on "
            "the model to unwrap before wrapping again."
        )
    _check_classes(model, owner)
    if not isinstance(model, _WrappedModule):
        _wrap_class(model, owner)
    for kind, cls in ((PARAMETER, PoptorchParameter), (BUFFER, PoptorchBuffer)):
        for entry in model_tensors(model, kind):
            tensor: Any = entry.tensor
            _set_class(tensor, cls)
            tensor._owner = owner
    _generation[0] += 1


def unwrap(model: nn.Module) -> None:
    """The module and its weights as they were; fetch newer values first."""
    if not isinstance(model, _WrappedModule):
        return
    for kind, cls in ((PARAMETER, nn.Parameter), (BUFFER, Tensor)):
        for entry in model_tensors(model, kind):
            if isinstance(entry.tensor, _FetchesFirst):
                del entry.tensor._owner
                _set_class(entry.tensor, cls)
    _set_class(model, model._poptorch_class)
    _generation[0] += 1


def _restoreWrapperIfNecessary(obj: nn.Module) -> nn.Module:  # noqa: N802
    """Wrap an unwrapped module again if its weights still belong to a training model."""
    owners = Sources(obj).owners()
    if owners and not is_wrapped(obj):
        _wrap_class(obj, owners[0])
    return obj


def _wrap_class(model: nn.Module, owner: Owner) -> None:
    attributes = {"_poptorch_owner": owner, "_poptorch_class": type(model)}
    name = f"Poptorch{type(model).__name__}"
    _set_class(model, type(name, (_WrappedModule, type(model)), attributes))


def _set_class(thing: object, cls: type) -> None:
    """Change the class of an object to a related one: its values stay where they are."""
    thing.__class__ = cls


def _check_classes(model: nn.Module, owner: Owner) -> None:
    for word, kind, cls in (("parameter", PARAMETER, nn.Parameter), ("buffer", BUFFER, Tensor)):
        for entry in model_tensors(model, kind):
            result = type(entry.tensor)
            if isinstance(entry.tensor, _FetchesFirst):
                if entry.tensor._owner is owner:
                    continue
                raise RuntimeError(
                    "Model has already been wrapped in 'poptorch.trainingModel', as a part of or "
                    f"with a part of another ({word} {entry.name} is shared). Call model.destroy() "
                    "on that one first."
                )
            if result is not cls:
                raise createPoptorchError(
                    f"The {word} {entry.name} is a {result.__module__}.{result.__qualname__}: a "
                    f"model to be trained must hold plain {cls.__module__}.{cls.__qualname__}s"
                )


@contextmanager
def plain(model: nn.Module) -> Iterator[None]:
    """Inside, the tensors of a module have the classes they had before it was wrapped."""
    tensors = [h.tensor for kind in (PARAMETER, BUFFER) for h in model_tensors(model, kind)]
    hooked = [(tensor, type(tensor)) for tensor in tensors if isinstance(tensor, _FetchesFirst)]
    for tensor, _ in hooked:
        is_parameter = isinstance(tensor, PoptorchParameter)
        _set_class(tensor, nn.Parameter if is_parameter else Tensor)
    try:
        yield
    finally:
        for tensor, cls in hooked:
            _set_class(tensor, cls)


_generation = [0]  # counts wraps and unwraps, so that calls need not search for owners


class Sources:
    """The training models whose weights an inference model shares."""

    def __init__(self, model: nn.Module):
        self.model = model
        self._generation = -1
        self._owners: list[Owner] = []
        self._seen: dict[int, int] = {}  # versions of the weights, by id of the owner

    def owners(self) -> list[Owner]:
        if self._generation != _generation[0]:
            self._generation = _generation[0]
            kinds = (PARAMETER, BUFFER)
            tensors = [h.tensor for kind in kinds for h in model_tensors(self.model, kind)]
            result = {id(o): o for t in tensors if (o := getattr(t, "_owner", None))}
            self._owners = list(result.values())
        return self._owners

    def fetch(self) -> bool:
        """Bring weights in training to the host; whether they changed since the last time."""
        owners = self.owners()
        for owner in owners:
            owner.copyWeightsToHostIfNeeded()
        versions = {id(owner): owner._host_weights_version for owner in owners}
        seen, self._seen = self._seen, versions
        return any(seen.get(owner) != version for owner, version in versions.items())


class HostWeights:
    """The host's copy, in the order a session wants it; looked up once per compiled model."""

    def __init__(self, model: nn.Module):
        self.parameters = model_tensors(model, PARAMETER)
        self.buffers = model_tensors(model, BUFFER)

    def values(self) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters and buffers as they are here, without reading the device."""
        with without_hooks():
            return [h.tensor.data for h in self.parameters], [h.tensor.data for h in self.buffers]

    def store(self, parameters: list[Tensor], buffers: list[Tensor]) -> None:
        """Overwrite the values here."""
        with without_hooks(), torch.no_grad():
            for entry, value in zip(self.parameters, parameters, strict=True):
                if entry.tensor.shape != value.shape:  # all replicas of a grouped parameter
                    entry.tensor.data = value.to(entry.tensor.device, copy=True)
                else:
                    entry.tensor.data.copy_(value)
            for entry, value in zip(self.buffers, buffers, strict=True):
                entry.tensor.data.copy_(value)

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        return [(entry.name, entry.tensor) for entry in self.parameters]

    def buffer_indices(self, names: list[str]) -> list[int]:
        """The indices of named buffers; an error for a name that no buffer has."""
        known = [entry.name for entry in self.buffers]
        for name in names:
            if name not in known:
                raise createPoptorchError(
                    f"updatableNamedBuffers names {name!r}, but the model has no such buffer: "
                    f"{suggest(name, known)}"
                )
        return [i for i, name in enumerate(known) if name in names]


class ParameterOfModel:
    """A parameter as an attribute of a wrapped model: itself, and `replicaGrouping`."""

    _parameter: nn.Parameter
    _group: Callable[..., None]

    def __init__(self, parameter: nn.Parameter, group: Callable[..., None]):
        object.__setattr__(self, "_parameter", parameter)
        object.__setattr__(self, "_group", group)

    def replicaGrouping(  # noqa: N802
        self, comm_group_type: object, shards: int, variable_retrieval_mode: object
    ) -> None:
        """Give each group of replicas its own value: slices along a first dimension."""
        self._group(self._parameter, comm_group_type, shards, variable_retrieval_mode)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._parameter, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._parameter, name, value)

    def __getitem__(self, index: "_Index | tuple[_Index, ...]") -> Tensor:
        return self._parameter[index]

    def __len__(self) -> int:
        return len(self._parameter)

    def __repr__(self) -> str:
        return repr(self._parameter)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN206
        """Torch functions get the parameter itself."""
        args, kwargs = tree_map(_unwrapped, (args, kwargs or {}))
        return func(*args, **kwargs)


def _unwrapped(value: object) -> object:
    return value._parameter if isinstance(value, ParameterOfModel) else value


def _operator(name: str) -> Callable:
    def apply(self: ParameterOfModel, *others: object) -> Tensor:
        return getattr(self._parameter, name)(*others)

    return apply


for (
    _name
) in "add radd sub rsub mul rmul truediv rtruediv matmul rmatmul pow neg lt le gt ge".split():
    setattr(ParameterOfModel, f"__{_name}__", _operator(f"__{_name}__"))
