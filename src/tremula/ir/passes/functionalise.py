"""Pass: writes become new values. Views follow their base; what a step changes is a result.

The recorded program writes memory that several tensors may see. Here each recorded tensor is a
*base* (storage) seen through a *chain* of views; only the base has a value, a node of the new one:

    recorded                new graph                          base of x     chain
    x = placeholder         x                                  x, version 0
    v = x[0]                (nothing yet)                                    v: (select,)
    v.add_(1)               s = select(x, 0); a = add(s, 1)
                            x1 = select_scatter(x, a, 0)       x1, version 1
    y = x * v               s1 = select(x1, 0); y = x1 * s1

*Reading* applies the chain to the base's value, and caches the result for that version of the base.
*Writing* goes up the chain: at each view, its inverse (`passes/views.py`) puts the new part into
what the view looks at; what comes out at the top is the base's new value, and its version grows by
1. At the end, results that only repeat a parameter, buffer or input never written are dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import getitem

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import Argument
from torch.utils._pytree import tree_map_only

from tremula.ir.errors import CaptureError
from tremula.ir.fake_results import is_plain_fake, new_contiguous_fake, new_fake_like
from tremula.ir.graphs import StepGraph
from tremula.ir.nodes import (
    functional_overload,
    is_view,
    operand,
    overload_of,
    schema_name,
    type_name,
    whole,
    written_arguments,
)
from tremula.ir.origin import FORWARD, ORIGIN, Origin
from tremula.ir.passes.clean import IDENTITIES
from tremula.ir.passes.views import written_view
from tremula.ir.step import OUTPUT, CapturedStep

aten = torch.ops.aten


@dataclass
class _Base:
    """Storage: the node that now holds all of it, and how often it was written."""

    value: fx.Node
    version: int = 0


@dataclass
class _Tensor:
    """A tensor of the recorded program: a base seen through a chain of view operations."""

    base: _Base
    chain: tuple[fx.Node, ...] = ()  # the view calls of the recorded graph, outermost first
    item: dict[fx.Node, int] = field(default_factory=dict)  # which output of a multi-output view
    cached: tuple[int, fx.Node] | None = None  # version of the base, value


def functionalise(step: CapturedStep) -> CapturedStep:
    """The step without writes. Results that only repeat an unchanged input are dropped."""
    return _functional(step, rejects_steps=True)


def functionalise_decompositions(step: CapturedStep) -> CapturedStep:
    """As `functionalise`, for decomposed operations, which may write every other element."""
    return _functional(step, rejects_steps=False)


def _functional(step: CapturedStep, *, rejects_steps: bool) -> CapturedStep:
    work = _Functionaliser(step, rejects_steps)
    for node in step.graph.nodes:
        work.visit(node)
    graph, outputs = work.finish()
    return step.with_graph(graph, outputs=tuple(outputs))


class _Functionaliser:
    """Walks the recorded graph once, in order, and writes the new one."""

    def __init__(self, step: CapturedStep, rejects_steps: bool):
        self.step = step
        self.rejects_steps = rejects_steps
        self.new = StepGraph()
        self.tensors: dict[fx.Node, _Tensor] = {}
        self.others: dict[fx.Node, fx.Node] = {}  # nodes with several results
        self.written: dict[fx.Node, list[_Tensor]] = {}  # what `out=` with several tensors wrote
        self.origin: Origin | None = None
        self.taken: set[int] = set()  # ids of the fakes that nodes of the new graph have

    def visit(self, node: fx.Node) -> None:
        self.origin = node.meta.get(ORIGIN)
        if node.op in ("placeholder", "get_attr"):
            self._own(node.meta["val"])
            self._fresh(node, self.new.node_copy(node))
        elif node.op == "call_function":
            self._call(node)

    def finish(self) -> tuple[fx.Graph, list]:
        slots, results = [], []
        inputs = {
            (s.kind, s.index): n for s, n in zip(self.step.inputs, self._inputs(), strict=True)
        }
        for slot, node in zip(self.step.outputs, self.step.results(), strict=True):
            value = self.read(node)
            if slot.kind != OUTPUT and value is inputs.get((slot.kind, slot.index)):
                continue  # never written
            slots.append(slot)
            results.append(value)
        self.new.output(results)
        return self.new, slots

    def _inputs(self) -> list[fx.Node]:
        return [node for node in self.new.nodes if node.op == "placeholder"]

    def read(self, node: fx.Node) -> fx.Node:
        """The node of the new graph with the current value of a recorded tensor."""
        tensor = self.tensors[node]
        if tensor.cached is not None and tensor.cached[0] == tensor.base.version:
            return tensor.cached[1]
        value = tensor.base.value
        for view in tensor.chain:
            value = self._apply_view(view, value, tensor)
        tensor.cached = (tensor.base.version, value)
        return value

    def _call(self, node: fx.Node) -> None:
        if node.target is getitem:
            self._getitem(node)
        elif node.target in WRITTEN_THROUGH and _writes_statistics(node):
            self._written_through(node)
        elif node.target is aten._native_batch_norm_legit.default:  # it only reads them
            self._plain(node, aten._native_batch_norm_legit_no_training.default, (5,))
        elif written := written_arguments(node.target):
            self._write(node, [_written_node(node, place) for place in written])
        elif is_view(node.target) and isinstance(node.args[0], fx.Node):
            self._view(node)
        else:
            self._plain(node)

    def _plain(
        self, node: fx.Node, target: Callable | None = None, without: tuple[int, ...] = ()
    ) -> None:
        """The call as it is, or one of another operation that takes fewer arguments."""
        if "val" not in node.meta:
            return  # no result and no write: a check that raises in PyTorch
        copy = self.new.node_copy(node, self.read_or_other)
        if target is not None:
            copy.target = target
            copy.args = tuple(a for i, a in enumerate(copy.args) if i not in without)
        copy.meta["val"] = self._own(node.meta["val"])
        if isinstance(node.meta["val"], Tensor):
            self._fresh(node, copy)
        else:
            self.others[node] = copy

    def read_or_other(self, node: fx.Node) -> fx.Node:
        return self.others[node] if node in self.others else self.read(node)

    def _getitem(self, node: fx.Node) -> None:
        source, index = node.args
        if isinstance(source, fx.Node) and source in self.written:
            self.tensors[node] = self.written[source][whole(index)]
            return
        if source in self.tensors:  # an output of a view with several
            base = self.tensors[source]
            item = {**base.item, base.chain[-1]: index}
            self.tensors[node] = _Tensor(base.base, base.chain, item)
            return
        self._fresh(node, self.new.node_copy(node, self.read_or_other))

    def _view(self, node: fx.Node) -> None:
        of = self.tensors[operand(node)]
        self.tensors[node] = _Tensor(of.base, (*of.chain, node), dict(of.item))

    def _apply_view(self, view: fx.Node, value: fx.Node, tensor: _Tensor) -> fx.Node:
        if view.target in IDENTITIES:
            return value
        item = tensor.item.get(view)
        # A base that was written may have other strides, which a reshape does not mind.
        is_moved = tensor.base.version > 0 and view.target in _NEEDS_STRIDES
        if is_moved:
            node = self.emit(aten.reshape.default, (value, view.args[1]), like=view)
        else:
            node = self.emit(overload_of(view), (value, *view.args[1:]), view.kwargs, like=view)
        if item is None:
            return node
        part = self.emit(getitem, (node, item))
        part.meta["val"] = node.meta["val"][item]
        return part

    def _write(self, node: fx.Node, targets: list[fx.Node]) -> None:
        """target.op_(…), op(…, out=target): the functional operation, then its values stored."""
        result = self._functional_value(node, targets[0])
        values = [result]
        if len(targets) > 1:
            items = enumerate(result.meta["val"])
            values = [self.emit(getitem, (result, i), val=fake) for i, fake in items]
        for target, value in zip(targets, values, strict=True):
            self._store(target, self._in_type_of(target, value))
        now = [_seen_alike(self.tensors[target]) for target in targets]
        if len(targets) == 1:
            self.tensors[node] = now[0]
        else:
            self.written[node] = now

    def _in_type_of(self, target: fx.Node, value: fx.Node) -> fx.Node:
        """What is written takes the type of the tensor it goes to."""
        dtype, got = target.meta["val"].dtype, value.meta["val"]
        if got.dtype == dtype:
            return value
        return self.emit(aten._to_copy.default, (value,), {"dtype": dtype}, val=got.to(dtype))

    def _store(self, target: fx.Node, value: fx.Node) -> None:
        tensor = self.tensors[target]
        if target.meta["val"].shape != value.meta["val"].shape:  # `out=` resized it
            tensor = self.tensors[target] = _Tensor(_Base(value))
            return
        for depth in reversed(range(len(tensor.chain))):
            view = tensor.chain[depth]
            around = tensor.base.value
            for outer in tensor.chain[:depth]:
                around = self._apply_view(outer, around, tensor)
            self._check_steps(view)
            value = written_view(self, view, around, value, tensor.item.get(view))
        tensor.base.value = value
        tensor.base.version += 1

    def _check_steps(self, view: fx.Node) -> None:
        has_steps = view.target is aten.slice.Tensor and len(view.args) > 4 and view.args[4] != 1
        is_users = self.origin is None or self.origin.phase == FORWARD
        if has_steps and is_users and self.rejects_steps:
            raise CaptureError(
                "In-place modification of slices with step size other than 1 is not supported.",
                source=self.origin.source if self.origin is not None else None,
                hint="write the value into a new tensor with torch.where",
            )

    def _functional_value(self, node: fx.Node, target: fx.Node) -> fx.Node:
        schema = overload_of(node)._schema
        out_names = {schema.arguments[place].name for place in written_arguments(node.target)}
        args = tuple(self._argument(a) for a in node.args)
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items() if k not in out_names}
        special = _FUNCTIONAL_FORMS.get(schema_name(node))
        if special is not None:
            return special(self, target, args, kwargs)
        func = functional_overload(overload_of(node))
        takes = {a.name for a in func._schema.arguments}
        if out_names & set(node.kwargs) and "dtype" in takes and kwargs.get("dtype") is None:
            kwargs["dtype"] = target.meta["val"].dtype  # sums and factories take that of `out=`
        value = _value_of(func, args, kwargs, target)
        if not out_names & set(node.kwargs):
            self._check_type(value, target)
        return self.emit(func, args, kwargs, val=value)

    def _check_type(self, value: object, target: fx.Node) -> None:
        """PyTorch's rule for operations in place, which fake tensors do not always keep."""
        to = target.meta["val"].dtype
        if isinstance(value, Tensor) and not torch.can_cast(value.dtype, to):
            got, wanted = (type_name(dtype) for dtype in (value.dtype, to))
            raise RuntimeError(
                f"result type {got} can't be cast to the desired output type {wanted}"
            )

    def _argument(self, value: Argument) -> Argument:
        return fx.map_arg(value, self.read_or_other)

    def _written_through(self, node: fx.Node) -> None:
        """An operation that writes some of its arguments and returns them as further results."""
        func, written = WRITTEN_THROUGH[node.target]
        func, args, kwargs = func(self, node)
        call = self.emit(func, args, kwargs, val=None)
        n_results = len(node.meta["val"])
        self.others[node] = call
        extra = [a for a in (node.args[i] for i in written) if isinstance(a, fx.Node)]
        news = [a.meta["val"].detach().clone() for a in extra]
        call.meta["val"] = (*node.meta["val"], *news)
        for offset, target in enumerate(extra):
            new = self.emit(getitem, (call, n_results + offset), val=news[offset])
            self._store(target, new)

    def _own(self, value: object) -> object:
        """Fakes that no other node has: the old and the new value are two tensors from now on."""

        def own(fake: Tensor) -> Tensor:
            fake = _another(fake) if id(fake) in self.taken else fake
            self.taken.add(id(fake))
            return fake

        return own(value) if isinstance(value, Tensor) else tree_map_only(Tensor, own, value)

    def _fresh(self, node: fx.Node, value: fx.Node) -> None:
        self.tensors[node] = _Tensor(_Base(value), cached=(0, value))

    def emit(
        self,
        func: Callable,
        args: tuple,
        kwargs: dict | None = None,
        *,
        like: fx.Node | None = None,
        val: object = None,
    ) -> fx.Node:
        """A new node, with the origin of the recorded one it comes from."""
        node = self.new.call_function(func, args, kwargs or {})
        node.meta["val"] = self._own(like.meta["val"] if like is not None else val)
        if self.origin is not None:
            node.meta[ORIGIN] = self.origin
        return node


