"""Host execution through TorchInductor: the micro-batch part compiled to fused native code."""

import operator
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, fx
from torch._guards import TracingContext
from torch._guards import tracing as tracing_context
from torch._subclasses.fake_tensor import FakeTensorMode

from tremula.ir.host.passes.memory_format import relax_strides
from tremula.ir.host.passes.small_products import sum_small_products
from tremula.ir.host.passes.substitute_kernels import use_fast_tanh
from tremula.ir.host.programs.compiled_loops import compile_scans
from tremula.ir.host.programs.equal_layers import PartedGraph, equal_parts
from tremula.ir.host.programs.program import HostProgram, MicroBatch
from tremula.ir.host.start_phases import start_phase
from tremula.ir.passes import Passes, apply
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_IMAGE_RANK = 4


class InductorProgram(HostProgram):
    """The step with its micro-batch part compiled by PyTorch's own compiler."""

    def compile(self, part: CapturedStep) -> MicroBatch:
        return self.compiled(part)

    def compiled(self, part: CapturedStep) -> "CompiledGraph | PartedGraph":
        """The functional graph itself goes to Inductor: no second tracing, static shapes."""
        part = apply(part, _PASSES, "host")
        if not self.is_wide:
            compile_scans(part)
        n_results = len(part.results())
        choices = {}
        if self.device.type == "cpu":
            part = apply(part, _CPU_PASSES, "host")
            choices["layout_optimization"] = False  # the graph itself says how images are laid out
        else:
            part = apply(part, _GPU_PASSES, "host")
        if self.is_wide:
            choices["emulate_precision_casts"] = True  # a rounding to half is meant
        if self.device.type == "cuda" and (parts := equal_parts(part)):
            return PartedGraph(part, parts, partial(CompiledGraph, choices=choices))
        return CompiledGraph(part.module(), n_results, choices)


class CompiledGraph:
    """A graph that is compiled for the strides and devices of its first arguments."""

    def __init__(self, module: fx.GraphModule, n_results: int, choices: dict[str, bool]):
        self._module = module
        self._n_results = n_results
        self._choices = choices
        self._run: Callable | None = None

    def prepare(self, args: Sequence[Tensor]) -> None:
        """Compile without running."""
        with start_phase("import Inductor"):
            from torch._inductor import config
            from torch._inductor.compile_fx import compile_fx
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        # Inductor looks into its cache on disk only if shapes could be symbols.
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        fakes = [mode.from_tensor(x, static_shapes=True) for x in args]
        context = tracing_context(TracingContext(mode))
        with torch.no_grad(), config.patch(self._choices), context:
            made = compile_fx(self._module, fakes)
        assert callable(made), "a graph without other graphs in it is one function"
        self._run = made

    def __call__(self, *args: Tensor) -> list[Tensor]:
        if self._run is None:
            self.prepare(args)
        assert self._run is not None, "compiled above"
        with torch.no_grad():
            return list(self._run(*args))[: self._n_results]


def _draw_by_comparison(part: CapturedStep) -> CapturedStep:
    """Bernoulli numbers by comparison: Inductor fuses `rand`, and calls ATen for the others."""
    for node in part.graph.nodes:
        if node.target is not aten.bernoulli.p:
            continue
        like = node.meta["val"]
        probability = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
        with part.graph.inserting_before(node):
            drawn = part.graph.call_function(aten.rand_like.default, (node.args[0],))
            is_one = part.graph.call_function(aten.lt.Scalar, (drawn, probability))
            mask = part.graph.call_function(aten._to_copy.default, (is_one,), {"dtype": like.dtype})
        mask.meta["val"] = like
        node.replace_all_uses_with(mask)
        part.graph.erase_node(node)
    return part


def _with_indices_of_maxima(part: CapturedStep) -> CapturedStep:
    """Return the indices of each pool's maxima: Inductor stores what is returned.

    Gradients need them, and Inductor would search for the maxima a second time.
    """
    results = list(part.results())
    for node in part.graph.nodes:
        is_part = node.target is operator.getitem and node.args[1] == 1
        if is_part and node.args[0].target is aten.max_pool2d_with_indices.default:
            results.append(node)
    part.graph.output_node().args = (results,)
    return part


def _with_channels_last(part: CapturedStep) -> CapturedStep:
    """Give images the format channels-last, which Inductor's convolutions want on a CPU.

    Inductor does so itself, but a gradient would need the strides that were recorded: forward and
    backward are one graph here, and all images would be converted back for it.
    """
    converted: dict[fx.Node, fx.Node] = {}
    for node in list(part.graph.nodes):
        is_backward = node.target is aten.convolution_backward.default
        if not is_backward and node.target is not aten.convolution.default:
            continue
        for operand in node.args[1:3] if is_backward else node.args[:2]:
            value = operand.meta["val"]
            # A single channel needs no conversion, and its gradient takes operands of any format.
            if value.dim() == _IMAGE_RANK and (value.shape[1] > 1 or not is_backward):
                node.replace_input_with(operand, _converted(part.graph, operand, converted))
    return part


def _converted(graph: fx.Graph, operand: fx.Node, converted: dict[fx.Node, fx.Node]) -> fx.Node:
    if operand not in converted:
        value = operand.meta["val"]
        if value.shape[1] == 1:
            last = _single_channel_last(graph, operand)
        else:
            with graph.inserting_after(operand):
                last = graph.call_function(
                    aten.contiguous.default, (operand,), {"memory_format": torch.channels_last}
                )
        last.meta["val"] = value
        converted[operand] = last
    return converted[operand]


def _single_channel_last(graph: fx.Graph, operand: fx.Node) -> fx.Node:
    """A view with the strides of channels-last: with one channel nothing moves."""
    n, _, *size = operand.meta["val"].shape
    with graph.inserting_after(operand):
        flat = graph.call_function(aten.reshape.default, (operand, [n, *size, 1]))
    with graph.inserting_after(flat):
        return graph.call_function(aten.permute.default, (flat, [0, 3, 1, 2]))


_PASSES: Passes = (
    ("relax strides", relax_strides),
    ("draw by comparison", _draw_by_comparison),
)
_GPU_PASSES: Passes = (("sum small products", sum_small_products),)
_CPU_PASSES: Passes = (
    ("put channels last", _with_channels_last),
    ("return indices of maxima", _with_indices_of_maxima),
    ("use a fast tanh", use_fast_tanh),
)
