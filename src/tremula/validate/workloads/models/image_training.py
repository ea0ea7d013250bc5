"""Convolutional networks in training: ResNet-50, ResNeXt-101, EfficientNet-B4, UNet.

From graphcore/examples v2.5 and v3.0 (vision/cnns of tensorflow1 and pytorch, vision/unet_medical)
and mlcommons/training_results_v1.1 and v2.0 (Graphcore/benchmarks/resnet).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from tremula.base.replica_group import ReplicaGroup
from tremula.base.types import FLOAT
from tremula.compiler.lower.lower import lower
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.target import IPUModel
from tremula.poplibs import gcl
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import timing_of
from tremula.validate.workloads.models.pipeline import (
    MeasuredOptimizer,
    Reduced,
    Training,
    n_parameters,
    throughput,
    whole,
)
from tremula.validate.workloads.models.row_facts import (
    TRAINING,
    accumulation_of,
    best_of,
    framework_of,
    is_before_sdk,
)
from tremula.validate.workloads.table import ModelledValue, workload

if TYPE_CHECKING:
    from torch import Tensor, nn

Built = tuple["nn.Module", Sequence["Tensor"]]

IMAGENET_IMAGES = 1_281_167
RESNET_ACCUMULATION = 10  # where a row states no batch: that of TensorFlow's program on a Pod16
_MOMENTUM = MeasuredOptimizer(kind="sgd", first_is_half=True)
_RESNET_DEPTHS = (3, 4, 6, 3)
# Blocks whose results are kept: the programs name their final relus. Others are computed again.
_KEPT_BY_TF1 = (0, 2, 3, 5, 7, 10)
_KEPT_BY_POPTORCH = (0, 1, 2, 3, 5, 6, 7, 9, 11, 12, 13, 14, 15)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNetProgram:
    """One way to train ResNet-50 on one chip per replica."""

    framework: str
    chips: tuple[str, ...]
    pods: tuple[int, ...]
    micro_batch: int
    norm_span: int  # replicas whose batch norms are joined
    proportion: float = 0.15
    updates_per_call: int = 50
    is_old: bool = False  # before SDK 2.5
    is_mlperf: bool = False
    keeps: tuple[int, ...] = _KEPT_BY_TF1
    n_host_processes: int = 0  # that copy images from shared memory, as loaders of PopTorch do


RESNET = (
    ResNetProgram(framework="tf1", chips=("bow",), pods=(16,), micro_batch=22, norm_span=2,
                  updates_per_call=73),
    ResNetProgram(framework="tf1", chips=("bow",), pods=(64, 128), micro_batch=20, norm_span=2),
    ResNetProgram(framework="tf1", chips=("bow", "gc200"), pods=(256,), micro_batch=20, norm_span=2,
                  updates_per_call=25),
    ResNetProgram(framework="tf1", chips=("gc200",), pods=(16, 64, 128), micro_batch=20,
                  norm_span=2, is_mlperf=True),
    ResNetProgram(framework="tf1", chips=("bow", "gc200"), pods=(16,), micro_batch=20, norm_span=2,
                  is_old=True),
    ResNetProgram(framework="tf1", chips=("bow", "gc200"), pods=(64,), micro_batch=20, norm_span=2,
                  proportion=0.145, is_old=True),
    ResNetProgram(framework="poptorch", chips=("bow", "gc200"), pods=(16, 64), micro_batch=18,
                  norm_span=1, proportion=0.16, updates_per_call=1, keeps=_KEPT_BY_POPTORCH,
                  n_host_processes=8),
)  # fmt: skip


@workload("ResNet-?50.*training", TRAINING, gbytes=5.0)
def resnet50(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Images by the time of a call; or the time of an epoch."""
    training = _resnet_training(row, chip_name)
    modelled = throughput(training, chip_name)
    extra_s = _norm_seconds(training, row, chip_name)
    seconds = modelled.cycles / modelled.clock_hz + extra_s
    if "epoch" in row.workload:
        seconds *= IMAGENET_IMAGES / training.items_per_call
    return replace(modelled, cycles=seconds * modelled.clock_hz)


