"""Records what PyTorch does to fake tensors as an FX graph: one node per ATen call, in order."""

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from operator import getitem
from typing import Any, TypeGuard

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as _outside_the_recording
from torch.utils._pytree import tree_leaves, tree_map_only

from tremula.ir.errors import CaptureError
from tremula.ir.fake_results import call_with_fakes
from tremula.ir.graphs import StepGraph
from tremula.ir.nodes import (
    functional_overload,
    is_random,
    is_view,
    is_view_in_place,
    is_written,
    schema_name,
    type_name,
    written_arguments,
)
from tremula.ir.ops.markers import GRADIENT_MARK
from tremula.ir.origin import BACKWARD, FORWARD, ORIGIN, Origin
from tremula.ir.recording import Recording
from tremula.ir.tapes import CallTape

DEVICE = torch.device("ipu", 0)  # of every tensor, as a model that is recorded sees it
_META = torch.device("meta")
_SILENT = {"prim::device", "prim::layout"}  # questions about a tensor, not operations
# Each asks for a value or a shape that only running the model would tell.
_DATA_DEPENDENT = {
    "aten::_local_scalar_dense": "aten::item is only supported in eager mode: the value of a tensor"
    " is not known while a model is recorded",
    "aten::nonzero": "the shape of `nonzero` (or of indexing by a mask) depends on values",
    "aten::masked_select": "the shape of `masked_select` depends on values",
    "aten::_unique2": "the shape of `unique` depends on values",
    "aten::unique_dim": "the shape of `unique` depends on values",
    "aten::unique_consecutive": "the shape of `unique_consecutive` depends on values",
    "aten::repeat_interleave": "the shape of `repeat_interleave` by a tensor depends on values",
    "aten::equal": "the value of a tensor is not known while a model is recorded",
    "aten::is_nonzero": "the value of a tensor is not known while a model is recorded",
}


