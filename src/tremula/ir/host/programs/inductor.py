"""Host execution through TorchInductor: the micro-batch part compiled to fused native code."""

import logging
import operator
import pickle
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from tremula.ir.host.compiled.compiling import Run, compile_graph
from tremula.ir.host.compiled.from_inductor import record_of
from tremula.ir.host.compiled.functions import CannotStoreError, CompiledFunction
from tremula.ir.host.compiled.keys import (
    argument_lines,
    digest,
    graph_lines,
    settings_of_inductor,
    surroundings,
)
from tremula.ir.host.compiled.pool import CompilePool, running_pool
from tremula.ir.host.compiled.programs import FunctionCall, Mask, ProgramRecord
from tremula.ir.host.compiled.requests import CompileRequest, request_of
from tremula.ir.host.compiled.store import (
    binary_path,
    forget_record,
    store_function,
    stored_function,
)
from tremula.ir.host.passes.join_products import join_products
from tremula.ir.host.passes.memory_format import IMAGE_RANK, relax_strides
from tremula.ir.host.passes.pad_products import pad_products
from tremula.ir.host.passes.small_products import sum_small_products
from tremula.ir.host.passes.substitute_kernels import use_fast_tanh
from tremula.ir.host.programs.compiled_loops import compile_scans
from tremula.ir.host.programs.equal_layers import Part, PartedGraph, equal_parts, parts_at_outputs
from tremula.ir.host.programs.program import HostProgram, MicroBatch
from tremula.ir.host.start_phases import start_phase
from tremula.ir.passes import Passes, apply
from tremula.ir.step import CapturedStep

if TYPE_CHECKING:
    from torch._inductor.output_code import CompiledFxGraph

aten = torch.ops.aten
_log = logging.getLogger("tremula.gpu")


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
            choices["shape_padding"] = False  # done above; Inductor would time it beside calls
        if self.is_wide:
            choices["emulate_precision_casts"] = True  # a rounding to half is meant
        if self.device.type == "cuda" and (parts := self._parts(part)):
            compile_part = partial(CompiledGraph, choices=choices)
            return PartedGraph(part, parts, compile_part, prepare_all, self.output_hook)
        return CompiledGraph(part.module(), n_results, choices)

    def _parts(self, part: CapturedStep) -> list[Part]:
        """Equal layers, or forward and the rest where outputs leave early."""
        parts = equal_parts(part)
        return parts if parts or self.output_hook is None else parts_at_outputs(part)


class CompiledGraph:
    """A graph that is compiled for the strides and devices of its first arguments.

    What was compiled is stored after its first call, which chooses among kernels; a later process
    loads it and needs no compiler.
    """

    def __init__(self, module: fx.GraphModule, n_results: int, choices: dict[str, bool]):
        self._module = module
        self._n_results = n_results
        self._choices = choices
        self._run: Run | None = None
        self._strides: list[tuple[int, ...]] = []
        self.key = ""  # in the store; empty if it cannot be stored
        self._compiled: list[CompiledFxGraph] = []  # what is not stored yet

    def prepare(self, args: Sequence[Tensor]) -> None:
        """Load or compile without running; `args` need no memory."""
        prepare_all([(self, args)])

    def load(self, args: Sequence[Tensor]) -> bool:
        """Load what is stored for these arguments, if it is."""
        device = args[0].device if args else torch.device("cpu")
        self.key = self._key_for(args, device)
        record = stored_function(self.key) if self.key else None
        if record is None:
            return False
        try:
            self._run = CompiledFunction(record, binary_path, device)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is compiled again
            forget_record(self.key, str(error))
            return False
        return True

    def _key_for(self, args: Sequence[Tensor], device: torch.device) -> str:
        """The name of the function in the store; empty if it has constants, which have values."""
        if any(node.op == "get_attr" for node in self._module.graph.nodes):
            return ""
        about = [*surroundings(device), repr(sorted(self._choices.items())), str(self._n_results)]
        return digest([*about, *argument_lines(args), *graph_lines(self._module.graph)])

    def request(self, args: Sequence[Tensor]) -> CompileRequest | None:
        """What another process needs to compile it; None if it must be compiled here."""
        if not self.key:
            return None
        try:
            request = request_of(self.key, self._module.graph, args, self._choices)
            pickle.dumps(request)
        except Exception as error:  # noqa: BLE001 - operands can be of any type
            _log.info("a part is compiled in this process: %s", error)
            return None
        return request

    def compile(self, args: Sequence[Tensor]) -> None:
        """Compile in this process."""
        self._strides = [x.stride() for x in args]
        self._run, self._compiled = compile_graph(self._module, args, self._choices)

    def __call__(self, *args: Tensor) -> list[Tensor]:
        if self._run is None:
            self.prepare(args)
        assert self._run is not None, "compiled above"
        with torch.no_grad():
            results = list(self._run(args))[: self._n_results]
        if self._compiled:
            self._store()
        elif isinstance(self._run, CompiledFunction) and self._run.has_chosen():
            store_function(self.key, self._run.take_choice())
        return results

    def record(self, masks: tuple[Mask, ...]) -> ProgramRecord | None:
        """A program that calls this function once; its last arguments are `masks`."""
        n_all = sum(node.op == "placeholder" for node in self._module.graph.nodes)
        if not self.key:
            return None
        results = tuple(range(n_all, n_all + self._n_results))
        call = FunctionCall(self.key, tuple(range(n_all)), results)
        return ProgramRecord(n_all - len(masks), masks, (), (call,), results)

    def _store(self) -> None:
        """Once the first call has chosen kernels."""
        compiled, self._compiled = self._compiled, []
        if len(compiled) != 1:
            self.key = ""
        if not self.key:
            return
        try:
            store_function(self.key, record_of(compiled[0], self._n_results, self._strides))
        except Exception as error:  # noqa: BLE001 - Inductor's records differ between versions
            what = "" if isinstance(error, CannotStoreError) else f"{type(error).__name__}: "
            _log.info("a compiled function is not stored: %s%s", what, error)
            self.key = ""


def prepare_all(graphs: Sequence[tuple[CompiledGraph, Sequence[Tensor]]]) -> None:
    """Load or compile several graphs: at the same time, if there is a process for that."""
    missing = [(graph, args) for graph, args in graphs if not graph.load(args)]
    pool = running_pool()
    # A new process has none of the settings that the script has changed.
    if pool is not None and missing and (pool.is_fork or not settings_of_inductor()):
        _compile_elsewhere(pool, missing)
        missing = [(graph, args) for graph, args in missing if not graph.load(args)]
    for graph, args in missing:
        with start_phase("compile a part"):
            graph.compile(args)


def _compile_elsewhere(
    pool: CompilePool, graphs: Sequence[tuple[CompiledGraph, Sequence[Tensor]]]
) -> None:
    requests = [r for graph, args in graphs if (r := graph.request(args)) is not None]
    with start_phase(f"compile {len(requests)} parts in other processes"):
        errors = pool.compile(requests) if requests else []
    for error in filter(None, errors):
        _log.info("a part is compiled in this process: %s", error.partition("\n")[0])


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
            if value.dim() == IMAGE_RANK and (value.shape[1] > 1 or not is_backward):
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
_GPU_PASSES: Passes = (
    ("sum small products", sum_small_products),
    ("join products", join_products),
    ("pad products", pad_products),
)
_CPU_PASSES: Passes = (
    ("put channels last", _with_channels_last),
    ("return indices of maxima", _with_indices_of_maxima),
    ("use a fast tanh", use_fast_tanh),
)