def _value_of(func: Callable, args: tuple, kwargs: dict, target: fx.Node) -> object:
    """The fake value of a call: its type may be another than that of what it is written to."""
    values = fx.map_arg((args, kwargs), lambda node: node.meta["val"])
    with target.meta["val"].fake_mode:
        return func(*values[0], **values[1])


def _seen_alike(tensor: _Tensor) -> _Tensor:
    return _Tensor(tensor.base, tensor.chain, dict(tensor.item))


def _another(tensor: Tensor) -> Tensor:
    """A new fake tensor with the shape and type of another."""
    alike = new_fake_like(tensor)
    if alike is not None:
        return alike
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in steps)
    if span == tensor.numel():
        return tensor.detach().clone()
    assert isinstance(tensor, FakeTensor), "recorded values are fakes"
    if is_plain_fake(tensor):
        return new_contiguous_fake(tensor)
    with tensor.fake_mode:  # clone would ask the device itself for memory
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _written_node(node: fx.Node, position: int) -> fx.Node:
    """The argument that is written: `out=`, or the one at `position`."""
    name = overload_of(node)._schema.arguments[position].name
    written = node.kwargs[name] if name in node.kwargs else node.args[position]
    assert isinstance(written, fx.Node), f"{node.target} writes {written}, not a node"
    return written