def _resnet_program(row: MeasuredRow, chip_name: str) -> ResNetProgram:
    is_old = is_before_sdk(row, 2.5) and "mlperf" not in row.workload.lower()
    return best_of(
        RESNET,
        lambda one: one.framework == (framework_of(row) or "tf1"),
        lambda one: one.is_old == is_old,
        lambda one: chip_name in one.chips,
        lambda one: one.is_mlperf == ("mlperf" in row.workload.lower()),
        lambda one: row.n_ipus in one.pods,
    )


def _resnet_training(row: MeasuredRow, chip_name: str) -> Training:
    program = _resnet_program(row, chip_name)
    micro_batch = row.number("micro_batch", program.micro_batch)
    return Training(
        build=lambda _: _resnet_model(program, micro_batch),
        of=whole(1),
        accumulation=accumulation_of(
            row, micro_batch, row.n_ipus, default=RESNET_ACCUMULATION * micro_batch * row.n_ipus
        ),
        replicas=row.n_ipus,
        optimizer=_MOMENTUM,
        proportions=(program.proportion,),
        updates_per_call=program.updates_per_call,
        micro_batch_items=micro_batch,
        n_host_processes=program.n_host_processes,
    )


def _resnet_model(program: ResNetProgram, micro_batch: int) -> Built:
    from tremula.garden.models.published.image_nets import ImageNet

    model = ImageNet(_RESNET_DEPTHS, keeps=program.keeps).half().train()
    return model, _images(micro_batch, 224)


def _images(n: int, side: int) -> "tuple[Tensor, Tensor]":
    import torch

    images = torch.zeros(n, 3, side, side, dtype=torch.uint8)
    return images, torch.zeros(n, dtype=torch.int32)


def _norm_seconds(training: Training, row: MeasuredRow, chip_name: str) -> float:
    """Statistics of batch norms, joined with the neighbouring replica's.

    Each norm sends two numbers a channel: forwards, when it is computed again, and backwards.
    """
    program = _resnet_program(row, chip_name)
    if program.norm_span == 1 or training.replicas == 1:
        return 0.0
    channels = [64] + [c for g, depth in enumerate(_RESNET_DEPTHS)
                       for c in (64 << g, 64 << g, 256 << g) * depth + (256 << g,)]  # fmt: skip
    once = sum(pair_sum_seconds(chip_name, 2 * n) for n in channels)
    return 3 * once * training.accumulation * training.updates_per_call


@cache
def pair_sum_seconds(chip_name: str, n_elements: int) -> float:
    """Floats of one tile for each of some channels, summed over two neighbouring replicas."""
    graph, sequence = Graph(IPUModel(chip_name, 2).create_target(), 2), ProgramSequence()
    tensor = graph.add_variable(FLOAT, [n_elements], "statistics", mapping="linear")
    gcl.all_reduce_in_place(graph, tensor, sequence, group=ReplicaGroup(2, 1))
    timing = timing_of(lower(graph, sequence))
    return timing.cycles / timing.clock_hz


# -- ResNeXt ---------------------------------------------------------------------------------------


