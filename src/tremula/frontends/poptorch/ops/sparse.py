"""SparseLinear: a linear layer whose weight has values at a fixed pattern of blocks."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.capture.sparse_tensors import pattern_of
from tremula.ir.ops.sparse import sparse_mm
from tremula.ir.ops.sparse_pattern import Pattern
from tremula.poplibs.popsparse import CSRMatrix

__all__ = ["SparseLinear"]
SIDES = (1, 4, 8, 16)


class SparseLinear(nn.Module):
    """y = x · Wᵀ + b, where W [out_features, in_features] has values in some blocks only.

    Only those values are kept, trained and multiplied. The pattern is part of the program: a model
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
        found = cls(
            linear.in_features, linear.out_features, density, block, linear.bias is not None
        )
        norms = _blocks_of(linear.weight.detach(), block).square().sum((-1, -2))
        chosen = norms.flatten().topk(len(found.values)).indices
        n_rows, n_columns = norms.shape
        found.pattern = _pattern_of_places(chosen.numpy(), n_rows, n_columns, block)
        found._take(linear.weight, linear.bias)
        return found

    @classmethod
    def from_sparse(cls, weight: Tensor, bias: Tensor | None = None) -> "SparseLinear":
        """The layer of a sparse tensor [out_features, in_features] of PyTorch."""
        pattern, values = pattern_of(weight)
        found = cls(weight.shape[1], weight.shape[0], 1.0, pattern.side, bias is not None)
        found.pattern, found.values = pattern, nn.Parameter(values.clone())
        if bias is not None:
            found.bias = nn.Parameter(bias.detach().clone())
        return found

    @property
    def pattern(self) -> Pattern:
        """Where the weight has values."""
        return self._patterns[0]

    @pattern.setter
    def pattern(self, value: Pattern) -> None:
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
        if gradient.shape != (self.out_features, self.in_features):
            raise createPoptorchError(
                f"rigl_update needs the gradient of the dense weight, "
                f"{[self.out_features, self.in_features]}, got {list(gradient.shape)}"
            )
        if not 0 <= fraction <= 1:
            raise createPoptorchError(f"rigl_update: fraction must be 0 … 1, got {fraction}")
        side = self.pattern.side
        n_columns = self.in_features // side
        places = torch.from_numpy(
            self.pattern.rows.astype(np.int64) * n_columns + self.pattern.columns
        )
        wanted = _blocks_of(gradient, side).square().sum((-1, -2)).flatten()
        wanted[places] = -1.0  # those that are there do not grow
        n_free = int((wanted >= 0).sum())
        n_moved = min(int(fraction * len(places)), n_free)
        kept = self.values.square().sum((-1, -2)).topk(len(places) - n_moved).indices
        grown = wanted.topk(n_moved).indices
        dense = self.to_dense()
        mask = torch.zeros(wanted.numel(), dtype=torch.bool)
        mask[places[kept]] = True
        kept_blocks = _blocks_of(dense, side) * mask.view(-1, n_columns, 1, 1)
        chosen = torch.cat((places[kept], grown)).numpy()
        n_rows = self.out_features // side
        self.pattern = _pattern_of_places(chosen, n_rows, n_columns, side)
        self._take(kept_blocks.permute(0, 2, 1, 3).reshape(dense.shape), None)
        return n_moved

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
        """What a compiled program depends on; it is refused once this is another."""
        return self.pattern.number

    def extra_repr(self) -> str:
        """What printing a model shows."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"density={self.density:.3g}, block={self.pattern.side}, bias={self.bias is not None}"
        )


def _check(in_features: int, out_features: int, density: float, block: int) -> None:
    if block not in SIDES:
        raise createPoptorchError(f"SparseLinear: block must be one of {SIDES}, got {block}")
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


def _pattern_of_places(places: np.ndarray, n_rows: int, n_columns: int, side: int) -> Pattern:
    """The pattern of blocks with these numbers, counted row by row."""
    ordered = np.sort(places)
    counts = np.bincount(ordered // n_columns, minlength=n_rows)
    area = side * side
    pointers = np.concatenate([[0], np.cumsum(counts)]) * area
    matrix = CSRMatrix(
        n_rows * side, n_columns * side, np.ones(len(ordered) * area, np.float32),
        ordered % n_columns * side, pointers, (side, side),
    )  # fmt: skip
    return Pattern.of(matrix)
