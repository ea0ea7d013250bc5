"""Vision transformers in training: ViT, DINO, Swin.

From graphcore/examples v3.0 (vision/vit, dino, swin of pytorch; v2.6 for Swin-Base) and its
tutorial on ViT.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.model_call import LOADED_HOST_S_PER_CALL
from tremula.validate.workloads.models.pipeline import (
    MeasuredOptimizer,
    Reduced,
    Training,
    equal_layers,
    n_parameters,
    throughput,
)
from tremula.validate.workloads.models.row_facts import TRAINING, accumulation_of, gelu_of
from tremula.validate.workloads.table import ModelledValue, workload

if TYPE_CHECKING:
    from torch import Tensor, nn

Built = tuple["nn.Module", Sequence["Tensor"]]

_VIT_LAYERS = (3, 3, 3, 3)
# A chest X-ray, a grey PNG of 1024 x 1024: decoded, as RGB, resized to 224 x 224, normalised. Taken
# by a core with Pillow 13; the tutorial's loader has eight workers.
_LOADING_S_PER_IMAGE, _N_LOADERS = 16e-3, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class VitProgram:
    """One way to train ViT-B/16."""

    micro_batch: int
    global_batch: int
    n_classes: int = 1000
    has_hidden: bool = False
    attention_dropout: float = 0.0
    keeps_middle: bool = False
    drops_inner: bool = (
        False  # the pre-training's own model; transformers' has it behind both alone
    )
    is_uint8: bool = False
    proportion: float = 0.3
    updates_per_call: int = 1
    optimizer: MeasuredOptimizer
    host_s: float | None = None
    loading_s_per_image: float = 0.0


VIT_PRE_TRAINING = VitProgram(
    micro_batch=8, global_batch=65536, has_hidden=True, attention_dropout=0.1, keeps_middle=True,
    drops_inner=True, is_uint8=True,
    optimizer=MeasuredOptimizer(
        kind="lamb", accumulates_in_float=True, is_sharded=True, corrects_bias=True
    ),
)  # fmt: skip
VIT_FINE_TUNING = VitProgram(
    micro_batch=17, global_batch=2040, updates_per_call=8,
    optimizer=MeasuredOptimizer(kind="sgd", first_is_half=True, is_sharded=True),
)  # fmt: skip
VIT_TUTORIAL = VitProgram(
    micro_batch=1, global_batch=128, n_classes=15, proportion=0.2,
    optimizer=MeasuredOptimizer(kind="adam", first_is_half=True), host_s=LOADED_HOST_S_PER_CALL,
    loading_s_per_image=_LOADING_S_PER_IMAGE / _N_LOADERS,
)  # fmt: skip


@workload("ViT pretraining", TRAINING, gbytes=3.0)
def vit_pre_training(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _vit(VIT_PRE_TRAINING, row, chip_name)


@workload("ViT fine-?tuning", TRAINING, gbytes=3.0)
def vit_fine_tuning(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _vit(VIT_FINE_TUNING, row, chip_name)


@workload("ViT-base fine-tuning ChestX-ray14", TRAINING, gbytes=3.0)
def vit_tutorial(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Steps of the progress bar, which are calls, by time."""
    program = replace(VIT_TUTORIAL, micro_batch=row.number("micro_batch", 1))
    replicas = row.number("replicas", 1)
    modelled = _vit(program, row, chip_name, replicas)
    return replace(modelled, n_items=1.0)