class Recorder(TorchDispatchMode):
    """Sits above the fake tensors: every ATen call below autograd becomes a node."""

    def __init__(self, recording: Recording, fakes: torch._subclasses.FakeTensorMode):
        super().__init__()
        self.recording = recording
        self.fakes = fakes
        self.graph = StepGraph()
        self.constants: dict[str, Tensor] = {}
        self.known_constants: dict[int, Tensor] = {}  # by id: what a model holds as attributes
        self._brought_in: dict[int, Tensor] = {}  # by id of a tensor from outside: its stand-in
        self._nodes: dict[int, fx.Node] = {}
        self._keep: list[Tensor] = []  # ids stay unique only while their tensors live
        self._last_placeholder: fx.Node | None = None
        self._origins_by_sequence: list[tuple[int, Origin]] = []
        self._tapes: dict[object, CallTape | None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: PyTorch wraps the modes that a compiler might trace, which takes time per call."""
        return False

    def node_of(self, tensor: Tensor) -> fx.Node:
        return self._nodes[id(tensor)]

    def replace_origin(self, node: fx.Node, origin: Origin) -> None:
        """Give a forward node another origin, which the nodes of its gradients will have, too."""
        old, node.meta[ORIGIN] = node.meta[ORIGIN], origin
        self._origins_by_sequence = [
            (number, origin if known is old else known)
            for number, known in self._origins_by_sequence
        ]

    def knows(self, value: object) -> bool:
        return id(value) in self._nodes

    def repeat(
        self,
        key: object,
        function: Callable[[Sequence[Tensor]], Sequence[Tensor]],
        tensors: Sequence[Tensor],
    ) -> list[Tensor]:
        """The results of `function(tensors)`, whose calls are the same for all equal keys.

        It runs for the first key of its kind; for the next ones the nodes it made are copied.
        """
        inputs = [self.node_of(tensor) for tensor in tensors]
        key = (key, *map(_kind_of, tensors))
        tape = self._tapes.get(key)
        if tape is None:
            last = next(iter(reversed(self.graph.nodes)))
            results = list(function(tensors))
            if key not in self._tapes:
                self._tapes[key] = CallTape.since(last, inputs, [self.node_of(t) for t in results])
            return results
        nodes, results = tape.play(self.graph, inputs, self._origin())
        for node in nodes:
            if isinstance(node.meta["val"], Tensor):
                self._bind(node, node.meta["val"])
        return [node.meta["val"] for node in results]

    def placeholder(self, name: str, fake: Tensor) -> fx.Node:
        """A graph input whose value inside the recording is `fake`."""
        with self.graph.inserting_after(self._last_placeholder):
            node = self.graph.placeholder(name)
        self._last_placeholder = node
        self._bind(node, fake)
        return node

    def constant(self, value: Tensor, fake: Tensor) -> fx.Node:
        """A tensor whose value is frozen into the program."""
        numbers = itertools.count(len(self.constants))
        names = (f"constant_{number}" for number in numbers)
        name = next(name for name in names if name not in self.constants)
        self.constants[name] = value
        node = self.graph.get_attr(name)
        node.meta[ORIGIN] = self._origin()
        self._bind(node, fake)
        return node

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        kwargs = kwargs or {}
        name = func._schema.name
        if name in _SILENT:
            if name == "prim::device" and type(args[0]) is FakeTensor:  # asked thousands of times
                fake = args[0]
                return _META if fake.fake_mode.in_kernel_invocation else fake.fake_device
            return func(*args, **kwargs)
        if name == "aten::lift_fresh" and not isinstance(args[0], _FAKE):
            fake = self._run(func, args, {})
            self.constant(args[0], fake)
            return fake
        if name == "aten::_to_copy" and not isinstance(args[0], Tensor):
            # torch.vmap converts the numbers beside a tensor, as tensors that look like numbers.
            func, kwargs = torch.ops.aten.scalar_tensor.default, {"dtype": kwargs["dtype"]}
        args, kwargs = self._on_the_device(args, kwargs)
        if self._is_outside(args, kwargs):
            with _outside_the_recording():
                return func(*args, **kwargs)
        if (
            name in _DATA_DEPENDENT
            and (known := self._known_result(func, args, kwargs)) is not None
        ):
            return known
        if _is_by_mask(name, args):
            args = (args[0], self._places_of_masks(args[1]), *args[2:])
        self._refuse_data_dependence(name, func, args)
        origin = self._origin()
        args, kwargs = _mapped(self._inside, args), _mapped(self._inside, kwargs)
        reshaped = self._may_be_reshaped(func, args, kwargs)
        try:
            result = self._run(func, args, kwargs)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            raise _as_real_tensors_say(func, args, kwargs, error) from None
        for tensor, before in reshaped:
            self._keep_shape(tensor, before)
        # squeeze_ and the like change how a tensor is seen, not its values: a view takes its place.
        recorded = functional_overload(func) if is_view_in_place(func) else func
        self._record(recorded, args, kwargs, result, origin)
        return result

    def _on_the_device(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """A call for the device of the model: a tensor from outside goes there as a constant."""
        device = kwargs.get("device")
        if device is None or torch.device(device).type != DEVICE.type:
            return args, kwargs
        args = tree_map_only(Tensor, self.bring_in, args)
        return args, {**kwargs, "device": torch.device("cpu")}  # where fakes of the device live

    def _is_outside(self, args: tuple, kwargs: dict) -> bool:
        """Whether a call only concerns tensors from outside: it is made now, and is no part."""
        tensors = list(_tensors_in((*args, *kwargs.values())))
        return bool(tensors) and not any(
            isinstance(t, _FAKE) or id(t) in self.known_constants for t in tensors
        )

    def _may_be_reshaped(
        self, func: OpOverload, args: tuple, kwargs: dict
    ) -> list[tuple[Tensor, Tensor]]:
        """Tensors whose shape a call may change, and what is like them now."""
        written = []
        if torch.Tag.inplace_view in func.tags:
            written = [args[0]]
        elif any(isinstance(kwargs.get(name), Tensor) for name in _out_names(func)):
            written = [kwargs[name] for name in _out_names(func) if name in kwargs]
        return [(tensor, tensor.detach()) for tensor in written]

    def _keep_shape(self, tensor: Tensor, before: Tensor) -> None:
        """Nodes that were this tensor so far keep their shape."""
        if tensor.shape == before.shape and tensor.stride() == before.stride():
            return
        for node in self.graph.nodes:
            if node.meta.get("val") is tensor:
                node.meta["val"] = before

    def _run(self, func: OpOverload, args: tuple, kwargs: dict) -> Any:  # noqa: ANN401
        """The call with fakes, which remember the shapes that calls with equal arguments give."""
        if torch.Tag.pointwise in func.tags and not any(map(_is_known, args)):
            # Shapes and types depend on no number's value: all numbers are equal.
            args = tuple(1.0 if type(value) is float else value for value in args)
        elif func is GRADIENT_MARK:  # whose number changes no shape
            args = (args[0], 0)
        return call_with_fakes(func, self.fakes, args, kwargs)

    def _record(
        self, func: OpOverload, args: tuple, kwargs: dict, result: object, origin: Origin
    ) -> None:
        node_args, node_kwargs = _mapped(self._as_node, args), _mapped(self._as_node, kwargs)
        node = self.graph.call_function(func, node_args, node_kwargs)
        node.meta[ORIGIN] = origin
        if isinstance(result, Tensor):
            self._bind(node, result)
        elif isinstance(result, tuple | list):
            node.meta["val"] = result
            self._bind_items(node, result, origin, is_write=func._schema.is_mutable)

    def _bind_items(
        self, node: fx.Node, results: tuple | list, origin: Origin, *, is_write: bool
    ) -> None:
        for index, item in enumerate(results):
            if not isinstance(item, Tensor) or (self.knows(item) and not is_write):
                continue  # an argument returned unchanged, such as by a dropout that drops nothing
            getter = self.graph.call_function(getitem, (node, index))
            getter.meta[ORIGIN] = origin
            self._bind(getter, item)

    def _bind(self, node: fx.Node, fake: Tensor) -> None:
        """From now on `node` is the tensor; an in-place operation gives its argument a new node."""
        node.meta.setdefault("val", fake)
        if id(fake) not in self._nodes:
            self._keep.append(fake)
        self._nodes[id(fake)] = node

    def _as_node(self, value: object) -> object:
        return self._nodes[id(value)] if isinstance(value, Tensor) else value

    def _inside(self, value: object) -> object:
        """A tensor from outside the recording is a constant the model holds, or an error."""
        if not isinstance(value, Tensor) or id(value) in self._nodes:
            return value
        if isinstance(value, _FAKE):
            raise CaptureError(
                "A tensor of another recording is used in this one.",
                source=self._origin().source,
                hint="make tensors in forward, or register them as buffers of the model",
            )
        if id(value) in self.known_constants or value.dim() == 0:
            return self.bring_in(value)
        shape, dtype = list(value.shape), type_name(value.dtype)
        raise CaptureError(
            f"Expected an IPU tensor but got tensor(device=cpu, shape={shape}, dtype={dtype})",
            source=self._origin().source,
            hint="move it there with .to(x.device), make it with torch.tensor(…) inside forward,"
            " pass it as an input, or register it as a buffer",
        )

    def bring_in(self, value: Tensor) -> Tensor:
        """The constant that a tensor from outside becomes: one, whose later writes are seen."""
        if isinstance(value, _FAKE):
            return value
        is_held = id(value) in self.known_constants
        if is_held and id(value) in self._brought_in:
            return self._brought_in[id(value)]
        with _outside_the_recording():  # the value itself, not a fake of it
            constant = value.detach().clone()
            fake = self.fakes.from_tensor(constant)
        self.constant(constant, fake)
        if is_held:
            self._brought_in[id(value)] = fake
        return fake

    def _known_result(self, func: OpOverload, args: tuple, kwargs: dict) -> object:
        """The result of an operation that reads values, if all of them are constants."""
        values = tree_map_only(Tensor, lambda t: known_value(self, t), (args, kwargs))
        if any(v is None for v in tree_leaves(values)):
            return None
        with _outside_the_recording():
            result = func(*values[0], **values[1])
            if not isinstance(result, Tensor):
                return result
            fake = self.fakes.from_tensor(result)
        self.constant(result, fake)
        return fake

    def _places_of_masks(self, indices: list[Tensor | None]) -> list[Tensor | None]:
        """Masks whose values are known as the indices of what they select."""
        result: list[Tensor | None] = []
        for index in indices:
            value = known_value(self, index) if _is_mask(index) else None
            if value is None:
                result.append(index)
                continue
            with _outside_the_recording():
                places = value.bool().nonzero(as_tuple=True)
            result += [self.bring_in(place) for place in places]
        return result

    def _refuse_data_dependence(self, name: str, func: object, args: tuple) -> None:
        why = _DATA_DEPENDENT.get("aten::nonzero" if _is_by_mask(name, args) else name)
        if why is None or _is_known(args[0]):
            return
        raise CaptureError(
            f"{why} ({func}).",
            source=self._origin().source,
            hint="shapes and branches are fixed when a model is compiled: use torch.where, a mask"
            " or a fixed size",
        )

    def _origin(self) -> Origin:
        """Forward operations know their place; backward ones take that of what they derive.

        Autograd numbers the nodes it makes, one after another; a backward node has the number of
        its forward operation. While forward runs, we note (number, origin) of every operation:

            forward      aten::mm      (7, layer1)      aten::relu   (8, layer1)
            backward     ReluBackward  sequence 8   →   layer1, in phase backward

        Operations that make no autograd node repeat a number; the first entry is the one that made
        it. A number not noted is that of a Python autograd function: what ran before it counts.
        """
        differentiating = torch._C._current_autograd_node()
        if differentiating is None or self.recording.phase == FORWARD:
            origin = self.recording.origin()
            if self.recording.phase == FORWARD:
                # The node of this operation was numbered just before we are called.
                number = _next_sequence_number() - 1
                self._origins_by_sequence.append((number, origin))
            return origin
        number = differentiating._sequence_nr()
        known = self._origins_by_sequence
        place = bisect.bisect_left(known, number, key=lambda pair: pair[0])
        if place == len(known) or known[place][0] != number:
            place -= 1
        origin = known[max(place, 0)][1].in_phase(BACKWARD)
        # Gradients are computed without a tape; what torch.utils.checkpoint runs again has one.
        return replace(origin, is_recomputed=True) if torch.is_grad_enabled() else origin


def _kind_of(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad


def _is_known(value: object) -> bool:
    """Whether a fake knows its value, and that of what is computed from it."""
    return getattr(value, "constant", None) is not None


def _mapped(function: Callable[[object], object], value: Any) -> Any:  # noqa: ANN401
    """Arguments of a call with a function applied to all that is no tuple, list or dictionary."""
    if type(value) is tuple or type(value) is list:
        return type(value)([_mapped(function, part) for part in value])
    if type(value) is dict:
        return {name: _mapped(function, part) for name, part in value.items()}
    return function(value)


def _tensors_in(values: Iterable[object]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) is tuple or type(value) is list:
            yield from _tensors_in(value)


@cache
def _out_names(func: OpOverload) -> tuple[str, ...]:
    """The arguments of `out=`."""
    return tuple(a.name for a in func._schema.arguments if a.kwarg_only and is_written(a))


def _is_by_mask(name: str, args: tuple) -> bool:
    """x[mask]: only running the model would tell how many elements that has."""
    return name == "aten::index" and any(_is_mask(index) for index in args[1])


def _is_mask(index: Tensor | None) -> TypeGuard[Tensor]:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _as_real_tensors_say(func: Callable, args: tuple, kwargs: dict, error: Exception) -> Exception:
    """The error PyTorch raises for real tensors: fake tensors word errors differently."""

    def real(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        return torch.zeros(value.shape, dtype=value.dtype, device="cpu")

    try:
        with _outside_the_recording(), torch.no_grad():
            func(*_mapped(real, args), **_mapped(real, kwargs))
    except Exception as said:  # noqa: BLE001 - whatever it is, it is the model's
        return said
    return error


# torch's stubs hide it.
_next_sequence_number = torch.autograd._get_sequence_nr  # pyright: ignore[reportPrivateImportUsage]
_FAKE = torch._subclasses.FakeTensor


# -- values known while recording: constants, and what is computed from them -----------------------


def known_value(recorder: Recorder, tensor: Tensor) -> Tensor | None:
    """The value of a tensor of the recording, or None if only running the model would tell."""
    if not isinstance(tensor, _FAKE) and id(tensor) in recorder.known_constants:
        tensor = recorder.bring_in(tensor)
    if not isinstance(tensor, _FAKE):
        return tensor
    if not recorder.knows(tensor):
        return None
    with _outside_the_recording():
        return _evaluated(recorder.node_of(tensor), recorder.constants, {})


def known_number(recorder: Recorder, tensor: Tensor) -> int | None:
    """The whole number that a tensor of one element holds, if it is known."""
    value = known_value(recorder, tensor)
    with _outside_the_recording():  # reading it is no operation of the model
        return None if value is None else int(value)


def _evaluated(node: fx.Node, constants: dict[str, Tensor], known: dict[fx.Node, Any]) -> Any:  # noqa: ANN401 - what an operation gives
    if node in known:
        return known[node]
    value = None
    if node.op == "get_attr":
        value = constants[str(node.target)]
    elif _compares_a_draw(node):
        value = _decided_for_all_draws(node, constants, known)
    elif node.op == "call_function" and not is_random(node):
        operands = [_evaluated(n, constants, known) for n in node.all_input_nodes]
        if not any(o is None for o in operands):
            values = dict(zip(node.all_input_nodes, operands, strict=True))
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            args, kwargs = tree_map_only(Tensor, Tensor.clone, (args, kwargs))  # it may write them
            value = node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]
    if value is not None and _is_written_through_a_view(node):
        value = None
    known[node] = value
    return value


_COMPARISONS = {f"aten::{name}" for name in ("lt", "le", "gt", "ge")}
_SAME_VALUES = {f"aten::{name}" for name in ("detach", "alias", "clone")}


def _compares_a_draw(node: fx.Node) -> bool:
    """`torch.rand([]) < p`: what models write that skip a layer now and then."""
    is_comparison = node.op == "call_function" and schema_name(node) in _COMPARISONS
    return is_comparison and any(_is_draw(n) for n in node.all_input_nodes)


def _is_draw(node: fx.Node) -> bool:
    while node.op == "call_function" and schema_name(node) in _SAME_VALUES:
        node = node.all_input_nodes[0]
    return node.op == "call_function" and schema_name(node) == "aten::rand"


def _decided_for_all_draws(
    node: fx.Node, constants: dict[str, Tensor], known: dict[fx.Node, Any]
) -> Tensor | None:
    """A comparison that is the same for the least and the largest draw, as with p = 0; or None."""
    results = []
    for is_largest in (False, True):
        values = {
            n: _extreme_draw(n, is_largest=is_largest)
            if _is_draw(n)
            else _evaluated(n, constants, known)
            for n in node.all_input_nodes
        }
        if any(v is None for v in values.values()):
            return None
        args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        results.append(node.target(*args, **kwargs))  # pyright: ignore[reportCallIssue]
    return results[0] if torch.equal(*results) else None


def _extreme_draw(node: fx.Node, *, is_largest: bool) -> Tensor:
    """The least or the largest numbers that `torch.rand` draws: from 0 to below 1."""
    like = node.meta["val"]
    below_one = torch.nextafter(torch.ones((), dtype=like.dtype), torch.zeros((), dtype=like.dtype))
    value = float(below_one) if is_largest else 0.0
    return torch.full(like.shape, value, dtype=like.dtype)


def _is_written_through_a_view(node: fx.Node) -> bool:
    """Whether its elements may have changed; a write to the tensor itself made a new node."""
    views = [user for user in node.users if is_view(user.target)]
    return any(
        _is_written_through_a_view(view)
        or any(written_arguments(user.target) for user in view.users)
        for view in views
    )
