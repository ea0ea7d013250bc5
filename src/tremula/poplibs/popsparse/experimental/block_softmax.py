"""Softmax over the rows of a matrix of which only some blocks are there, and its gradient.

Elements that are there are copied row by row into a dense matrix, filled up with the type's least
number; what is not there has no part in a sum. A row without elements stays zero.
"""

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popnn.softmax import softmax, softmax_input_gradient
from tremula.poplibs.popops import fill, zero
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.experimental.block_mask import (
    BlockMask,
    GivenMask,
    KeptElements,
    SubBlockMask,
    mask_bytes,
)
from tremula.poplibs.popsparse.experimental.block_product import create_blocks, stored


def bs_softmax(
    graph: Graph, t: Tensor, dims: tuple[int, int], block: tuple[int, int], sparsity: GivenMask,
    sequence: Sequence, name: str = "bsSoftmax", *,
    sub_block_mask: SubBlockMask = SubBlockMask.NONE, n_groups: int = 1,
) -> Tensor:  # fmt: skip
    """Softmax of each row of blocks [blocks, elements]: a new tensor like them."""
    mask = BlockMask(*dims, block, mask_bytes(sparsity), n_groups)
    _check(mask, t)
    elements = mask.counted_elements(sub_block_mask).by_rows()
    rows = _SoftmaxRows(graph, elements, t.type, name)
    padded = rows.gathered(t, _least(t.type), sequence)
    return rows.scattered(softmax(graph, padded, sequence, name), mask, sequence)


def bs_softmax_in_place(
    graph: Graph, t: Tensor, dims: tuple[int, int], block: tuple[int, int], sparsity: GivenMask,
    sequence: Sequence, name: str = "bsSoftmax", *,
    sub_block_mask: SubBlockMask = SubBlockMask.NONE, n_groups: int = 1,
) -> None:  # fmt: skip
    """A softmax of block-sparse rows, in place."""
    result = bs_softmax(
        graph, t, dims, block, sparsity, sequence, name,
        sub_block_mask=sub_block_mask, n_groups=n_groups,
    )  # fmt: skip
    sequence.add(Copy(result, t))


def bs_softmax_grad(  # noqa: PLR0917 - as bs_softmax, and a gradient
    graph: Graph, out: Tensor, out_grad: Tensor, dims: tuple[int, int], block: tuple[int, int],
    sparsity: GivenMask, sequence: Sequence, name: str = "bsSoftmaxGrad", *, n_groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of softmax's input, from its result and that one's gradient."""
    mask = BlockMask(*dims, block, mask_bytes(sparsity), n_groups)
    _check(mask, out)
    _check(mask, out_grad)
    rows = _SoftmaxRows(graph, mask.counted_elements(SubBlockMask.NONE).by_rows(), out.type, name)
    y, gradient = (rows.gathered(t, 0.0, sequence) for t in (out, out_grad))
    result = softmax_input_gradient(graph, y, gradient, sequence, name)
    return rows.scattered(result, mask, sequence)


def _least(type: Type) -> float:
    return float(np.finfo(np.float16 if type is HALF else np.float32).min)


def _check(mask: BlockMask, t: Tensor) -> None:
    if t.shape != mask.shape:
        raise SparsityError(
            f"a block-sparse softmax got a tensor of {list(t.shape)}, expected "
            f"{list(mask.shape)}: the blocks of its mask.",
            source=user_source(),
            hint="its rows are blocks, in the order of the mask",
        )


class _SoftmaxRows:
    """The rows that have elements, as a dense matrix."""

    def __init__(self, graph: Graph, elements: KeptElements, type: Type, name: str):
        self.graph, self.elements, self.type, self.name = graph, elements, type, name
        self.width = elements.width
        self.places, self.n_rows = elements.in_rows(self.width)

    def gathered(self, t: Tensor, padding: float, sequence: Sequence) -> Tensor:
        """[rows, most elements of a row], filled up."""
        graph, name = self.graph, self.name
        made = graph.add_variable(self.type, [self.n_rows, self.width], f"{name}/rows")
        graph.map_linearly(made, min_elems=1, grain=max(self.width, 1))
        if made.n_elems:
            fill(graph, made, padding, sequence, f"{name}/fill")
            flat = stored(graph, t, sequence, f"{name}/blocks")
            sequence.add(Copy(self.elements.of(flat), self.places.of(made.flatten())))
        return made

    def scattered(self, rows: Tensor, mask: BlockMask, sequence: Sequence) -> Tensor:
        """Rows back to blocks; elements that do not count are zero."""
        out = create_blocks(self.graph, self.type, mask.shape, f"{self.name}/out")
        if not out.n_elems:
            return out
        zero(self.graph, out, sequence, f"{self.name}/zero")
        if rows.n_elems:
            flat = stored(self.graph, rows, sequence, f"{self.name}/result")
            sequence.add(Copy(self.places.of(flat), self.elements.of(out.flatten())))
        return out
