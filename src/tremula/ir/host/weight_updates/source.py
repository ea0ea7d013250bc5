"""Triton source of an optimiser's update, from the formula that all executions share.

The formula is traced on one element: a graph of element-wise operations in float32. The kernel
loads a weight, its gradient and its states in the types they are stored in, computes the graph, and
stores what changed, rounded once: to the nearest, or up or down at random in proportion to the
distance. Tensors are reached through a table of addresses, so one launch updates any number of
weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, fx

from tremula.ir.host.compile_isolation import traced
from tremula.ir.host.graph_kernels.expressions import (
    ELEMENT_TYPES,
    ELEMENT_WISE,
    TRITON,
    element_wise_text,
)
from tremula.ir.optim.formulas import Formula, WeightToUpdate
from tremula.ir.optim.grouped_rule import ParameterGroup

_HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice

"""
_ROUNDING = """
@triton.jit
def _random_bits(seed, which, i):
    return tl.randint(seed + which * 0x9E3779B1, i)


@triton.jit
def _rounded_bfloat16(x, bits):
    '''Bits below the last one that is stored are added up with random ones: a carry rounds up.'''
    raised = x.to(tl.uint32, bitcast=True) + (bits & 0xFFFF).to(tl.uint32)
    y = (raised & 0xFFFF0000).to(tl.float32, bitcast=True)
    return tl.where(x == x, y, x).to(tl.bfloat16)


@triton.jit
def _rounded_float16(x, bits):
    '''As bfloat16, with 13 bits; below 2**-14 the values are multiples of 2**-24.'''
    raised = x.to(tl.uint32, bitcast=True) + (bits & 0x1FFF).to(tl.uint32)
    y = (raised & 0xFFFFE000).to(tl.float32, bitcast=True)
    share = (bits & 0xFFFFFF).to(tl.float32) * 5.9604644775390625e-08
    steps = tl.floor(tl.abs(x) * 16777216.0 + share) * 5.9604644775390625e-08
    y = tl.where(tl.abs(x) < 6.103515625e-05, tl.where(x < 0, -steps, steps), y)
    return tl.where(x == x, y, x).to(tl.float16)

"""
_HALVES = {torch.bfloat16: "_rounded_bfloat16", torch.float16: "_rounded_float16"}


@dataclass(frozen=True)
class UpdateKind:
    """Weights that one kernel updates: their formula, hyperparameters, and types of memory."""

    formula: Formula
    group: ParameterGroup
    states: tuple[str, ...]  # prefixes, without the number of steps
    n_scalars: int  # numbers of each weight that follow from its steps
    divides: bool  # gradients are divided by a number
    dtypes: tuple[torch.dtype, ...]  # of a weight, its gradient, its states
    rounds_stochastically: bool = False  # halves: up or down, in proportion to the distance

    @property
    def n_columns(self) -> int:
        """Of the table: addresses of the tensors, and the number of elements."""
        return len(self.dtypes) + 1


@cache
def update_source(kind: UpdateKind) -> str | None:
    """The text of the kernel; None if the formula is not element by element."""
    graph = _formula_graph(kind)
    if graph is None:
        return None
    rounds = kind.rounds_stochastically
    parameters = ["table", "chunks", *(["seed"] if rounds else [])]
    parameters += [name for name in _names(kind) if name.startswith(("hyper_", "scalar_"))]
    sizes = ["CHUNK: tl.constexpr", "BLOCK: tl.constexpr"]
    lines = [*_addresses(kind), *_loops(kind, graph)]
    signature = ", ".join([*parameters, *sizes])
    body = "".join(f"    {line}\n" for line in lines)
    functions = _ROUNDING if rounds else ""
    return f"{_HEADER}{functions}\n@triton.jit\ndef kernel({signature}):\n{body}"


# -- the formula as a graph ------------------------------------------------------------------------


def _names(kind: UpdateKind) -> list[str]:
    """Inputs of the graph, in order."""
    return [
        "weight",
        "gradient",
        *(f"state_{prefix}" for prefix in kind.states),
        *(f"hyper_{name}" for name in kind.group.variables),
        *(["hyper_divisor"] if kind.divides else []),
        *(f"scalar_{index}" for index in range(kind.n_scalars)),
    ]


def _formula_graph(kind: UpdateKind) -> fx.Graph | None:
    """(new weight, new states …) of one element; None if an operation has no expression."""
    names = _names(kind)
    shapes = [(1,) if i < len(kind.dtypes) else () for i in range(len(names))]
    graph = traced(_element_update(kind, names), *(torch.ones(shape) for shape in shapes)).graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    if any(node.target not in ELEMENT_WISE or _is_reduced(node) for node in calls):
        return None
    return graph


