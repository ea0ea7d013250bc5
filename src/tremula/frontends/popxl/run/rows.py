"""Many replicas as one function: a value is a tensor whose first axis counts replicas.

Operations become batched ones by `torch.vmap`, collectives are algebra on that axis, so a program
for many replicas records as many operations as for one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._C._functorch import (
    _set_vmap_fallback_warning_enabled,  # pyright: ignore[reportAttributeAccessIssue]
)

from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.run.interpreter import Value
from tremula.frontends.popxl.run.tracer import Tracer


class RowTracer(Tracer):
    """A lane is `[replicas, …]`; a remote buffer `[replicas, entries, …]`."""

    @property
    def n_rows(self) -> int:
        return self.memory.n_replicas

    def constant(self, value: torch.Tensor) -> torch.Tensor:
        return super().constant(value).expand(self.n_rows, *value.shape)

    def zeros(self, t: Tensor) -> torch.Tensor:
        return torch.zeros((self.n_rows, *t.shape), dtype=t.dtype.carrier)

    def compute(self, op: Op, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if not inputs:
            return [t.expand(self.n_rows, *t.shape) for t in super().compute(op, inputs)]
        one_row = super().compute
        with _without_advice():
            return torch.vmap(lambda *row: one_row(op, list(row)))(*inputs)  # type: ignore[return-value]

    def collective(self, op: Op, value: Value) -> Value:
        assert op.row.compute is not None, "collectives are computed"
        return [op.row.compute(op, value[0])]

    def printed(self, value: Value, title: str, form: str) -> Value:
        rows = [
            torch.ops.tremula.print_tensor(row, f"[{r}] {title}", form, False)
            for r, row in enumerate(value[0].unbind())
        ]
        return [torch.stack(rows)]

    def chosen(self, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.where(condition.reshape(-1, *[1] * (a.dim() - 1)).bool(), a, b)

    def read_remote(self, buffer: RemoteBuffer, offsets: Value) -> Value:
        rows = self.remote[buffer.remote_buffer_id]
        return [rows[self._places(offsets)]]

    def write_remote(self, buffer: RemoteBuffer, offsets: Value, values: Value) -> None:
        rows = self.remote[buffer.remote_buffer_id]
        rows.index_put_(self._places(offsets), values[0])

    def _places(self, offsets: Value) -> tuple[torch.Tensor, torch.Tensor]:
        """The entry that each replica chooses."""
        chosen = offsets[0].reshape(-1).long()
        return torch.arange(self.n_rows, device=chosen.device), chosen


@contextmanager
def _without_advice() -> Iterator[None]:
    """An operation that PyTorch cannot batch runs row by row, and PyTorch need not say so."""
    _set_vmap_fallback_warning_enabled(False)
    try:
        yield
    finally:
        _set_vmap_fallback_warning_enabled(True)
