"""Linear layers with sparse weights: of fixed pattern, and of a pattern that is data."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from tremula.base.types import FLOAT, HALF
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.hardware import chip
from tremula.ir.capture.sparse_tensors import pattern_of
from tremula.ir.lowering.sparse import DYNAMIC_OPTIONS
from tremula.ir.ops.dynamic_sparse import dense_weight
from tremula.ir.ops.sparse import sparse_mm
from tremula.ir.ops.sparse_pattern import SparsePattern
from tremula.ir.settings import host_settings
from tremula.poplar.target import Target
from tremula.poplibs.popsparse import CSRMatrix, dynamic
from tremula.poplibs.popsparse.static.costs import BLOCK_SIDES

__all__ = ["DynamicSparseLinear", "SparseLinear"]


class SparseLinear(nn.Module):
    """y = x · Wᵀ + b, where W [out_features, in_features] has values in some blocks only.

    Only those values are stored, trained and used. The pattern is part of the program: a model
    whose pattern has changed (`rigl_update`) is compiled again.
    """

    values: nn.Parameter  # [blocks, side, side]

    def __init__(
        self,
        in_features: int,
        out_features: int,
        density: float = 0.1,
        block: int = 1,
        bias: bool = True,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        _check(in_features, out_features, density, block)
        self.in_features, self.out_features = in_features, out_features
        n_rows, n_columns = out_features // block, in_features // block
        n_blocks = max(1, round(density * n_rows * n_columns))
        chosen = torch.randperm(n_rows * n_columns, generator=generator)[:n_blocks]
        # In a list, which shallow copies of a model share: theirs is always the same pattern.
        self._patterns = [_pattern_of_places(chosen.numpy(), n_rows, n_columns, block)]
        # As nn.Linear, for the inputs that a row really has.
        bound = 1 / math.sqrt(max(1.0, density * in_features))
        values = torch.empty(n_blocks, block, block).uniform_(-bound, bound, generator=generator)
        self.values = nn.Parameter(values)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    @classmethod
    def from_linear(cls, linear: nn.Linear, density: float, block: int = 1) -> "SparseLinear":
        """The layer with the blocks of largest norm of a dense one."""
        result = cls(
            linear.in_features, linear.out_features, density, block, linear.bias is not None
        )
        norms = _blocks_of(linear.weight.detach(), block).square().sum((-1, -2))
        chosen = norms.flatten().topk(len(result.values)).indices
        n_rows, n_columns = norms.shape
        result.pattern = _pattern_of_places(chosen.numpy(), n_rows, n_columns, block)
        result._take(linear.weight, linear.bias)
        return result

    @classmethod
    def from_sparse(cls, weight: Tensor, bias: Tensor | None = None) -> "SparseLinear":
        """The layer of a sparse tensor [out_features, in_features] of PyTorch."""
        pattern, values = pattern_of(weight)
        result = cls(weight.shape[1], weight.shape[0], 1.0, pattern.side, bias is not None)
        result.pattern, result.values = pattern, nn.Parameter(values.clone())
        if bias is not None:
            result.bias = nn.Parameter(bias.detach().clone())
        return result

    @property
    def pattern(self) -> SparsePattern:
        """Where the weight has values."""
        return self._patterns[0]

    @pattern.setter
    def pattern(self, value: SparsePattern) -> None:
        self._patterns[0] = value

    @property
    def density(self) -> float:
        """The share of the weight that has values."""
        return self.values.numel() / (self.in_features * self.out_features)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        out = sparse_mm(self.values, rows.mT, self.pattern).mT
        if self.bias is not None:
            out = out + self.bias
        return out.reshape(*x.shape[:-1], self.out_features)

    def to_dense(self) -> Tensor:
        """The whole weight, with zeros."""
        side = self.pattern.side
        grid = self.values.new_zeros(
            self.out_features // side, self.in_features // side, side, side
        )
        rows, columns = (
            torch.from_numpy(p).long() for p in (self.pattern.rows, self.pattern.columns)
        )
        grid = grid.index_put((rows, columns), self.values)
        return grid.permute(0, 2, 1, 3).reshape(self.out_features, self.in_features)

    @torch.no_grad()
    def rigl_update(self, gradient: Tensor, fraction: float = 0.3) -> int:
        """Drop the smallest blocks, grow where the dense weight's gradient is largest.

        `gradient` is that of the whole weight [out_features, in_features]; new blocks start at
        zero. Returns how many blocks moved.
        """
        _check_update(gradient, (self.out_features, self.in_features), fraction)
        side = self.pattern.side
        n_rows, n_columns = self.out_features // side, self.in_features // side
        places = torch.from_numpy(
            self.pattern.rows.astype(np.int64) * n_columns + self.pattern.columns
        )
        norms = self.values.square().sum((-1, -2))
        remaining, grown = moved_blocks(places, norms, _blocks_of(gradient, side), fraction)
        dense = self.to_dense()
        mask = torch.zeros(n_rows * n_columns, dtype=torch.bool)
        mask[places[remaining]] = True
        remaining_blocks = _blocks_of(dense, side) * mask.view(-1, n_columns, 1, 1)
        chosen = torch.cat((places[remaining], grown)).numpy()
        self.pattern = _pattern_of_places(chosen, n_rows, n_columns, side)
        self._take(remaining_blocks.permute(0, 2, 1, 3).reshape(dense.shape), None)
        return len(grown)

    @torch.no_grad()
    def _take(self, weight: Tensor, bias: Tensor | None) -> None:
        """Values at the pattern from a dense weight."""
        rows, columns = (
            torch.from_numpy(p).long() for p in (self.pattern.rows, self.pattern.columns)
        )
        self.values.copy_(_blocks_of(weight, self.pattern.side)[rows, columns])
        if bias is not None and self.bias is not None:
            self.bias.copy_(bias)

    def program_structure(self) -> int:
        """The pattern's number: a model compiled for another pattern cannot run."""
        return self.pattern.number

    def extra_repr(self) -> str:
        """What printing a model shows."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"density={self.density:.3g}, block={self.pattern.side}, bias={self.bias is not None}"
        )


class DynamicSparseLinear(nn.Module):
    """y = x · Wᵀ + b, where the pattern of W is data: it changes without compiling again.

    The program is planned for a number of values and for batches of `batch_size` rows. Values are
    in the buckets of that plan; `rigl_update` and `set_weight` write new ones into `values`,
    `meta_info`, `rows` and `columns`. A compiled model gets them by `copyWeightsToDevice()` and,
    with the option `updatableNamedBuffers(layer.pattern_buffers("name of the layer"))`, by
    `copyNamedBuffersToDevice()`.
    """

    meta_info: Tensor
    rows: Tensor
    columns: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        density: float = 0.1,
        block: int = 1,
        bias: bool = True,
        *,
        batch_size: int,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        _check(in_features, out_features, density, block)
        self.in_features, self.out_features = in_features, out_features
        first = SparseLinear(in_features, out_features, density, block, bias, generator)
        self.n_values = first.values.numel()
        params = dynamic.FullyConnectedParams(
            batch_size, in_features, out_features, self.n_values, block
        )
        element = HALF if dtype is torch.float16 else FLOAT
        target = Target(chip(host_settings().chip))
        self._partitioner = dynamic.Partitioner(params, element, target, **DYNAMIC_OPTIONS)
        self.side = self._partitioner.plan.problem.side
        n_slots = self._partitioner.plan.n_tiles * self._partitioner.plan.n_values
        n_slots //= self.side * self.side
        self.values = nn.Parameter(torch.zeros(n_slots, self.side, self.side, dtype=dtype))
        self.bias = (
            first.bias if first.bias is None else nn.Parameter(first.bias.detach().to(dtype))
        )
        for name in ("rows", "columns"):
            self.register_buffer(name, torch.full((n_slots,), -1, dtype=torch.int32))
        self.register_buffer("meta_info", torch.zeros(0, dtype=torch.int32))
        places = (
            first.pattern.rows.astype(np.int64) * (in_features // block) + first.pattern.columns
        )
        self.set_weight(first.to_dense().detach(), places, block)

    @torch.no_grad()
    def set_weight(self, weight: Tensor, places: np.ndarray, block: int) -> None:
        """Values of a dense weight at blocks with these numbers; too many change nothing."""
        n_columns = self.in_features // block
        matrix = _matrix_of_places(
            places, self.out_features // block, n_columns, block, weight.detach().numpy()
        )
        small = matrix.to_coo().with_block((self.side, self.side)).to_csr()
        data = self._partitioner.create_sparsity_data(small)
        rows, columns = _slots_of(data, small)
        blocks = torch.from_numpy(data.nz_values.astype(np.float32)).view_as(self.values)
        self.values.copy_(blocks)
        self.rows.copy_(torch.from_numpy(rows))
        self.columns.copy_(torch.from_numpy(columns))
        words = torch.from_numpy(data.meta_info.astype(np.int32))
        if len(self.meta_info) != len(words):
            self.meta_info = words
        else:
            self.meta_info.copy_(words)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.ops.tremula.dynamic_sparse(
            self.values, x, self.meta_info, self.rows, self.columns, self.n_values,
            self.out_features,
        )  # fmt: skip
        return out if self.bias is None else out + self.bias

    def to_dense(self) -> Tensor:
        """The whole weight, with zeros."""
        sizes = self.out_features, self.in_features
        return dense_weight(self.values, self.rows, self.columns, *sizes)

    def pattern_buffers(self, name: str = "") -> list[str]:
        """The names of the buffers that are the pattern, for a layer with this name."""
        return [
            f"{name}.{buffer}" if name else buffer for buffer in ("meta_info", "rows", "columns")
        ]

    @torch.no_grad()
    def rigl_update(self, gradient: Tensor, fraction: float = 0.3) -> int:
        """Drop the smallest blocks, grow where the dense weight's gradient is largest."""
        _check_update(gradient, (self.out_features, self.in_features), fraction)
        is_there = self.rows >= 0
        n_columns = self.in_features // self.side
        places = self.rows[is_there].long() * n_columns + self.columns[is_there]
        norms = self.values[is_there].float().square().sum((-1, -2))
        blocks = _blocks_of(gradient.float(), self.side)
        remaining, grown = moved_blocks(places, norms, blocks, fraction)
        weight = self.to_dense().float()
        chosen = torch.cat((places[remaining], grown)).numpy()
        self.set_weight(weight, chosen, self.side)
        return len(grown)