def _copy(work: _Functionaliser, target: fx.Node, args: tuple, _kwargs: dict) -> fx.Node:
    value, like = args[1], target.meta["val"]
    got = value.meta["val"]
    if got.dtype != like.dtype:
        got = got.to(like.dtype)
        value = work.emit(aten._to_copy.default, (value,), {"dtype": like.dtype}, val=got)
    if got.shape != like.shape:
        value = work.emit(aten.expand.default, (value, list(like.shape)), val=like)
    return value


def _filled(work: _Functionaliser, target: fx.Node, args: tuple, _kwargs: dict) -> fx.Node:
    value = next(iter(args[1:]), 0)
    if isinstance(value, fx.Node):
        return _copy(work, target, (args[0], value), {})
    like = target.meta["val"]
    return work.emit(aten.full.default, (list(like.shape), value), {"dtype": like.dtype}, val=like)


def _normal(work: _Functionaliser, target: fx.Node, args: tuple, kwargs: dict) -> fx.Node:
    return work.emit(aten.normal_functional.default, args, kwargs, like=target)


def _bernoulli(work: _Functionaliser, target: fx.Node, args: tuple, kwargs: dict) -> fx.Node:
    """In place, p is 0.5 where it is not given; the functional form has no such default."""
    kwargs = dict(kwargs)
    p = kwargs.pop("p", 0.5) if len(args) == 1 else args[1]
    func = aten.bernoulli.Tensor if isinstance(p, fx.Node) else aten.bernoulli.p
    return work.emit(func, (args[0], p), kwargs, like=target)


