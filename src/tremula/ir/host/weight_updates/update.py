"""The update of all weights of a step on a GPU, in whatever types they and their states have.

A launch updates all weights with the same hyperparameters and types. It reads the addresses of
their tensors from a table. Addresses of gradients are known when a CUDA graph is recorded, and
nothing can be copied to the GPU then: tables are made before, outside the memory of the graph,
which its operations reuse, and filled when the recording has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tremula.ir.host.compiled.tensor_kernels import TensorKernel
from tremula.ir.host.graph_kernels.kernels import has_triton
from tremula.ir.host.passes.memory_format import is_dense
from tremula.ir.host.weight_updates.source import UpdateKind, update_source
from tremula.ir.optim.grouped_rule import GroupedRule
from tremula.ir.optim.in_place import laid_out_like, norm_of_gradients

_CHUNK, _BLOCK, _N_WARPS = 1 << 14, 1 << 11, 8  # elements of a program and of a step, warps
_CONSTANTS = (("CHUNK", _CHUNK), ("BLOCK", _BLOCK))
_ALIGNMENT = 16  # bytes
_HALF = 2  # bytes of a half
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class UpdateBatch:
    """Weights that one launch updates: what they have in common, and their indices."""

    kind: UpdateKind
    group: int  # of the rule: where hyperparameters come from
    members: tuple[int, ...]


def update_batches(
    rule: GroupedRule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    *,
    rounds_stochastically: bool = False,
) -> list[UpdateBatch] | None:
    """The launches of an update; None if the formula or a type has no kernel."""
    if rule.clips or any(t.dtype not in _FLOATS for ts in (params, grads) for t in ts):
        return None
    divides = rule.max_grad_norm != float("inf") or rule.loss_scaling != 1
    members: dict[tuple[UpdateKind, int], list[int]] = {}
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        number = rule.group_of[i]
        prefixes = tuple(p for p, of_weight in rule.positions.items() if i in of_weight)
        state_prefixes = tuple(prefix for prefix in prefixes if prefix != "Step")
        own = [states[rule.positions[prefix][i]] for prefix in state_prefixes]
        if not is_dense(param) or any(state.stride() != param.stride() for state in own):
            return None
        n_scalars = _n_scalars(rule, number) if "Step" in prefixes else 0
        dtypes = tuple(t.dtype for t in (param, grad, *own))
        rounds = rounds_stochastically and any(
            t.itemsize == _HALF for t in (dtypes[0], *dtypes[2:])
        )
        kind = UpdateKind(
            rule.formula, rule.groups[number], state_prefixes, n_scalars, divides, dtypes, rounds
        )
        members.setdefault((kind, number), []).append(i)
    if any(update_source(kind) is None for kind, _ in members):
        return None
    return [UpdateBatch(kind, number, tuple(m)) for (kind, number), m in members.items()]


def _n_scalars(rule: GroupedRule, group: int) -> int:
    ones = [torch.ones(())] * len(rule.hyper_names)
    return len(rule.formula.step_scalars(rule.hyperparameters(group, ones), torch.ones(1)))


def chunk_table(sizes: Sequence[int], chunk: int = _CHUNK) -> list[list[int]]:
    """(weight, number of the chunk) for each program of a launch."""
    return [[i, k] for i, size in enumerate(sizes) for k in range(-(-size // chunk))]


@dataclass
class FusedUpdate:
    """Updates the weights of one rule, and owns the tables that launches of a graph read."""

    rule: GroupedRule
    rounds_stochastically: bool = False  # halves, when they are stored
    _seed: Tensor | None = None  # of the next update's rounding, on the GPU
    _batches: list[UpdateBatch] | None = None
    _is_planned: bool = False
    _chunks: dict[UpdateBatch, Tensor] = field(default_factory=dict)
    _empty: list[Tensor] = field(default_factory=list)  # tables for the graph to be recorded
    _recorded: list[tuple[Tensor, list[list[int]]]] = field(default_factory=list)

    def run(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[Tensor],
        hyper: Sequence[Tensor],
    ) -> bool:
        """Update weights and states in place; False, with nothing done, if no kernel can."""
        if not self._is_planned:
            can = bool(params) and params[0].device.type == "cuda" and has_triton()
            rounds = self.rounds_stochastically
            self._batches = (
                update_batches(self.rule, params, grads, states, rounds_stochastically=rounds)
                if can
                else None
            )
            if can and rounds:
                first = torch.initial_seed() % 2**31
                self._seed = torch.tensor(first, dtype=torch.int64, device=params[0].device)
            self._is_planned = True
        if self._batches is None:
            return False
        divisor = self.rule.gradient_divisor(grads, hyper, norm_of_gradients)
        if divisor is not None and not isinstance(divisor, Tensor):
            divisor = torch.full((), divisor, dtype=torch.float32, device=params[0].device)
        steps = [states[position] for position in self.rule.positions.get("Step", {}).values()]
        if steps:
            torch._foreach_add_(steps, 1.0)  # pyright: ignore[reportPrivateImportUsage]
        if self._seed is not None:
            self._seed.add_(len(params) * 8191 + 1)  # far from the numbers that this update adds
        for batch in self._batches:
            self._launch(batch, params, grads, states, hyper, divisor)
        return True

    def _launch(
        self,
        batch: UpdateBatch,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[Tensor],
        hyper: Sequence[Tensor],
        divisor: Tensor | None,
    ) -> None:
        kind, members = batch.kind, batch.members
        weights = [params[i] for i in members]
        columns = [weights, [_aligned(grads[i], params[i]) for i in members]]
        columns += [[states[self.rule.positions[p][i]] for i in members] for p in kind.states]
        rows = [
            [*(t.data_ptr() for t in tensors), tensors[0].numel()]
            for tensors in zip(*columns, strict=True)
        ]
        by_name = self.rule.variables(batch.group, hyper)
        numbers = [by_name[name] for name in kind.group.variables]
        if divisor is not None:
            numbers.append(divisor)
        numbers += self._scalars(batch, states, hyper)
        chunks = self._chunks_of(batch, weights)
        kernel = TensorKernel(update_source(kind) or "", _CONSTANTS, _N_WARPS)
        table = self._table(rows, weights[0].device)
        operands = [table, chunks]
        if kind.rounds_stochastically:
            assert self._seed is not None, "made before the first update"
            operands.append(self._seed)
        kernel.run(len(chunks), [*operands, *numbers])

    def _scalars(
        self, batch: UpdateBatch, states: Sequence[Tensor], hyper: Sequence[Tensor]
    ) -> list[Tensor]:
        """Numbers of each weight that follow from its steps: Adam's corrections, say."""
        if not batch.kind.n_scalars:
            return []
        positions = self.rule.positions["Step"]
        steps = torch.stack([states[positions[i]].reshape(()) for i in batch.members])
        by_name = self.rule.hyperparameters(batch.group, hyper)
        return [vector.contiguous() for vector in self.rule.formula.step_scalars(by_name, steps)]

    def _chunks_of(self, batch: UpdateBatch, weights: Sequence[Tensor]) -> Tensor:
        if batch not in self._chunks:
            rows = chunk_table([weight.numel() for weight in weights])
            self._chunks[batch] = torch.tensor(rows, dtype=torch.int64, device=weights[0].device)
        return self._chunks[batch]

    def _table(self, rows: list[list[int]], device: torch.device) -> Tensor:
        if not torch.cuda.is_current_stream_capturing():
            return torch.tensor(rows, dtype=torch.int64, device=device)
        table = self._empty.pop(0)
        self._recorded.append((table, rows))
        return table

    def start_recording(self, n_updates: int, device: torch.device) -> None:
        """Make tables for a graph of this many updates; those of an earlier graph are freed."""
        self._recorded.clear()
        self._empty = [
            torch.empty((len(b.members), b.kind.n_columns), dtype=torch.int64, device=device)
            for _ in range(n_updates)
            for b in self._batches or ()
        ]

    def end_recording(self) -> None:
        """Fill the tables that launches of the recorded graph read."""
        for table, rows in self._recorded:
            table.copy_(torch.tensor(rows, dtype=torch.int64))


def _aligned(grad: Tensor, param: Tensor) -> Tensor:
    """The gradient with its weight's strides, at an address that kernels can read."""
    grad = laid_out_like(grad, param)
    return grad.clone() if grad.data_ptr() % _ALIGNMENT else grad
