"""Pass: operations without a lowering are decomposed into operations that have one."""

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes as _outside_the_recording
from torch.utils._pytree import tree_map_only

from tremula.ir.complex_pair import Pair, is_complex
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.nodes import operand, overload_name, overload_of, schema_name
from tremula.ir.op_table import complex_rule_of, decomposition_of, has_lowering
from tremula.ir.origin import FORWARD, ORIGIN, Origin
from tremula.ir.recorder import Recorder
from tremula.ir.recording import Recording
from tremula.ir.step import CapturedStep


def decompose(step: CapturedStep) -> CapturedStep:
    """Run the graph on fake tensors again, decomposing what has no lowering."""
    return _Decomposer(step).run()


class _Decomposer(Recorder):
    """Records again; every node it makes keeps the origin of the node it came from.

    A complex tensor has no node: a fake represents it, and `pairs` knows its two parts, which have.
    """

    def __init__(self, step: CapturedStep):
        fakes = [
            v.fake_mode for n in step.graph.nodes if hasattr(v := n.meta.get("val"), "fake_mode")
        ]
        super().__init__(Recording(step.training), fakes[0] if fakes else FakeTensorMode())
        self.step = step
        self.current: Origin | None = None
        self.values: dict[fx.Node, Any] = {}
        self.constants = dict(step.constants)
        self._tuples: dict[fx.Node, fx.Node] = {}  # kept calls with several results
        self.pairs: dict[int, Pair] = {}  # by the id of the fake that represents a complex tensor
        self._has_complex = any(_any_complex(n.meta.get("val")) for n in step.graph.nodes)

    def run(self) -> CapturedStep:
        with self.fakes, torch.no_grad():
            for node in self.step.graph.nodes:
                self.visit(node)
        return self.step.with_graph(self.graph, constants=self.constants)

    def visit(self, node: fx.Node) -> None:
        self.current = node.meta.get(ORIGIN)
        if node.op in ("placeholder", "get_attr") and is_complex(node.meta["val"]):
            self._visit_complex(node)
        elif node.op in ("placeholder", "get_attr"):
            copy = self.graph.node_copy(node)
            self._bind(copy, node.meta["val"])
            self.values[node] = node.meta["val"]
        elif node.op == "output":
            self.graph.output(fx.map_arg(node.args[0], self._result))
        else:
            self._call(node)

    def _call(self, node: fx.Node) -> None:
        expand = None if has_lowering(node.target) else decomposition_of(node.target)
        if expand is None and not self._has_complex:
            self._keep_call(node)
            return
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        if node.target is not getitem and (
            self._is_complex(node.target, args, kwargs) or _any_complex(node.meta["val"])
        ):
            with self:
                self.values[node] = self._of_complex(overload_of(node), args, kwargs)
            return
        if expand is None:
            self._keep_call(node)
            return
        with self:
            result = self._expanded(node, expand, args, kwargs)
        self.values[node] = self._as_recorded(result, node.meta["val"])

    def _expanded(self, node: fx.Node, expand: Callable, args: tuple, kwargs: dict) -> Any:  # noqa: ANN401
        """The nodes of a decomposition; that of attention is recorded once for equal shapes."""
        args = _plain(args)
        if schema_name(node) not in _RECORDED_ONCE:
            return expand(*args, **kwargs)
        named = dict(enumerate(args)) | kwargs
        tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
        others = tuple((n, type(v), v) for n, v in named.items() if n not in tensors)

        def run(values: Sequence[Tensor]) -> Sequence[Tensor]:
            now = named | dict(zip(tensors, values, strict=True))
            return expand(*(now[i] for i in range(len(args))), **{k: now[k] for k in kwargs})

        key = (node.target, others, tuple(tensors))
        return tuple(self.repeat(key, run, list(tensors.values())))

    def _as_recorded(self, result: Any, recorded: Any) -> Any:  # noqa: ANN401
        """A result with the strides the recording saw: gradients of determinants depend on them."""
        is_tensor = isinstance(result, Tensor) and isinstance(recorded, Tensor)
        if not is_tensor or result.is_complex() or result.stride() == recorded.stride():
            return result
        self._bind(self.node_of(result), recorded)
        return recorded

    def _keep_call(self, node: fx.Node) -> None:
        """Copy a node. Its fake result is what it was: nothing needs to be computed again."""
        if node.target is getitem:
            value = self.values[operand(node)][node.args[1]]
            if self.knows(value) or id(value) in self.pairs:  # of what was decomposed
                self.values[node] = value
                return
        as_node = fx.map_arg((node.args, node.kwargs), self._node_for)
        copy = self.graph.create_node("call_function", node.target, *as_node)
        copy.meta.update(node.meta)
        self.values[node] = node.meta["val"]
        if isinstance(node.meta["val"], Tensor):
            self._bind(copy, node.meta["val"])
        else:
            self._tuples[node] = copy

    def _node_for(self, node: fx.Node) -> fx.Node:
        if node in self._tuples:
            return self._tuples[node]
        return self.node_of(self.values[node])

    def __torch_dispatch__(
        self, func: OpOverload, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        if self._is_complex(func, args, kwargs or {}):
            with self:
                return self._of_complex(func, args, kwargs or {})
        expand = None if has_lowering(func) else decomposition_of(func)
        if expand is not None:
            with self:
                return expand(*args, **(kwargs or {}))
        if _is_composite(func) and not has_lowering(func):
            with self:  # below autograd it is still whole
                return func.decompose(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _origin(self) -> Origin:
        return self.current or Origin(FORWARD)

    # -- complex numbers ---------------------------------------------------------------------------

    def _is_complex(self, func: object, args: tuple, kwargs: dict) -> bool:
        return func in _MAKE_COMPLEX or _any_complex(args) or _any_complex(kwargs)

    def _of_complex(self, func: OpOverload, args: tuple, kwargs: dict) -> object:
        """The operation by its rule for complex numbers, else by what it is composed of."""
        rule = complex_rule_of(func)
        if rule is not None:
            args, kwargs = tree_map_only(Tensor, self._parts, (args, kwargs))
            return tree_map_only(Pair, self._stand_in, rule(*args, **kwargs))
        expand = decomposition_of(func)
        if expand is not None:
            return expand(*args, **kwargs)
        if _is_composite(func):
            return func.decompose(*args, **kwargs)
        origin = self._origin()
        raise UnsupportedOperations(
            f"Unsupported ops found in compiled model: [{overload_name(func)}]. On complex numbers"
            f" the tile program does not have it: {origin.module or 'the model'}, {origin.source}",
            source=origin.source,
            hint="write it with torch.view_as_real, or add a rule (docs/lowering.md)",
        )

    def _parts(self, tensor: Tensor) -> Pair | Tensor:
        return self.pairs[id(tensor)] if tensor.is_complex() else tensor

    def _stand_in(self, pair: Pair) -> Tensor:
        """A fake complex tensor for decompositions to look at; the parts are what is recorded."""
        dtype = pair.re.dtype.to_complex()
        with _outside_the_recording(), self.fakes:
            fake = torch.empty(pair.re.shape, dtype=dtype, device=pair.re.device)
        self._keep.append(fake)
        self.pairs[id(fake)] = pair
        return fake

    def _visit_complex(self, node: fx.Node) -> None:
        """An input is one tensor with both parts beside each other, a constant is two."""
        value = node.meta["val"]
        if node.op == "placeholder":
            with _outside_the_recording(), self.fakes:
                fake = torch.empty((*value.shape, 2), dtype=value.dtype.to_real())
            copy = self.graph.node_copy(node)
            copy.meta["val"] = fake
            self._bind(copy, fake)
            with self:
                pair = Pair(fake.select(-1, 0), fake.select(-1, 1))
        else:
            with _outside_the_recording():
                both = torch.view_as_real(self.constants[str(node.target)].resolve_conj())
                re, im = (part.contiguous() for part in both.unbind(-1))
            pair = Pair(self._new_constant(re), self._new_constant(im))
        self.values[node] = self._stand_in(pair)

    def _new_constant(self, value: Tensor) -> Tensor:
        with _outside_the_recording():
            fake = self.fakes.from_tensor(value)
        self.constant(value, fake)
        return fake

    def _result(self, node: fx.Node) -> fx.Node:
        """The node of a result of the step."""
        value = self.values[node]
        pair = self.pairs.get(id(value))
        if pair is not None:
            with self:
                value = torch.stack([pair.re, pair.im], -1)
        return self.node_of(value)


def _any_complex(value: object) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return any(map(_any_complex, value))
    return is_complex(value)


def _plain(value: object) -> Any:  # noqa: ANN401 - arguments as they are
    """Arguments with lists that a decomposition may write; those of a node may not be."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return tuple(_plain(item) for item in value) if type(value) is tuple else value


def _is_composite(func: OpOverload) -> bool:
    return func.namespace == "aten" and func.has_kernel_for_dispatch_key(_COMPOSITE)


# Their operands are real.
_MAKE_COMPLEX = {
    torch.ops.aten.complex.default,
    torch.ops.aten.polar.default,
    torch.ops.aten.view_as_complex.default,
    torch.ops.aten._fft_r2c.default,
}
# They look at nothing but shapes and types, and give several tensors.
_RECORDED_ONCE = frozenset(
    f"{name}{direction}"
    for name in ("tremula::attention", "aten::_scaled_dot_product_flash_attention_for_cpu")
    for direction in ("", "_backward")
)
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