def _is_reduced(node: fx.Node) -> bool:
    return node.meta["val"].numel() != 1


def _element_update(kind: UpdateKind, names: Sequence[str]) -> Callable[..., list[Tensor]]:
    def update(*values: Tensor) -> list[Tensor]:
        of_name = dict(zip(names, values, strict=True))
        gradient = of_name["gradient"]
        if kind.divides:
            gradient = gradient / of_name["hyper_divisor"]
        weight = WeightToUpdate(
            of_name["weight"],
            torch.neg(gradient) if kind.group.maximize else gradient,
            {prefix: of_name[f"state_{prefix}"] for prefix in kind.states},
            {
                **dict(kind.group.constants),
                **{name: of_name[f"hyper_{name}"] for name in kind.group.variables},
            },
            tuple(of_name[f"scalar_{index}"] for index in range(kind.n_scalars)),
            kind.group.nesterov,
        )
        value, changed = kind.formula.compute(weight)
        return [value, *(changed.get(p, weight.states[p]) for p in kind.states)]

    return update


# -- its text --------------------------------------------------------------------------------------


def _addresses(kind: UpdateKind) -> list[str]:
    """The tensors of the chunk that a program updates, and the numbers of its weight."""
    lines = [
        "program = tl.program_id(0)",
        "which = tl.load(chunks + 2 * program)",
        "begin = tl.load(chunks + 2 * program + 1) * CHUNK",
        f"row = table + which * {kind.n_columns}",
        f"end = tl.minimum(begin + CHUNK, tl.load(row + {len(kind.dtypes)}))",
    ]
    for index, dtype in enumerate(kind.dtypes):
        # Torch aligns memory to 16 bytes and more, so that several elements are loaded at once.
        lines.append(f"a{index} = tl.multiple_of(tl.load(row + {index}), 16)")
        kind_of_pointer = f"tl.pointer_type(tl.{ELEMENT_TYPES[dtype]})"
        lines.append(f"p{index} = a{index}.to({kind_of_pointer})")
    if kind.rounds_stochastically:
        lines.append("x_seed = tl.load(seed)")
    for name in _names(kind):
        if name.startswith("hyper_"):
            lines.append(f"x_{name} = tl.load({name})")
        elif name.startswith("scalar_"):
            lines.append(f"x_{name} = tl.load({name} + which)")
    return lines


def _loops(kind: UpdateKind, graph: fx.Graph) -> list[str]:
    """Whole blocks without a mask, then the rest of the chunk with one."""
    whole = [f"    {line}" for line in _block(kind, graph, "")]
    rest = [f"    {line}" for line in _block(kind, graph, ", mask=live")]
    return [
        "n_whole = (end - begin) // BLOCK * BLOCK",
        "for first in range(begin, begin + n_whole, BLOCK):",
        "    i = tl.multiple_of(first, BLOCK) + tl.arange(0, BLOCK)",
        *whole,
        "if begin + n_whole < end:",
        "    i = begin + n_whole + tl.arange(0, BLOCK)",
        "    live = i < end",
        *rest,
    ]


def _block(kind: UpdateKind, graph: fx.Graph, mask: str) -> list[str]:
    """Load, compute and store one block of elements."""
    names, lines, values = _names(kind), [], {}
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for index, (name, node) in enumerate(zip(names, inputs, strict=True)):
        values[node] = f"x_{name}"
        if index < len(kind.dtypes):
            lines.append(f"x_{name} = tl.load(p{index} + i{mask}).to(tl.float32)")
    for number, node in enumerate(n for n in graph.nodes if n.op == "call_function"):
        values[node] = f"v{number}"
        lines.append(f"v{number} = {element_wise_text(node, TRITON, values.__getitem__)}")
    results = graph.output_node().args[0]
    assert isinstance(results, list | tuple), "a weight and its states"
    # The gradient, the second tensor, is only read.
    for index, result in zip((0, *range(2, len(kind.dtypes))), results, strict=True):
        stored = _rounded(values[result], index, kind)
        lines.append(f"tl.store(p{index} + i, {stored}{mask})")
    return lines


def _rounded(value: str, index: int, kind: UpdateKind) -> str:
    """A result in the type that it is stored in."""
    dtype = kind.dtypes[index]
    if not kind.rounds_stochastically or dtype not in _HALVES:
        return f"{value}.to(tl.{ELEMENT_TYPES[dtype]})"
    bits = f"_random_bits(x_seed + {index}, which, i)"
    return f"{_HALVES[dtype]}({value}, {bits})"
