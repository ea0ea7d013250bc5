"""Pass: operations without a lowering are decomposed into operations that have one."""

import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from tremula.ir.op_table import decomposition_of, has_lowering
from tremula.ir.origin import FORWARD, ORIGIN, Origin
from tremula.ir.recorder import Recorder
from tremula.ir.recording import Recording
from tremula.ir.step import CapturedStep


def decompose(step: CapturedStep) -> CapturedStep:
    """Run the graph on fake tensors once more, decomposing what has no lowering."""
    return _Decomposer(step).run()


class _Decomposer(Recorder):
    """Records again; every node it makes keeps the origin of the node it came from."""

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

    def run(self) -> CapturedStep:
        with self.fakes, torch.no_grad():
            for node in self.step.graph.nodes:
                self.visit(node)
        return self.step.with_graph(self.graph, constants=self.constants)

    def visit(self, node: fx.Node) -> None:
        self.current = node.meta.get(ORIGIN)
        if node.op in ("placeholder", "get_attr"):
            copy = self.graph.node_copy(node)
            self._bind(copy, node.meta["val"])
            self.values[node] = node.meta["val"]
        elif node.op == "output":
            self.graph.output(fx.map_arg(node.args[0], lambda n: self.node_of(self.values[n])))
        else:
            self._call(node)

    def _call(self, node: fx.Node) -> None:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        expand = None if has_lowering(node.target) else decomposition_of(node.target)
        if expand is None:
            self._keep_call(node, args)
            return
        with self:
            self.values[node] = expand(*_plain(args), **kwargs)

    def _keep_call(self, node: fx.Node, args: tuple) -> None:
        """Copy a node. Its fake result is what it was: nothing needs to be computed again."""
        if node.target is _GETITEM:
            value = args[0][args[1]]
            if self.knows(value):  # an item of something that was decomposed
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


def _plain(value: object) -> Any:  # noqa: ANN401 - arguments as they are
    """Arguments with lists that a decomposition may write; those of a node may not be."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return tuple(_plain(item) for item in value) if type(value) is tuple else value


def _is_composite(func: OpOverload) -> bool:
    return func.namespace == "aten" and func.has_kernel_for_dispatch_key(_COMPOSITE)


_GETITEM = operator.getitem
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