def _vit(program: VitProgram, row: MeasuredRow, chip_name: str, replicas: int = 0) -> ModelledValue:
    replicas = replicas or max(1, row.n_ipus // len(_VIT_LAYERS))
    n_images = row.number("global_batch", program.global_batch) * program.updates_per_call
    return throughput(
        Training(
            build=lambda layers: _vit_model(program, layers),
            of=equal_layers(_VIT_LAYERS, has_last=True),
            accumulation=accumulation_of(
                row, program.micro_batch, replicas, default=program.global_batch
            ),
            replicas=replicas,
            optimizer=program.optimizer,
            proportions=(program.proportion,),
            updates_per_call=program.updates_per_call,
            micro_batch_items=program.micro_batch,
            host_s=program.host_s,
            loading_s=n_images * program.loading_s_per_image,
            n_host_processes=_n_host_processes(row),
        ),
        chip_name,
    )


def _n_host_processes(row: MeasuredRow) -> int:
    """One on a Pod16; larger ones are started with eight (benchmarks.yml of ViT and DINO)."""
    return 8 if row.n_ipus > 16 else 1


def _vit_model(program: VitProgram, layers: Sequence[int]) -> Built:
    import torch

    from tremula.garden.models.published.encoder import EncoderSize
    from tremula.garden.models.published.vision_transformers import VisionTransformer

    size = EncoderSize(
        n_layers=sum(layers), width=768, n_heads=12, n_inner=3072, n_positions=197,
        norms_first=True, attention_dropout=program.attention_dropout, dropout=0.1,
        keeps_middle=program.keeps_middle, gelu=gelu_of("poptorch"), splits_qkv=True,
        drops_inner=program.drops_inner,
    )  # fmt: skip
    model = VisionTransformer(size, 16, program.n_classes, has_hidden=program.has_hidden)
    model = model.half().train()
    model.place(layers)
    kind = torch.uint8 if program.is_uint8 else torch.half
    images = torch.zeros(program.micro_batch, 3, 224, 224, dtype=kind)
    return model, (images, torch.zeros(program.micro_batch, dtype=torch.int32))


# -- Swin ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SwinProgram:
    """One way to train Swin: blocks of each chip, in the order of the model."""

    width: int
    depths: tuple[int, ...]
    n_heads: tuple[int, ...]
    blocks: tuple[int, ...]
    micro_batch: int
    global_batch: int
    is_float: bool = False
    optimizer: MeasuredOptimizer


_SWIN_ADAM = MeasuredOptimizer(kind="adam", first_is_half=True, accumulates_in_float=True)
SWIN = {
    "tiny": SwinProgram(
        width=96, depths=(2, 2, 6, 2), n_heads=(3, 6, 12, 24), blocks=(2, 3, 5, 2), micro_batch=4,
        global_batch=1024, is_float=True, optimizer=_SWIN_ADAM,
    ),
    "base": SwinProgram(
        width=128, depths=(2, 2, 18, 2), n_heads=(4, 8, 16, 32), blocks=(2, 2, 3, 3, 5, 5, 2, 2),
        micro_batch=4, global_batch=512, is_float=True, optimizer=_SWIN_ADAM,
    ),
    "large": SwinProgram(
        width=192, depths=(2, 2, 18, 2), n_heads=(6, 12, 24, 48), blocks=(2, 3, 4, 4, 4, 4, 2, 1),
        micro_batch=6, global_batch=8196,
        optimizer=MeasuredOptimizer(kind="adam", first_is_half=True),
    ),
}  # fmt: skip


@workload(r"Swin.*(pre-?training|fine-?tuning|training)", TRAINING, gbytes=3.0)
def swin(row: MeasuredRow, chip_name: str) -> ModelledValue:
    text = row.workload.lower()
    program = SWIN[next((name for name in SWIN if name in text), "tiny")]
    if row.has("precision"):
        program = replace(program, is_float=row.text("precision").startswith("32"))
    n_chips = len(program.blocks)
    replicas = max(1, row.n_ipus // n_chips)
    return throughput(
        Training(
            build=lambda _: _swin_model(program),
            of=_swin_parts(program),
            accumulation=accumulation_of(
                row, program.micro_batch, replicas, default=program.global_batch
            ),
            replicas=replicas,
            optimizer=program.optimizer,
            proportions=(0.12,),
            micro_batch_items=program.micro_batch,
            uses_half_partials=not program.is_float,
            n_host_processes=_n_host_processes(row),
        ),
        chip_name,
    )


def _swin_parts(program: SwinProgram) -> Reduced:
    """Built chip g has two blocks of group g, and what leads to the group."""
    group_of = [g for g, depth in enumerate(program.depths) for _ in range(depth)]
    rows, first = [], 0
    for n_blocks in program.blocks:
        mine = group_of[first : first + n_blocks]
        rows.append(tuple(mine.count(g) / 2 for g in range(len(program.depths))))
        first += n_blocks
    alike = tuple(max(range(len(row)), key=row.__getitem__) for row in rows)
    return Reduced((2, 2, 2, 2), tuple(rows), alike, _swin_parameters)


def _swin_parameters(model: "nn.Module") -> Sequence[float]:
    blocks = list(model.layers)  # pyright: ignore[reportArgumentType]
    return [sum(n_parameters(b) for b in blocks[i : i + 2]) for i in range(0, len(blocks), 2)]


def _swin_model(program: SwinProgram) -> Built:
    import torch

    from tremula.garden.models.published.vision_transformers import Swin, SwinSize

    size = SwinSize(width=program.width, depths=(2, 2, 2, 2), n_heads=program.n_heads)
    model = Swin(size).train()
    model = model if program.is_float else model.half()
    model.place((2, 2, 2, 2))
    kind = torch.float if program.is_float else torch.half
    images = torch.zeros(program.micro_batch, 3, 224, 224, dtype=kind)
    return model, (images, torch.zeros(program.micro_batch, dtype=torch.int32))


# -- DINO ------------------------------------------------------------------------------------------

DINO_BLOCKS = (1, 2, 2, 2, 2, 2, 1, 0)
DINO_MICRO_BATCH, DINO_GLOBAL_BATCH = 2, 3200


@workload("DINO", TRAINING, gbytes=4.0)
def dino(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Samples, each of two large and eight small crops."""
    replicas = max(1, row.n_ipus // len(DINO_BLOCKS))
    n = len(DINO_BLOCKS)
    parts = tuple(
        (float(c == 0), float(blocks), float(c == n - 2), float(c == n - 1))
        for c, blocks in enumerate(DINO_BLOCKS)
    )
    return throughput(
        Training(
            build=lambda _: _dino_model(),
            of=Reduced((0, 1, 0, 0), parts, (0, *[1] * (n - 3), 2, 3), _dino_parameters),
            accumulation=accumulation_of(
                row, DINO_MICRO_BATCH, replicas, default=DINO_GLOBAL_BATCH
            ),
            replicas=replicas,
            optimizer=MeasuredOptimizer(kind="adam", is_sharded=True),
            proportions=(0.15,),
            micro_batch_items=DINO_MICRO_BATCH,
            n_host_processes=_n_host_processes(row),
        ),
        chip_name,
    )


def _dino_parameters(model: "nn.Module") -> Sequence[float]:
    from tremula.garden.models.published.dino import Dino

    assert isinstance(model, Dino), "the model that _dino_model builds"
    student = model.student
    layer = n_parameters(student.layers[0])
    return n_parameters(student) - layer, layer, n_parameters(model.head), n_parameters(model.last)


def _dino_model() -> Built:
    import torch

    from tremula.garden.models.published.dino import Dino
    from tremula.garden.models.published.encoder import EncoderSize

    size = EncoderSize(
        n_layers=1,
        width=768,
        n_heads=12,
        n_inner=3072,
        n_positions=197,
        norms_first=True,
        gelu=gelu_of("poptorch"),
    )
    model = Dino(size).half().train()
    model.place()
    crops = [
        torch.zeros(DINO_MICRO_BATCH * n, 3, side, side, dtype=torch.uint8)
        for n, side in ((2, 224), (8, 96))
    ]
    return model, crops
