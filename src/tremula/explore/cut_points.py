"""Where a model can be cut into stages, and what is between two cuts: flops and bytes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

_LISTS = (nn.ModuleList, nn.Sequential)
# A weight with more than this many times the elements of each other one is a table.
_TABLE_TO_OTHERS = 2
Ints = np.ndarray


@dataclass(frozen=True)
class ModelSegments:
    """What a forward pass does between places to cut; the first segment is before the first place.

    `names` are modules in the order they are first called: a stage can begin with each. Columns
    [n_places + 1]: `n_flops` float64 of one micro-batch forward, `n_weight_bytes` int64 of the
    parameters that are first used there, `n_bytes_in` int64 of the tensors given to the module,
    `n_bytes_made` int64 of all values that operations there compute, `n_table_bytes` int64 of
    weights with `least_of_table` elements or more, which are far larger than all others (0: there
    are none). `kinds` bool[n_places + 1, n_kinds]: operations there, by name and shapes.

    `home` is a module that uses weights of an earlier one again (tied), if there is any: it and
    what follows is counted with the first segment, and so is all up to the owner of these weights.
    """

    names: tuple[str, ...]
    n_flops: np.ndarray
    n_weight_bytes: Ints
    n_bytes_in: Ints
    n_bytes_made: Ints
    n_table_bytes: Ints
    kinds: np.ndarray
    least_of_table: int = 0
    home: str | None = None

    def __len__(self) -> int:
        return len(self.n_flops)


def places_of(model: nn.Module) -> list[str]:
    """Modules a stage can begin with: the members of lists, and modules that hold none."""
    return list(_places(model, ""))


def _places(module: nn.Module, prefix: str) -> Iterator[str]:
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if isinstance(child, _LISTS):
            yield from _members(child, path)
        elif any(isinstance(m, _LISTS) for m in child.modules()):
            yield from _places(child, f"{path}.")
        elif any(True for _ in child.parameters()):
            yield path


def _members(listed: nn.Module, prefix: str) -> Iterator[str]:
    for name, child in listed.named_children():
        path = f"{prefix}.{name}"
        if isinstance(child, _LISTS):
            yield from _members(child, path)
        elif any(True for _ in child.parameters()):
            yield path


def segments_of(
    model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object] | None = None
) -> ModelSegments:
    """Run the model on tensors without data, and note what happens between its places."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    tensors: dict[str, Tensor] = {
        name: mode.from_tensor(t.detach()) for name, t in _tensors_of(model)
    }
    with mode, torch.no_grad(), FlopCounterMode(display=False) as counter, _Made() as made:
        walk = _Walk(model, counter, made)
        try:
            fake_args, fake_kwargs = _faked((tuple(args), dict(kwargs or {})), mode)
            torch.func.functional_call(model, tensors, fake_args, fake_kwargs)
        finally:
            walk.remove()
        return walk.segments()


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _faked(value: object, mode: FakeTensorMode) -> Any:  # noqa: ANN401 - any structure of tensors
    return tree_map_only(Tensor, lambda t: mode.from_tensor(t.detach()), value)


class _Made(TorchDispatchMode):
    """What is computed: bytes of values, and operations by name and shapes; views are neither."""

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0
        self.operations: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: object,
        args: Any = (),  # noqa: ANN401
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:  # noqa: ANN401
        result = func(*args, **(kwargs or {}))
        if not getattr(func, "is_view", False) and (n_bytes := _n_bytes(result)):
            self.n_bytes += n_bytes
            shapes = [tuple(t.shape) for t in tree_leaves(args) if isinstance(t, Tensor)]
            self.operations.append(f"{func} {shapes}")
        return result


def _n_bytes(value: object) -> int:
    return sum(t.numel() * t.element_size() for t in tree_leaves(value) if isinstance(t, Tensor))


