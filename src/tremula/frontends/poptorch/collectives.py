"""What processes compute together, by Horovod's names: sums, copies and lists over all of them.

Processes are those of `poprun`, `tremula launch` or torchrun and meet through torch.distributed; a
single process is a group of one, in which every collective returns its argument's value.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tremula.base.errors import PoplarError
from tremula.frontends.poptorch import instances

__all__ = [
    "Adasum",
    "Average",
    "CollectiveError",
    "Compression",
    "DistributedOptimizer",
    "Handle",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "grouped_allreduce",
    "grouped_allreduce_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "shutdown",
    "size",
    "synchronize",
]


class CollectiveError(PoplarError, ValueError):
    """A collective operation that cannot be computed, and why."""


class ReduceOp(Enum):
    """How the values of processes become one."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average, Sum, Adasum = ReduceOp.Average, ReduceOp.Sum, ReduceOp.Adasum
Min, Max, Product = ReduceOp.Min, ReduceOp.Max, ReduceOp.Product
_OF_TORCH = {
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}
_state = {"is_initialized": False}


class Compression(Enum):
    """In which type values travel: `none` is the tensor's own."""

    none = "none"
    fp16 = "fp16"


# -- the processes ---------------------------------------------------------------------------------


def init(comm: object = None, process_sets: object = None) -> None:
    """Connect the processes; a single one has nothing to connect to."""
    if comm is not None or process_sets is not None:
        raise CollectiveError(
            "init takes neither a communicator nor process sets: all processes work together.",
            hint="call init() without arguments",
        )
    instances.init()
    _state["is_initialized"] = True


def shutdown() -> None:
    """Disconnect from the other processes."""
    instances.finalize()
    _state["is_initialized"] = False


def is_initialized() -> bool:
    """Whether `init` was called."""
    return _state["is_initialized"]


def rank() -> int:
    """The index of this process."""
    _check_initialized("rank")
    return instances.getInstanceIndex()


def size() -> int:
    """The number of processes."""
    _check_initialized("size")
    return instances.getNumInstances()


def local_rank() -> int:
    """The index of this process among those of this computer."""
    _check_initialized("local_rank")
    return instances.getLocalInstanceIndex()


def local_size() -> int:
    """The number of processes on this computer."""
    _check_initialized("local_size")
    for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"):
        if name in os.environ:
            return int(os.environ[name])
    return instances.getNumInstances()


def cross_rank() -> int:
    """The index of this computer."""
    return rank() // local_size()


