"""Mini DALL-E and RNN-T in training.

From graphcore/examples v3.0 (multimodal/mini_dalle/pytorch) and mlcommons/training_results_v2.0
(Graphcore/benchmarks/rnnt/implementations/popart). What neither states: the number of words of
DALL-E's text (8192 here), and the longest text of RNN-T (125 pieces).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.models.pipeline import (
    MeasuredOptimizer,
    Reduced,
    Training,
    n_parameters,
    throughput,
)
from tremula.validate.workloads.models.row_facts import TRAINING, accumulation_of
from tremula.validate.workloads.table import ModelledValue, workload

if TYPE_CHECKING:
    from torch import Tensor, nn

Built = tuple["nn.Module", Sequence["Tensor"]]

DALLE_MICRO_BATCH, DALLE_GLOBAL_BATCH, DALLE_WORDS = 3, 6144, 8192
# Of chips 0 to 3: image encoder and embedding; layers that look along rows, columns, everywhere;
# the output layer.
DALLE_PARTS = ((1, 0, 0, 0, 0), (0, 5, 1, 0, 0), (0, 3, 2, 1, 0), (0, 2, 1, 1, 1))

RNNT_MICRO_BATCH, RNNT_GLOBAL_BATCH, RNNT_UTTERANCES = 2, 1024, 279_512
RNNT_PARTS = ((1, 8, 0), (0, 6, 1))


@workload("(mini )?DALL-?E.*", TRAINING, gbytes=4.0)
def mini_dalle(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Pairs of text and image by the time of an update."""
    replicas = max(1, row.n_ipus // len(DALLE_PARTS))
    return throughput(
        Training(
            build=_dalle_model,
            of=Reduced((0, 1, 1, 1, 0), DALLE_PARTS, (0, 1, 1, 4), _dalle_parameters),
            accumulation=accumulation_of(
                row, DALLE_MICRO_BATCH, replicas, default=DALLE_GLOBAL_BATCH
            ),
            replicas=replicas,
            optimizer=MeasuredOptimizer(kind="adam", first_is_half=True, is_sharded=True),
            proportions=(0.6,),
            micro_batch_items=DALLE_MICRO_BATCH,
            n_host_processes=1,
        ),
        chip_name,
    )


def _dalle_model(_: Sequence[int]) -> Built:
    import torch

    from tremula.garden.models.published.dalle import N_TEXT, MiniDalle

    text = torch.zeros(DALLE_MICRO_BATCH, N_TEXT, dtype=torch.int32)
    images = torch.zeros(DALLE_MICRO_BATCH, 3, 256, 256, dtype=torch.uint8)
    return MiniDalle(DALLE_WORDS).half().train(), (text, images)


def _dalle_parameters(model: "nn.Module") -> Sequence[float]:
    ends = n_parameters(model.words) + n_parameters(model.codes)  # pyright: ignore[reportArgumentType]
    layers = [n_parameters(layer) for layer in model.layers]  # pyright: ignore[reportGeneralTypeIssues]
    return ends, *layers, n_parameters(model.out)  # pyright: ignore[reportArgumentType]


@workload("RNN-?T.*|Transformer.?Transducer.*", TRAINING, gbytes=4.0)
def rnnt(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The time of an epoch, or utterances by the time of an update."""
    replicas = max(1, row.n_ipus // len(RNNT_PARTS))
    training = Training(
        build=_rnnt_model,
        of=Reduced((0, 1, 0), RNNT_PARTS, (0, 2), _rnnt_parameters),
        accumulation=accumulation_of(row, RNNT_MICRO_BATCH, replicas, default=RNNT_GLOBAL_BATCH),
        replicas=replicas,
        optimizer=MeasuredOptimizer(
            kind="lamb", is_off_chip=True, is_sharded=True, corrects_bias=True
        ),
        proportions=(0.6,),
        micro_batch_items=RNNT_MICRO_BATCH,
    )
    modelled = throughput(training, chip_name)
    if "epoch" in f"{row.workload} {row.metric}":
        n_updates = RNNT_UTTERANCES / training.items_per_call
        return replace(modelled, cycles=modelled.cycles * n_updates)
    return modelled


def _rnnt_model(_: Sequence[int]) -> Built:
    import torch

    from tremula.garden.models.published.transducer import Transducer, TransducerSize

    size = TransducerSize()
    sound = torch.zeros(RNNT_MICRO_BATCH, size.n_features, size.n_frames, dtype=torch.half)
    text = torch.zeros(RNNT_MICRO_BATCH, size.n_text, dtype=torch.int32)
    return Transducer(size).half().train(), (sound, text)


def _rnnt_parameters(model: "nn.Module") -> Sequence[float]:
    layer = n_parameters(model.layers[0])  # pyright: ignore[reportIndexIssue, reportArgumentType]
    joint = n_parameters(model.out) + n_parameters(model.from_text)  # pyright: ignore[reportArgumentType]
    return n_parameters(model) - layer - joint, layer, joint