def _random(work: _Functionaliser, target: fx.Node, args: tuple, kwargs: dict) -> fx.Node:
    """Whole numbers from the first given one to below the last; else as many as the type has."""
    like = target.meta["val"]
    bounds = [kwargs.get(name) for name in ("from", "to") if name in kwargs] or list(args[1:])
    low, high = bounds if len(bounds) == 2 else (0, *(bounds or [None]))
    if high is None:
        high = _n_whole_numbers(like.dtype)
    shape = list(like.shape)
    return work.emit(aten.randint.low, (low, high, shape), {"dtype": like.dtype}, val=like)


def _n_whole_numbers(dtype: torch.dtype) -> int:
    """One more than the largest that random_ draws; 64-bit integers are 32-bit ones here."""
    if dtype is torch.bool:
        return 2
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps) + 1
    return min(torch.iinfo(dtype).max, torch.iinfo(torch.int32).max)


# In-place operations whose functional form has another name or needs no old value.
_FUNCTIONAL_FORMS = {
    "aten::copy_": _copy,
    "aten::zero_": _filled,
    "aten::fill_": _filled,
    "aten::normal_": _normal,
    "aten::bernoulli_": _bernoulli,
    "aten::random_": _random,
}


def _functional_batch_norm(work: _Functionaliser, node: fx.Node) -> tuple:
    func = aten._native_batch_norm_legit_functional.default
    return func, tuple(work._argument(a) for a in node.args), {}


def _functional_training(work: _Functionaliser, node: fx.Node) -> tuple:
    """Batch norm that always trains, so it does not say so."""
    *tensors, momentum, epsilon = (work._argument(a) for a in node.args)
    func = aten._batch_norm_with_update_functional.default
    return func, (*tensors, momentum, epsilon), {}


def _writes_statistics(node: fx.Node) -> bool:
    is_training = node.target is aten._batch_norm_with_update.default or bool(node.args[5])
    return is_training and node.args[3] is not None


# Operations that write running statistics without saying so in their schema.
WRITTEN_THROUGH: dict[object, tuple[Callable, tuple[int, ...]]] = {
    aten.native_batch_norm.default: (_functional_batch_norm, (3, 4)),
    aten._native_batch_norm_legit.default: (_functional_batch_norm, (3, 4)),
    aten._batch_norm_with_update.default: (_functional_training, (3, 4)),
}
_NEEDS_STRIDES = {aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default}
