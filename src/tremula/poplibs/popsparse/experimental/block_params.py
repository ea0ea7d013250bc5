"""Sizes of block-sparse products: dense by sparse, or dense by dense at the blocks of a mask."""

from dataclasses import dataclass
from typing import TypedDict

from tremula.base.errors import InvalidOption, suggest
from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, as_type
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.experimental.block_mask import (
    BlockMask,
    GivenMask,
    SubBlockMask,
    mask_bytes,
)
from tremula.poplibs.poputil.options import check_options

__all__ = ["BSMatMulParams", "BlockOptions", "SubBlockMask"]

Triple = tuple[int, int, int]
# PopLibs' ways to find a partition. All are planned as static products are.
PARTITION_METHODS = ("strip", "stripv0", "block", "block-naive", "block-group2")
_GRAIN = {FLOAT: 8, HALF: 16}  # of the matrix unit: columns of the left operand's blocks


class BlockOptions(TypedDict, total=False):
    """`number_of_pass` parts of the left operand's rows are multiplied one after another."""

    number_of_pass: int
    memory_cycle_ratio: float
    partition_method: str


@dataclass(frozen=True)
class BSMatMulParams:
    """A product [m, k] · [k, n] of matrices in blocks; `mask` is that of the sparse one."""

    dims: Triple
    block: Triple
    mask: BlockMask
    element: Type
    out_type: Type
    partials_type: Type
    is_result_sparse: bool
    is_rhs_transposed: bool = False
    sub_block_mask: SubBlockMask = SubBlockMask.NONE

    @classmethod
    def dense_sparse(
        cls, dims: Triple, block: Triple, rhs_sparsity: GivenMask, element: Type | str,
        out_type: Type | str, partials_type: Type | str, *, rhs_need_transpose: bool = False,
        n_groups: int = 1,
    ) -> "BSMatMulParams":  # fmt: skip
        """Dense [m, k] by sparse [k, n]; one that needs to be transposed is kept as [n, k]."""
        (_, k, n), (_, block_k, block_n) = dims, block
        sizes = (n, k, (block_n, block_k)) if rhs_need_transpose else (k, n, (block_k, block_n))
        mask = BlockMask(*sizes, mask_bytes(rhs_sparsity), n_groups)
        types = as_type(element), as_type(out_type), as_type(partials_type)
        return cls(dims, block, mask, *types, False, rhs_need_transpose)

    @classmethod
    def dense_dense(
        cls, dims: Triple, block: Triple, result_sparsity: GivenMask,
        element: Type | str, out_type: Type | str, partials_type: Type | str, *,
        sub_block_mask: SubBlockMask = SubBlockMask.NONE, n_groups: int = 1,
    ) -> "BSMatMulParams":  # fmt: skip
        """Dense [m, k] by dense [k, n], of which only blocks of a mask are computed."""
        mask = BlockMask(
            dims[0], dims[2], (block[0], block[2]), mask_bytes(result_sparsity), n_groups
        )
        types = as_type(element), as_type(out_type), as_type(partials_type)
        return cls(dims, block, mask, *types, True, sub_block_mask=sub_block_mask)

    def __post_init__(self) -> None:
        wrong = _wrong_types(self) or _wrong_sizes(self)
        if wrong:
            raise SparsityError(
                f"a block-sparse product got {wrong}.",
                source=user_source(),
                hint="use FLOAT or HALF, partial sums no narrower than that, and blocks that "
                "divide the matrices",
            )

    @property
    def n_groups(self) -> int:
        return self.mask.n_groups

    def dense_shape(self, n_rows: int, n_columns: int) -> tuple[int, ...]:
        """[rows, columns], of several groups [groups, rows, columns]."""
        return (n_rows, n_columns) if self.n_groups == 1 else (self.n_groups, n_rows, n_columns)


def _wrong_types(p: BSMatMulParams) -> str:
    for what, type in (("operands", p.element), ("a result", p.out_type)):
        if type not in (FLOAT, HALF):
            return f"{what} of {type}"
    if p.partials_type not in (FLOAT, HALF) or (p.element is FLOAT and p.partials_type is HALF):
        return f"operands of {p.element} with partial sums of {p.partials_type}"
    return ""


def _wrong_sizes(p: BSMatMulParams) -> str:
    for what, size, side in zip("mkn", p.dims, p.block, strict=True):
        if side < 1 or size < 1 or size % side:
            return f"{what} = {size} in blocks of {side}"
    grain = _GRAIN[p.element]
    if p.block[1] % grain:
        return f"blocks of {p.block[1]} columns of {p.element}, expected a multiple of {grain}"
    return ""


def checked_passes(params: BSMatMulParams, options: BlockOptions) -> int:
    """The number of passes; raises for options that cannot be."""
    check_options(options, BlockOptions, "a block-sparse product")
    method = options.get("partition_method", "strip")
    if method not in PARTITION_METHODS:
        raise InvalidOption(
            f"there is no partition_method {method!r}.",
            source=user_source(),
            hint=suggest(method, PARTITION_METHODS),
        )
    n = options.get("number_of_pass", 1)
    n_block_rows = params.dims[0] // params.block[0]
    if n < 1 or n_block_rows % n or (n > 1 and (params.n_groups > 1 or params.is_result_sparse)):
        raise InvalidOption(
            f"number_of_pass is {n} for {n_block_rows} rows of blocks and {params.n_groups} "
            "groups.",
            source=user_source(),
            hint="it divides the rows of blocks of the left operand of a dense × sparse product; "
            "with groups it is 1",
        )
    return n