def _slots_of(data: dynamic.SparsityData, matrix: CSRMatrix) -> tuple[np.ndarray, np.ndarray]:
    """The row and column of blocks of each slot; -1 where there is none."""
    pattern = SparsePattern.of(matrix)
    there = data.source >= 0
    rows, columns = (np.full(len(data.source), -1, np.int32) for _ in range(2))
    rows[there] = pattern.rows[data.source[there]]
    columns[there] = pattern.columns[data.source[there]]
    return rows, columns


def moved_blocks(
    places: Tensor, norms: Tensor, gradient: Tensor, fraction: float
) -> tuple[Tensor, Tensor]:
    """Which blocks stay (their numbers), and at which places new ones grow.

    `places` and `norms` are those of the blocks there; `gradient` [rows, columns, side, side] is
    that of all.
    """
    wanted = gradient.square().sum((-1, -2)).flatten()
    wanted[places] = -1.0  # those that are there do not grow
    n_moved = min(int(fraction * len(places)), int((wanted >= 0).sum()))
    return norms.topk(len(places) - n_moved).indices, wanted.topk(n_moved).indices


def _check_update(gradient: Tensor, shape: tuple[int, int], fraction: float) -> None:
    if gradient.shape != shape:
        raise createPoptorchError(
            f"rigl_update needs the gradient of the dense weight, {list(shape)}, got "
            f"{list(gradient.shape)}"
        )
    if not 0 <= fraction <= 1:
        raise createPoptorchError(f"rigl_update: fraction must be 0 … 1, got {fraction}")


