"""Weights that a prompt's products and those of single words share, in a layout that suits one.

PopART creates a weight as one of its products wants it, and a loop's body has its inputs in the
layout of what they are copied from (PopART: popx/irlowering.cpp, `getTensorCreators`;
popx/op/subgraphx.cpp, `getInputsToPrepare`). The other product rearranges the weight each time it
runs. Of two products that rank alike, the first in the order of their descriptions' text wins, and
these begin with the number of the operation (popx/inittensor.hpp, `PInitTensorCmp`; op.cpp,
`Op::str`): 1000 comes before 20. Numbers are dealt out from 100 on as the model is read, loops
included (ir.hpp, `opsCounter`).
"""

from dataclasses import dataclass
from functools import cache

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Program, Sequence
from tremula.poplibs.poplin.product.mat_mul import (
    ProductOptions,
    create_mat_mul_input_rhs,
    mat_mul,
    mat_mul_plan,
)
from tremula.validate.timing import time_program

FIRST_NUMBER = 100


@dataclass(frozen=True, slots=True)
class Use:
    """How a product uses weights: for how many rows, and with which options."""

    n_rows: int
    partials: Type = FLOAT
    proportion: float = 0.6


@dataclass(frozen=True, slots=True)
class Weight:
    """Of a layer: [n_in, n_out], and how many operations of the layer come before its product."""

    n_in: int
    n_out: int
    in_prompt: int
    in_word: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """How many operations a program has: before layers, in each, between both parts' layers."""

    before_prompt: int
    in_prompt: int  # of a layer
    between: int
    in_word: int  # of a layer

    def prompt_is_first(self, layer: int, n_layers: int, weight: Weight) -> bool:
        """Whether a weight has the layout of the prompt's product."""
        prompt = FIRST_NUMBER + self.before_prompt
        word = prompt + self.in_prompt * n_layers + self.between
        prompt += self.in_prompt * layer + weight.in_prompt
        word += self.in_word * layer + weight.in_word
        return f"{prompt} " < f"{word} "


def rearranging_cycles(
    weights: tuple[Weight, ...], numbering: Numbering, n_layers: int, prompt: Use, word: Use,
    chip_name: str,
) -> tuple[float, float]:  # fmt: skip
    """What all layers take longer for a prompt, and for a word, since a weight has one layout."""
    prompt_s = word_s = 0
    for weight in weights:
        n_first = sum(numbering.prompt_is_first(i, n_layers, weight) for i in range(n_layers))
        word_s += n_first * _rearranging(weight, word, prompt, chip_name)
        prompt_s += (n_layers - n_first) * _rearranging(weight, prompt, word, chip_name)
    return prompt_s, word_s


@cache
def _rearranging(weight: Weight, use: Use, other: Use, chip_name: str) -> int:
    """Cycles that a product takes longer where its weight is laid out for the other."""
    cycles = [_product_cycles(weight, use, owner, chip_name) for owner in (other, use)]
    return cycles[0] - cycles[1]


def _product_cycles(weight: Weight, use: Use, owner: Use, chip_name: str) -> int:
    shape = (weight.n_in, weight.n_out)

    def build(graph: Graph, sequence: Sequence) -> Program | None:
        rows = (owner.n_rows, weight.n_in)
        stored = create_mat_mul_input_rhs(
            graph, HALF, rows, shape, "weight", **_options(graph, weight, owner)
        )
        x = graph.add_variable(HALF, [use.n_rows, weight.n_in], "x", mapping="linear")
        mat_mul(graph, x, stored, sequence, **_options(graph, weight, use))
        return None

    return time_program(chip_name, 1, build).cycles


def _options(graph: Graph, weight: Weight, use: Use) -> ProductOptions:
    """Rows or columns are positions, as the planner estimates; PopLibs has no bound on rows."""
    options = ProductOptions(partials_type=use.partials, available_memory_proportion=use.proportion)
    shapes = (use.n_rows, weight.n_in), (weight.n_in, weight.n_out)
    cycles = [
        mat_mul_plan(graph, HALF, *shapes, **{**options, "columns_are_positions": choice}).cycles
        for choice in (False, True)
    ]
    return {**options, "columns_are_positions": cycles[1] < cycles[0]}