class _Walk:
    """Notes when the forward pass first comes to each place."""

    def __init__(self, model: nn.Module, counter: FlopCounterMode, made: _Made):
        self.model, self.counter, self.made = model, counter, made
        # Of each name: bytes given, and then flops, bytes and operations until then.
        self.begun: dict[str, tuple[int, float, int, int]] = {}
        self._handles = [
            model.get_submodule(name).register_forward_pre_hook(partial(self._note, name))
            for name in places_of(model)
        ]

    def _note(self, name: str, _: nn.Module, value: tuple) -> None:
        if name not in self.begun:
            self.begun[name] = _n_bytes(value), *self._count()

    def _count(self) -> tuple[float, int, int]:
        flops = float(self.counter.get_total_flops())
        return flops, self.made.n_bytes, len(self.made.operations)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def segments(self) -> ModelSegments:
        names, least = tuple(self.begun), least_of_tables(self.model)
        rows = [(0, 0.0, 0, 0), *self.begun.values(), (0, *self._count())]
        n_bytes_in, flops, made, n_operations = zip(*rows, strict=True)
        tables = self._weight_bytes(names, least) if least else np.zeros(len(rows) - 1, np.int64)
        columns = (
            np.diff(np.array(flops)),
            self._weight_bytes(names),
            np.array(n_bytes_in[:-1], np.int64),
            np.diff(np.array(made, np.int64)),
            tables,
            _kinds(self.made.operations, n_operations),
        )
        tie = self._tie(names)
        if tie is None:
            return ModelSegments(names, *columns, least)
        owner, user = tie
        folded = [_folded(column, owner, user) for column in columns]
        between, home = names[owner : user - 1], names[user - 1]
        return ModelSegments(between, *folded, least_of_table=least, home=home)

    def _owners(self, names: tuple[str, ...]) -> dict[int, int]:
        """The segment that uses each weight first, by its id; weights of no place are not in it."""
        owners: dict[int, int] = {}
        for row, name in enumerate(names, start=1):
            for weight in self.model.get_submodule(name).parameters():
                owners.setdefault(id(weight), row)
        return owners

    def _weight_bytes(self, names: tuple[str, ...], least: int = 0) -> Ints:
        """Of weights with `least` elements; those of no place's module are the first segment's."""
        owners = self._owners(names)
        total = np.zeros(len(names) + 1, np.int64)
        for weight in self.model.parameters():
            if weight.numel() >= least:
                total[owners.get(id(weight), 0)] += weight.numel() * weight.element_size()
        return total

    def _tie(self, names: tuple[str, ...]) -> tuple[int, int] | None:
        """The first segment that uses weights of an earlier one, after that one."""
        owners = self._owners(names)
        for row, name in enumerate(names, start=1):
            for weight in self.model.get_submodule(name).parameters():
                if owners[id(weight)] < row:
                    return owners[id(weight)], row
        return None


def least_of_tables(model: nn.Module) -> int:
    """Elements of the largest weight, if it is far larger than all others; 0 if it is not."""
    largest, second, *_ = (*sorted({w.numel() for w in model.parameters()}, reverse=True), 0, 0)
    return largest if second and largest > _TABLE_TO_OTHERS * second else 0


def _folded(column: np.ndarray, owner: int, user: int) -> np.ndarray:
    """Rows up to the owner, and from the user on, as one; then those between."""
    ends = np.concatenate((column[: owner + 1], column[user:]))
    first = ends.any(axis=0) if column.dtype == bool else ends.sum(axis=0)
    return np.concatenate((np.expand_dims(first, 0), column[owner + 1 : user]))


def _kinds(operations: Sequence[str], bounds: Sequence[int]) -> np.ndarray:
    """bool[n_segments, n_kinds] of operations in order, those of a segment between two bounds."""
    names, kind = np.unique(np.array(operations, str), return_inverse=True)
    result = np.zeros((len(bounds) - 1, len(names)), bool)
    result[np.searchsorted(bounds, np.arange(len(kind)), side="right") - 1, kind] = True
    return result


def balanced_cuts(weights: np.ndarray, n_stages: int) -> tuple[int, ...]:
    """Segments with which stages 1, 2, … begin, so that the heaviest stage is as light as can be.

    Of equally good cuts, the earliest. Weights are those of `ModelSegments`, [n]; n_stages ≤ n.
    """
    up_to = np.concatenate(([0.0], np.cumsum(weights)))
    costs = np.broadcast_to(up_to[None, :] - up_to[:, None], (n_stages, len(up_to), len(up_to)))
    return cheapest_cuts(costs)


def cheapest_cuts(costs: np.ndarray) -> tuple[int, ...]:
    """Cheapest cuts where segments begin … end - 1 cost costs[stage, begin, end] as a stage."""
    n_stages, n = costs.shape[0], costs.shape[1] - 1
    best = np.full((n_stages + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    begin = np.zeros((n_stages + 1, n + 1), np.int64)
    for stage in range(1, n_stages + 1):
        for end in range(stage, n + 1):
            first = np.arange(stage - 1, end)
            heaviest = np.maximum(best[stage - 1, first], costs[stage - 1, first, end])
            at = int(np.argmin(heaviest))
            best[stage, end], begin[stage, end] = heaviest[at], first[at]
    cuts, end = [], n
    for stage in range(n_stages, 1, -1):
        end = int(begin[stage, end])
        cuts.append(end)
    return tuple(reversed(cuts))
