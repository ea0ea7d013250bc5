"""Keras in several processes: `PopDistStrategy`, and Horovod's collectives for TensorFlow."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import keras
import torch
from keras.src.optimizers.base_optimizer import BaseOptimizer
from torch import Tensor

from tremula.frontends.keras.config import IPUConfig
from tremula.frontends.keras.enums import ReduceOp
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.execution import share_weights
from tremula.frontends.keras.loops.tape import GradientTape
from tremula.frontends.keras.strategy import IPUStrategy
from tremula.frontends.poptorch import collectives, instances
from tremula.frontends.poptorch.collectives import Average, Sum
from tremula.ir.recording import active

_OPERATIONS = {"SUM": Sum, "MEAN": Average}
Operation = collectives.ReduceOp | ReduceOp
Result = TypeVar("Result")


class PopDistStrategy(IPUStrategy):
    """Models whose gradients are averaged over the replicas of all processes."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ):
        super().__init__(ipu_device)
        del enable_dataset_iterators, enable_keras_extensions
        if not add_ipu_cross_replica_reductions:
            raise keras_error(
                "PopDistStrategy(add_ipu_cross_replica_reductions=False) is for optimisers of"
                " TensorFlow 1.",
                hint="leave it out: gradients are reduced once",
            )
        collectives.init()

    @property
    def num_processes(self) -> int:
        return instances.getNumInstances()

    def reduce(self, reduce_op: object, value: object, axis: int | None = None) -> Tensor:
        """The sum or mean of a value over processes."""
        return all_reduce(super().reduce(reduce_op, value, axis), reduce_op)

    def update_ipu_config(self, config: IPUConfig) -> IPUConfig:
        """Say in the settings which process this is."""
        return set_ipu_config(config, configure_device=False)


IPUMultiReplicaStrategy = IPUHorovodStrategy = PopDistStrategy


class OneDeviceStrategy:
    """`tf.distribute.OneDeviceStrategy`: models run as Keras runs them."""

    def __init__(self, device: str = "/cpu:0"):
        self.device = device

    num_replicas_in_sync = 1

    def scope(self) -> AbstractContextManager[None]:
        return nullcontext()

    def run(
        self,
        fn: Callable[..., Result],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Result:
        """Call a function."""
        return fn(*args, **(kwargs or {}))


def get_strategy() -> OneDeviceStrategy:
    """The strategy outside of any scope."""
    return OneDeviceStrategy()


def set_ipu_config(
    config: IPUConfig, ipus_per_replica: int | None = None, configure_device: bool = True
) -> IPUConfig:
    """`popdist.tensorflow.set_ipu_config`: chips for this process's replicas, and its index."""
    if not isinstance(config, IPUConfig):
        raise keras_error(f"set_ipu_config takes an IPUConfig; got {config!r}.")
    expected = instances.getNumIpusPerReplica()
    n_ipus = expected if ipus_per_replica is None else ipus_per_replica
    if instances.isPopdistEnvSet() and n_ipus != expected:
        raise keras_error(
            f"ipus_per_replica is {n_ipus}; the launcher says {expected}.",
            hint=f"tremula poprun --ipus-per-replica {n_ipus}, or leave the argument out",
        )
    distribution = config.experimental.multi_replica_distribution
    distribution.process_count = instances.getNumInstances()
    distribution.process_index = instances.getInstanceIndex()
    if configure_device:
        config.auto_select_ipus = n_ipus * instances.getNumLocalReplicas()
    return config


# -- collectives of tensors, arrays and variables --------------------------------------------------


def all_reduce(value: object, reduce_op: object = ReduceOp.SUM, tensor_name: str = "") -> Tensor:
    """`ipu.distributed.allreduce`: the sum or mean over processes."""
    del tensor_name
    name = str(getattr(reduce_op, "name", reduce_op)).upper()
    name = "MEAN" if name == "AVERAGE" else name
    if name not in _OPERATIONS:
        raise keras_error(f"reduce_op must be SUM or MEAN; got {reduce_op!r}.")
    collectives.init()
    return collectives.allreduce(_tensor(value), op=_OPERATIONS[name])


def allreduce(
    tensor: object,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: collectives.Compression = collectives.Compression.none,
    op: Operation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> Tensor:
    """`horovod.tensorflow.allreduce`: the mean over processes, or what `op` says."""
    del device_dense, device_sparse, name
    if isinstance(op, ReduceOp):
        op = _OPERATIONS[op.name]
    return collectives.allreduce(
        _tensor(tensor),
        average=average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def grouped_allreduce(
    tensors: Sequence[object],
    average: bool | None = None,
    op: Operation | None = None,
    **details: Any,
) -> list[Tensor]:
    """`allreduce` of several tensors."""
    return [allreduce(each, average=average, op=op, **details) for each in tensors]


def allgather(tensor: object, name: str | None = None) -> Tensor:
    """Tensors of all processes one after another."""
    return collectives.allgather(_tensor(tensor), name)


def broadcast(value: object, root_rank: int = 0, name: str | None = None) -> Tensor:
    """The tensor of one process, in every process."""
    return collectives.broadcast(_tensor(value), root_rank, name)


def broadcast_variables(variables: Iterable[keras.Variable], root_rank: int = 0) -> None:
    """Give every process the variables of one."""
    if root_rank == 0:
        share_weights(list(variables))
        return
    for variable in variables:
        variable.assign(collectives.broadcast(variable.value.detach(), root_rank))


def _tensor(value: object) -> Tensor:
    if isinstance(value, keras.Variable):
        return value.value.detach()
    return torch.as_tensor(keras.ops.convert_to_tensor(value))


class DistributedGradientTape(GradientTape):
    """A tape whose gradients are averaged over processes."""

    def __init__(self, gradtape: GradientTape, op: Operation = Average, **_details: object):
        super().__init__()
        self._tape, self._op = gradtape, op

    def gradient(self, target: object, sources: object, *args: Any, **kwargs: Any) -> object:
        result = self._tape.gradient(target, sources, *args, **kwargs)
        return keras.tree.map_structure(
            lambda each: allreduce(each, op=self._op) if isinstance(each, Tensor) else each, result
        )


def DistributedOptimizer(
    optimizer: BaseOptimizer, name: str | None = None, op: Operation = Average, **_details: object
) -> BaseOptimizer:
    """An optimiser whose updates, outside compiled steps, average gradients over processes."""
    del name
    kind = type(optimizer)

    def apply(
        self: BaseOptimizer,
        grads: Sequence[Tensor | None],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> object:
        if collectives.size() > 1:
            if active() is not None:
                raise keras_error(
                    "DistributedOptimizer in a compiled step of several processes.",
                    hint="use PopDistStrategy, which reduces gradients itself",
                )
            grads = [None if g is None else allreduce(g, op=op) for g in grads]
        return kind.apply(self, grads, trainable_variables)

    optimizer.__class__ = type(kind.__name__, (kind,), {"apply": apply})
    return optimizer


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives every process the weights of one before training begins."""

    def __init__(self, root_rank: int, device: str = ""):
        super().__init__()
        del device
        self.root_rank = root_rank

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        del logs
        assert self.model is not None, "callbacks of a model know it"
        broadcast_variables(self.model.variables, self.root_rank)


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages the metrics of an epoch over processes."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        del epoch
        logs = {} if logs is None else logs
        for key, value in logs.items():
            logs[key] = float(allreduce(float(value)))