def _check(in_features: int, out_features: int, density: float, block: int) -> None:
    if block not in BLOCK_SIDES:
        raise createPoptorchError(f"SparseLinear: block must be one of {BLOCK_SIDES}, got {block}")
    if in_features % block or out_features % block:
        raise createPoptorchError(
            f"SparseLinear({in_features}, {out_features}): both must be multiples of the block "
            f"{block}"
        )
    if not 0 < density <= 1:
        raise createPoptorchError(f"SparseLinear: density must be in (0, 1], got {density}")


def _blocks_of(weight: Tensor, side: int) -> Tensor:
    """[rows of blocks, columns of blocks, side, side]."""
    n_rows, n_columns = (n // side for n in weight.shape)
    return weight.reshape(n_rows, side, n_columns, side).permute(0, 2, 1, 3)


def _pattern_of_places(places: np.ndarray, n_rows: int, n_columns: int, side: int) -> SparsePattern:
    """The pattern of blocks with these numbers, counted row by row."""
    return SparsePattern.of(_matrix_of_places(places, n_rows, n_columns, side))


def _matrix_of_places(
    places: np.ndarray, n_rows: int, n_columns: int, side: int, weight: np.ndarray | None = None
) -> CSRMatrix:
    """A matrix of blocks with these numbers, with values of a dense one, or ones."""
    ordered = np.sort(places)
    counts = np.bincount(ordered // n_columns, minlength=n_rows)
    area = side * side
    pointers = np.concatenate([[0], np.cumsum(counts)]) * area
    matrix = CSRMatrix(
        n_rows * side, n_columns * side, np.ones(len(ordered) * area, np.float32),
        ordered % n_columns * side, pointers, (side, side),
    )  # fmt: skip
    return matrix if weight is None else matrix.with_values(matrix.values_of(weight))