@workload("ResNeXt-?101.*", TRAINING, gbytes=5.0)
def resnext101(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Two chips; of the 22 equal blocks of the third group one is built, on a chip by itself."""
    replicas = max(1, row.n_ipus // 2)
    return throughput(
        Training(
            build=_resnext_model,
            of=Reduced((8, 1, 3), ((1, 3, 0), (0, 19, 1)), (0, 2), _resnext_parameters),
            accumulation=accumulation_of(row, 6, replicas, default=768),
            replicas=replicas,
            optimizer=_MOMENTUM,
            proportions=(0.6,),
            updates_per_call=104,
            micro_batch_items=6,
            strides_group_norms=True,  # the default of TensorFlow's group_norm
        ),
        chip_name,
    )


def _resnext_model(layers: Sequence[int]) -> Built:
    from tremula.garden.models.published.image_nets import ImageNet, group_norm

    model = ImageNet((3, 4, 2, 3), width=128, n_groups=32, norm=group_norm(32)).half().train()
    model.place(layers)
    return model, _images(6, 224)


def _resnext_parameters(model: "nn.Module") -> Sequence[float]:
    sizes = [n_parameters(block) for block in model.layers]  # pyright: ignore[reportGeneralTypeIssues]
    return sum(sizes[:8]), sizes[8], sum(sizes[9:]) + n_parameters(model.out)  # pyright: ignore[reportArgumentType]


# -- EfficientNet ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficientNetProgram:
    """One way to train EfficientNet-B4 with groups of 16, on two chips."""

    framework: str
    micro_batch: int
    global_batch: int
    proportion: float
    optimizer: MeasuredOptimizer
    updates_per_call: int
    n_host_processes: int = 0  # that copy images from shared memory
    dithers_convolutions: bool = False


EFFICIENTNET = (
    EfficientNetProgram(framework="tf1", micro_batch=3, global_batch=6144, proportion=0.4,
                        optimizer=_MOMENTUM, updates_per_call=2, dithers_convolutions=True),
    EfficientNetProgram(framework="poptorch", micro_batch=4, global_batch=1024, proportion=0.1,
                        optimizer=MeasuredOptimizer(kind="rmsprop", is_sharded=True),
                        updates_per_call=4, n_host_processes=2),
)  # fmt: skip
# Blocks of each group on the built chips: of equal blocks (all but a group's first) one is built.
_B4_SIDE = 380


@workload("EfficientNet-?B4.*", TRAINING, gbytes=6.0)
def efficientnet_b4(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Images by the time of a call."""
    program = best_of(EFFICIENTNET, lambda one: one.framework == framework_of(row))
    replicas = max(1, row.n_ipus // 2)
    is_mixed = row.text("precision", "16.16").endswith(".32")
    return throughput(
        Training(
            build=lambda _: _efficientnet_model(program.micro_batch),
            of=whole(2),
            accumulation=accumulation_of(
                row, program.micro_batch, replicas, default=program.global_batch
            ),
            replicas=replicas,
            optimizer=replace(program.optimizer, accumulates_in_float=is_mixed),
            proportions=(program.proportion,),
            updates_per_call=program.updates_per_call,
            micro_batch_items=program.micro_batch,
            n_host_processes=program.n_host_processes,
            dithers_convolutions=program.dithers_convolutions,
            strides_group_norms=True,  # TensorFlow's default; --enable-fast-groupnorm of PopTorch's
        ),
        chip_name,
    )


def _efficientnet_model(micro_batch: int) -> Built:
    from tremula.garden.models.published.image_nets import EfficientNet

    model = EfficientNet().half().train()
    model.place((0, model.first_of_group[3]))
    return model, _images(micro_batch, _B4_SIDE)


# -- UNet ------------------------------------------------------------------------------------------


@workload("UNet.*", TRAINING, gbytes=6.0)
def unet(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Images by the time of a call, which has ten updates of 24 images."""
    replicas = max(1, row.n_ipus // 4)
    return throughput(
        Training(
            build=lambda _: _unet_model(),
            of=whole(4),
            accumulation=accumulation_of(row, 1, replicas, default=24),
            replicas=replicas,
            optimizer=_MOMENTUM,
            proportions=(0.70, 0.30, 0.45, 0.70),
            updates_per_call=10,
            micro_batch_items=1,
        ),
        chip_name,
    )


def _unet_model() -> Built:
    import torch

    from tremula.garden.models.published.image_nets import UNet

    labels = torch.zeros(1, 2, 388, 388, dtype=torch.half)
    return UNet().half().train(), (torch.zeros(1, 1, 572, 572, dtype=torch.half), labels)
