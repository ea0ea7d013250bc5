"""Sizes of dynamic sparse layers and products: how many non-zeros there may be, not where."""

from dataclasses import dataclass
from math import ceil
from typing import TypedDict

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, as_type
from tremula.hardware import Chip
from tremula.poplibs.popsparse.dynamic.plan import DynamicPlan, DynamicProblem, plan_dynamic
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.static.costs import BLOCK_SIDES
from tremula.poplibs.poputil.options import check_memory_proportion, check_options


class DynamicOptions(TypedDict, total=False):
    """Options of dynamic products; the oversize is the slack of buckets for uneven patterns."""

    available_memory_proportion: float
    meta_info_bucket_oversize_proportion: float
    partials_type: Type | str
    do_grad_a_pass: bool
    do_grad_w_pass: bool


@dataclass(frozen=True, slots=True)
class FullyConnectedParams:
    """A layer with a sparse matrix [outputs, inputs], for a batch of inputs."""

    n_batch: int
    n_in: int
    n_out: int
    n_non_zeros: int
    side: int = 1

    @classmethod
    def create_with_nz_ratio(
        cls, ratio: float, n_batch: int, n_in: int, n_out: int, *, block: int = 1
    ) -> "FullyConnectedParams":
        """A layer of which at most a share of the weights is not zero."""
        if not 0 <= ratio <= 1:
            raise SparsityError(
                f"a share of {ratio} non-zeros, expected one from 0 to 1.",
                source=user_source(),
                hint="0.1 is a tenth of the weights",
            )
        n_blocks = (n_in // block) * (n_out // block)
        n = ceil(ratio * n_blocks - 1e-9) * block * block
        return cls.create_with_num_non_zero_values(n, n_batch, n_in, n_out, block=block)

    @classmethod
    def create_with_num_non_zero_values(
        cls, n: int, n_batch: int, n_in: int, n_out: int, *, block: int = 1
    ) -> "FullyConnectedParams":
        """A layer with at most n weights that are not zero."""
        side = _side_of(block)
        wrong = ""
        if n_in % block or n_out % block or min(n_in, n_out, n_batch) < 1:
            wrong = f"[{n_out}, {n_in}] weights and a batch of {n_batch} for blocks of {block}"
        elif n > n_in * n_out or n < 0 or n % (block * block):
            wrong = f"{n} non-zeros in blocks of {block} for a matrix of [{n_out}, {n_in}]"
        if wrong:
            raise SparsityError(
                f"a sparse layer got {wrong}.",
                source=user_source(),
                hint="sizes are multiples of the block's side; the matrix has room for all blocks",
            )
        return cls(n_batch, n_in, n_out, n, side)

    @property
    def density(self) -> float:
        return self.n_non_zeros / (self.n_in * self.n_out)


def _side_of(block: int) -> int:
    """Blocks larger than 16 are cut into the largest that divide them."""
    result = [side for side in BLOCK_SIDES if side <= block and block % side == 0]
    if block not in BLOCK_SIDES and (block < 16 or result[-1] == 1):
        raise SparsityError(
            f"blocks of {block}, expected {', '.join(map(str, BLOCK_SIDES))} or a multiple.",
            source=user_source(),
            hint="use blocks of 16",
        )
    return result[-1]


@dataclass(frozen=True, slots=True)
class MatMulParams:
    """A sparse [m, k] by a dense [k, n]."""

    m: int
    k: int
    n: int
    n_non_zeros: int
    side: int = 1

    @classmethod
    def create_with_nz_ratio(
        cls, ratio: float, groups: int, m: int, k: int, n: int, *, block: int = 1
    ) -> "MatMulParams":
        """A product with at most a share of the matrix's elements."""
        _check_groups(groups)
        layer = FullyConnectedParams.create_with_nz_ratio(ratio, n, k, m, block=block)
        return cls(m, k, n, layer.n_non_zeros, layer.side)

    @classmethod
    def create_with_num_non_zero_values(
        cls, n_non_zeros: int, groups: int, m: int, k: int, n: int, *, block: int = 1
    ) -> "MatMulParams":
        """A product with at most this many elements of the matrix."""
        _check_groups(groups)
        layer = FullyConnectedParams.create_with_num_non_zero_values(
            n_non_zeros, n, k, m, block=block
        )
        return cls(m, k, n, layer.n_non_zeros, layer.side)

    @property
    def layer(self) -> FullyConnectedParams:
        """The parameters as those of a layer: a batch of n."""
        return FullyConnectedParams(self.n, self.k, self.m, self.n_non_zeros, self.side)


def _check_groups(groups: int) -> None:
    if groups != 1:
        raise SparsityError(
            f"a dynamic sparse product of {groups} groups: only one is supported.",
            source=user_source(),
            hint="make a product for each group",
        )


def layer_of(params: FullyConnectedParams | MatMulParams) -> FullyConnectedParams:
    return params.layer if isinstance(params, MatMulParams) else params


def plan_of(
    params: FullyConnectedParams | MatMulParams, type: Type | str, chip: Chip, n_tiles: int,
    options: DynamicOptions,
) -> DynamicPlan:  # fmt: skip
    """The plan that all parts of a layer share: its programs, and the host's partitioner."""
    check_options(options, DynamicOptions, "a dynamic sparse product")
    proportion = options.get("available_memory_proportion", 0.6)
    check_memory_proportion(proportion)
    element, layer = as_type(type), layer_of(params)
    partials = as_type(options.get("partials_type", FLOAT))
    if element not in (FLOAT, HALF):
        raise SparsityError(
            f"a dynamic sparse product of {element}, expected float or half.",
            source=user_source(),
            hint="cast its operands",
        )
    if element is FLOAT or layer.side == 1:
        partials = FLOAT
    is_product = isinstance(params, MatMulParams)
    side = 8 if element is FLOAT and layer.side == 16 else layer.side  # no larger ones of floats
    problem = DynamicProblem(
        layer.n_out, layer.n_in, layer.n_batch, side, layer.density, element, partials,
        options.get("meta_info_bucket_oversize_proportion", 0.3),
        options.get("do_grad_a_pass", is_product), options.get("do_grad_w_pass", False),
    )  # fmt: skip
    if layer.side == 1 and layer.n_batch % problem.z_grain:
        raise SparsityError(
            f"a batch of {layer.n_batch} {element} for a matrix of elements: expected a multiple "
            f"of {problem.z_grain}.",
            source=user_source(),
            hint="pad the batch, or use blocks",
        )
    return plan_dynamic(problem, chip, n_tiles, proportion)