def cross_size() -> int:
    """The number of computers."""
    return max(1, size() // local_size())


def is_homogeneous() -> bool:
    """Whether computers run equally many processes."""
    return size() % local_size() == 0


def _check_initialized(name: str) -> None:
    if not _state["is_initialized"]:
        raise CollectiveError(
            f"{name}() was called before init().", hint="call hvd.init() first, once per process"
        )


# -- values ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllreduceSettings:
    """How `allreduce` combines tensors."""

    op: ReduceOp = Average
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    compression: Compression = Compression.none

    def of(self, tensor: Tensor) -> Tensor:
        """The reduced tensor, in every process; its argument is unchanged."""
        _check_tensor(tensor, "allreduce")
        if self.op is Average and not (tensor.is_floating_point() or tensor.is_complex()):
            raise CollectiveError(
                f"allreduce cannot average integers ({tensor.dtype}).",
                hint="use op=hvd.Sum, or convert the tensor to a floating-point type",
            )
        result = tensor.detach().clone()
        if self.compression is Compression.fp16 and tensor.is_floating_point():
            result = result.half()
        if self.prescale_factor != 1.0:
            result = result * self.prescale_factor
        n_processes = size()
        if n_processes > 1:
            dist.all_reduce(result, _OF_TORCH[self.op])
        result = result.to(tensor.dtype)
        scale = self.postscale_factor / (n_processes if self.op is Average else 1)
        return result if scale == 1.0 else (result * scale).to(tensor.dtype)


class _Differentiable(torch.autograd.Function):
    """`allreduce` of a tensor that has a gradient: its gradient is reduced likewise."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, reduction: AllreduceSettings) -> Tensor:  # noqa: ANN401
        ctx.reduction = reduction
        return reduction.of(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        if ctx.reduction.op not in (Average, Sum):
            raise CollectiveError(f"allreduce by {ctx.reduction.op.name} has no gradient.")
        return ctx.reduction.of(grads[0]), None


def _reduction(
    average: bool | None,
    op: ReduceOp | None,
    scales: tuple[float, float],
    compression: object = Compression.none,
) -> AllreduceSettings:
    if average is not None and op is not None:
        raise CollectiveError("allreduce takes average= or op=, not both.", hint="use op=hvd.Sum")
    if op is None:
        op = Average if average is None or average else Sum
    if op is Adasum:
        raise CollectiveError("Adasum is not supported.", hint="use op=hvd.Average or op=hvd.Sum")
    if not isinstance(op, ReduceOp):
        raise CollectiveError(
            f"op must be one of hvd.Average, Sum, Min, Max and Product; got {op!r}."
        )
    if not isinstance(compression, Compression):
        raise CollectiveError(
            f"compression must be hvd.Compression.none or .fp16; got {compression!r}."
        )
    return AllreduceSettings(op, float(scales[0]), float(scales[1]), compression)


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Compression = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """The mean of a tensor over processes, or what `op` says; a new tensor."""
    del name  # Horovod matches calls by it; torch.distributed by their order
    reduction = _reduction(average, op, (prescale_factor, postscale_factor), compression)
    if isinstance(tensor, Tensor) and tensor.requires_grad:
        return _Differentiable.apply(tensor, reduction)  # pyright: ignore[reportReturnType]
    return reduction.of(tensor)


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """`allreduce` in place."""
    del name
    reduced = _reduction(average, op, (prescale_factor, postscale_factor)).of(tensor)
    return _written(tensor, reduced)


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Compression = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """`allreduce` of several tensors."""
    del name
    reduction = _reduction(average, op, (prescale_factor, postscale_factor), compression)
    return [reduction.of(tensor) for tensor in tensors]


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """`allreduce` of several tensors in place."""
    del name
    reduction = _reduction(average, op, (prescale_factor, postscale_factor))
    return [_written(tensor, reduction.of(tensor)) for tensor in tensors]


def allgather(tensor: Tensor, name: str | None = None) -> Tensor:
    """Tensors of all processes one after another; their first dimensions may differ."""
    del name
    _check_tensor(tensor, "allgather")
    own = tensor.detach()
    own = own.reshape(1) if own.ndim == 0 else own
    if size() == 1:
        return own.clone()
    shapes: list[tuple[int, ...]] = [()] * size()
    dist.all_gather_object(shapes, tuple(own.shape))
    if len({shape[1:] for shape in shapes}) != 1:
        raise CollectiveError(
            f"allgather takes tensors that differ in their first dimension only; got {shapes}."
        )
    longest = max(shape[0] for shape in shapes)
    padded = own.new_zeros((longest, *own.shape[1:]))
    padded[: own.shape[0]] = own
    parts = [torch.empty_like(padded) for _ in shapes]
    dist.all_gather(parts, padded)
    return torch.cat([part[: shape[0]] for part, shape in zip(parts, shapes, strict=True)])


def broadcast(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """The tensor of one process, in every process; a new tensor."""
    del name
    _check_tensor(tensor, "broadcast")
    result = tensor.detach().clone().contiguous()
    _check_rank(root_rank)
    if size() > 1:
        dist.broadcast(result, root_rank)
    return result


def broadcast_(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """`broadcast` in place."""
    return _written(tensor, broadcast(tensor, root_rank, name))


def broadcast_object(obj: object, root_rank: int = 0, name: str | None = None) -> Any:  # noqa: ANN401
    """The object of one process, in every process; it is pickled."""
    del name
    _check_rank(root_rank)
    if size() == 1:
        return obj
    values = [obj]
    dist.broadcast_object_list(values, root_rank)
    return values[0]


def allgather_object(obj: object, name: str | None = None) -> list[object]:
    """The objects of all processes; they are pickled."""
    del name
    if size() == 1:
        return [obj]
    values: list[object] = [None] * size()
    dist.all_gather_object(values, obj)
    return values


def barrier() -> None:
    """Wait for all processes."""
    if size() > 1:
        dist.barrier()


def join(device: int = -1) -> int:
    """Wait for all processes; the index of the last one."""
    del device
    barrier()
    return size() - 1


def broadcast_parameters(
    params: Mapping[str, object] | Iterable[tuple[str, object]], root_rank: int
) -> None:
    """Give every process the parameters of one: `model.state_dict()` or `named_parameters()`."""
    if isinstance(params, Mapping):
        pairs: Iterable = sorted(params.items())
    elif isinstance(params, Tensor | str) or not isinstance(params, Iterable):
        raise CollectiveError(
            f"broadcast_parameters takes a dictionary or pairs of name and tensor; got"
            f" {type(params).__name__}.",
            hint="hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
        )
    else:
        pairs = params
    for _, value in pairs:
        if isinstance(value, Tensor):
            broadcast_(value.data, root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """Give every process the state of one process's optimiser."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise CollectiveError("broadcast_optimizer_state does not take LBFGS.")
    if size() > 1:
        optimizer.load_state_dict(broadcast_object(optimizer.state_dict(), root_rank))


def _check_tensor(tensor: object, what: str) -> None:
    _check_initialized(what)
    if not isinstance(tensor, Tensor):
        raise CollectiveError(
            f"{what} takes a torch.Tensor; got {type(tensor).__name__}.",
            hint="torch.tensor(value)",
        )


def _check_rank(root_rank: int) -> None:
    if not isinstance(root_rank, int) or not 0 <= root_rank < size():
        raise CollectiveError(
            f"root_rank must be a process from 0 to {size() - 1}; got {root_rank!r}."
        )


def _written(tensor: Tensor, value: Tensor) -> Tensor:
    with torch.no_grad():
        tensor.copy_(value)
    return tensor


# -- asynchronous calls, which are finished when they return ---------------------------------------


@dataclass(frozen=True)
class Handle:
    """A collective that was started."""

    result: Tensor


def allreduce_async(tensor: Tensor, **arguments: Any) -> Handle:  # noqa: ANN401
    """`allreduce` as a handle for `synchronize`."""
    return Handle(allreduce(tensor, **arguments))


def allreduce_async_(tensor: Tensor, **arguments: Any) -> Handle:  # noqa: ANN401
    """`allreduce_` as a handle for `synchronize`."""
    return Handle(allreduce_(tensor, **arguments))


def allgather_async(tensor: Tensor, name: str | None = None) -> Handle:
    """`allgather` as a handle for `synchronize`."""
    return Handle(allgather(tensor, name))


def broadcast_async(tensor: Tensor, root_rank: int, name: str | None = None) -> Handle:
    """`broadcast` as a handle for `synchronize`."""
    return Handle(broadcast(tensor, root_rank, name))


def broadcast_async_(tensor: Tensor, root_rank: int, name: str | None = None) -> Handle:
    """`broadcast_` as a handle for `synchronize`."""
    return Handle(broadcast_(tensor, root_rank, name))


def synchronize(handle: Handle) -> Tensor:
    """The result of a collective that was started."""
    return handle.result


def poll(handle: Handle) -> bool:
    """Whether a collective is finished, which it is when it returns."""
    del handle
    return True


# -- an optimiser ----------------------------------------------------------------------------------


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: Compression = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
) -> torch.optim.Optimizer:
    """An optimiser whose `step` first reduces gradients over all processes.

    Its class is derived from the optimiser's, and it shares the optimiser's groups and states.
    """
    if backward_passes_per_step < 1:
        raise CollectiveError(
            f"backward_passes_per_step must be at least 1; got {backward_passes_per_step}."
        )
    if named_parameters is not None:
        names = [name for name, _ in named_parameters]
        if len(names) != len(set(names)):
            raise CollectiveError("named_parameters has the same name twice.")
    reduction = _reduction(None, op, (1.0, 1.0), compression)
    if gradient_predivide_factor != 1.0:
        if op is not Average:
            raise CollectiveError("gradient_predivide_factor needs op=hvd.Average.")
        reduction = replace(
            reduction,
            prescale_factor=1.0 / gradient_predivide_factor,
            postscale_factor=gradient_predivide_factor,
        )
    kind = type(optimizer)
    own = type(kind.__name__, (_Distributed, kind), {})
    result = own.__new__(own)
    result.__dict__ = optimizer.__dict__
    result.reduction, result.n_passes, result.is_synchronized = (
        reduction,
        backward_passes_per_step,
        False,
    )
    return result


class _Distributed:
    """The methods that reduce gradients, in front of an optimiser's class."""

    reduction: AllreduceSettings
    n_passes: int
    is_synchronized: bool
    param_groups: list[dict[str, list[torch.nn.Parameter]]]

    def synchronize(self) -> None:
        """Reduce the gradients now, so that they can be clipped before `step`."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    reduced = self.reduction.of(parameter.grad)
                    _written(parameter.grad, reduced / self.n_passes)
        self.is_synchronized = True

    def step(
        self, closure: Callable[[], object] | None = None
    ) -> object:  # a loss, as closures give it
        """Reduce gradients, unless `synchronize` did, and update."""
        if not self.is_synchronized:
            self.synchronize()
        self.is_synchronized = False
        return super().step(closure)  # pyright: ignore[reportAttributeAccessIssue]

    def skip_synchronize(self) -> "_Skipped":
        """A block in which `step` does not reduce: `synchronize` was called before."""
        return _Skipped(self)


@dataclass(frozen=True)
class _Skipped:
    optimizer: _Distributed

    def __enter__(self) -> None:
        self.optimizer.is_synchronized = True

    def __exit__(self, *_error: object) -> None:
        self.optimizer.is_synchronized = False
