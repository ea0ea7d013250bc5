"""Host execution through TorchInductor: the micro-batch part compiled to fused native code."""

from collections.abc import Callable

import torch
from torch import Tensor

from tremula.ir.host.program import HostProgram, MicroBatch
from tremula.ir.step import CapturedStep

aten = torch.ops.aten


class InductorProgram(HostProgram):
    """The step with its micro-batch part compiled by PyTorch's own compiler."""

    def compile(self, part: CapturedStep) -> MicroBatch:
        """Inductor takes the functional graph as it is: no second tracing, static shapes."""
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx

        module = _with_own_random(_with_free_strides(part)).module()
        # Taken for inference, convolutions would turn their weights, which change, in each call.
        choices = {"layout_optimization": False} if self.device.type == "cpu" else {}
        compiled: Callable | None = None

        def run(*args: Tensor) -> list[Tensor]:
            nonlocal compiled
            with torch.no_grad():
                if compiled is None:  # strides and devices are those of the first call
                    with config.patch(choices):
                        made = compile_fx(module, list(args))
                    assert callable(made), "a graph without other graphs in it is one function"
                    compiled = made
                return list(compiled(*args))

        return run


def _with_free_strides(part: CapturedStep) -> CapturedStep:
    """Inductor chooses strides of its own, with which `view` may be impossible: reshape."""
    for node in part.graph.nodes:
        if node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default
    return part


def _with_own_random(part: CapturedStep) -> CapturedStep:
    """Bernoulli numbers by comparison: Inductor fuses `rand`, and calls ATen for the others."""
    for node in part.graph.nodes:
        if node.target is not aten.bernoulli.p:
            continue
        like = node.meta["val"]
        probability = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
        with part.graph.inserting_before(node):
            drawn = part.graph.call_function(aten.rand_like.default, (node.args[0],))
            is_one = part.graph.call_function(aten.lt.Scalar, (drawn, probability))
            kept = part.graph.call_function(aten._to_copy.default, (is_one,), {"dtype": like.dtype})
        kept.meta["val"] = like
        node.replace_all_uses_with(kept)
        part.graph.erase_node(node)
    return part
