"""Inference on one C600 card by PopRT, as ByteMLPerf drives it.

A model with equal layers is built with one and with two of them, and read for all. Two drivers:

* plain: some threads send blocking calls of one batch. With two or more the card always has the
  next batch, with one it waits for the host in between.
* packed: threads send single sequences, which are packed into rows. Threads are 3.5 for each row,
  and a batch leaves when it is full or 15 ms old: so two batches are under way in turns, and hold
  half of the threads' sequences each, or as many as fit.

From bytedance/ByteMLPerf, byte_infer_perf/general_perf (backends/IPU, model_zoo, workloads).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.model_call import HOST_S_PER_CALL, ModelCall, compiled_call
from tremula.validate.workloads.models.row_facts import INFERENCE
from tremula.validate.workloads.models.timeline import timeline_of
from tremula.validate.workloads.table import ModelledValue, workload

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tremula.frontends.poptorch.options.options import Options

Built = tuple["nn.Module", Sequence["Tensor"]]

THREADS_PER_ROW = 3.5
PACKED_WORDS = 384
MEAN_WORDS = 177  # of a sequence: normal(172, 172) cut to 1 … 384
EIGHT_BITS = ("fp8", "f8", "float8", "quarter")
SEQUENCES_PER_ROW = PACKED_WORDS / MEAN_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A measured model: its layers, its driver, and options of the compiler."""

    build: Callable[[int, int, bool], Built]  # layers, rows of a batch, whether products are 8-bit
    n_layers: int
    batch: int  # where a row states none
    n_threads: int = 0  # of the plain driver
    max_sequences: int = 0  # of the packed one, in a batch
    proportion: float = 0.6
    n_io_tiles: int = 0
    batches_per_run: int = 1


@workload("ALBERT.*inference", INFERENCE, gbytes=2.0)
def albert(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _packed(ALBERT, row, chip_name)


@workload(r"\bBERT[- ]?base.*inference", INFERENCE, gbytes=2.0)
def bert_base(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _packed(BERT_BASE, row, chip_name)


@workload("RoBERTa.*inference", INFERENCE, gbytes=2.0)
def roberta(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _packed(ROBERTA, row, chip_name)


@workload("DeBERTa.*inference", INFERENCE, gbytes=2.0)
def deberta(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _packed(DEBERTA, row, chip_name)


@workload("CLIP.*inference|CLIP$", INFERENCE, gbytes=2.0)
def clip(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _plain(CLIP, row, chip_name)


@workload("RoFormer.*", INFERENCE, gbytes=2.0)
def roformer(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _plain(ROFORMER, row, chip_name)


@workload("Video-?BERT.*", INFERENCE, gbytes=2.0)
def video_bert(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _plain(VIDEO_BERT, row, chip_name)


@workload("Wide ?(&|and|-) ?Deep.*", INFERENCE, gbytes=2.0)
def wide_and_deep(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _plain(WIDE_AND_DEEP, row, chip_name)


def _packed(served: Served, row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Sequences of a batch by the time of a run."""
    batch = row.number("batch", served.batch)
    seconds, clock_hz = _run_seconds(served, batch, row, chip_name)
    most = served.max_sequences * batch / served.batch
    under_way = int(THREADS_PER_ROW * batch) / 2
    n_sequences = min(most, SEQUENCES_PER_ROW * batch, under_way)
    return ModelledValue(seconds * clock_hz, clock_hz, n_items=n_sequences)


def _plain(served: Served, row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Items of a batch by the time that the slower of card and threads takes for it."""
    batch = row.number("batch", served.batch)
    seconds, clock_hz = _run_seconds(served, batch, row, chip_name)
    n_threads = row.number("clients", served.n_threads)
    host_s = HOST_S_PER_CALL / served.batches_per_run
    seconds = max(seconds, (seconds + host_s) / n_threads)
    return ModelledValue(seconds * clock_hz, clock_hz, n_items=batch)


def _run_seconds(
    served: Served, batch: int, row: MeasuredRow, chip_name: str
) -> tuple[float, float]:
    """The card's time for a batch, and its clock: layers are equal, so two builds say all."""
    is_small = row.text("dtype", "fp16") in EIGHT_BITS
    counts = (1, 2) if served.n_layers > 2 else (served.n_layers,)
    times = [_timeline(served, n, batch, chip_name, is_small=is_small) for n in counts]
    cycles = times[0].cycles
    if len(times) == 2:
        cycles += (served.n_layers - 1) * (times[1].cycles - times[0].cycles)
    return cycles / times[0].clock_hz, times[0].clock_hz


def _timeline(served: Served, n_layers: int, batch: int, chip_name: str, *, is_small: bool):  # noqa: ANN202
    model, inputs = served.build(n_layers, batch, is_small)
    call = ModelCall(
        model=model.eval(),
        micro_batch=inputs,
        choose=lambda options: _choose(options, served),
    )
    built, program = compiled_call(call, chip_name).built()
    return timeline_of(built.graph, program)


def _choose(options: "Options", served: Served) -> None:
    import torch

    options.Precision.setPartialsType(torch.half)
    options.setAvailableMemoryProportion({"IPU0": served.proportion})


# -- models ----------------------------------------------------------------------------------------


def _size(n_layers: int, *, n_words: int, **more: object):  # noqa: ANN202
    from tremula.garden.models.published.encoder import EncoderSize

    base = {"width": 768, "n_heads": 12, "n_inner": 3072}
    return EncoderSize(n_layers=n_layers, n_words=n_words, **(base | more))  # type: ignore[arg-type]


def _int_rows(n_rows: int, n_words: int, n_inputs: int) -> "list[Tensor]":
    import torch

    return [torch.zeros(n_rows, n_words, dtype=torch.int32) for _ in range(n_inputs)]


def _answers(n_words: int, **how: object) -> Callable[[int, int, bool], Built]:
    def build(n_layers: int, batch: int, is_small: bool) -> Built:
        from tremula.garden.models.published.answering import AnswerFinder

        size = _size(n_layers, n_words=n_words, uses_float8=is_small)
        model = AnswerFinder(size, **how).half()  # type: ignore[arg-type]
        return model, _int_rows(batch, PACKED_WORDS, 4)

    return build


def _deberta(n_layers: int, batch: int, _: bool) -> Built:
    from tremula.garden.models.published.answering import DeBertaForAnswers

    size = _size(n_layers, n_words=50265, n_kinds=0)
    return DeBertaForAnswers(size).half(), _int_rows(batch, PACKED_WORDS, 3)


def _clip(n_layers: int, batch: int, _: bool) -> Built:
    from tremula.garden.models.published.answering import TextTower

    size = _size(n_layers, n_words=49408, n_positions=77, norms_first=True)
    return TextTower(size).half(), _int_rows(batch, 77, 1)


def _roformer(n_layers: int, batch: int, _: bool) -> Built:
    import torch

    from tremula.garden.models.published.answering import RoFormerForClasses

    size = _size(n_layers, n_words=50000, n_positions=1024)
    return RoFormerForClasses(size).half(), [torch.zeros(batch, 1024) for _ in range(2)]


def _video_bert(n_layers: int, batch: int, _: bool) -> Built:
    """CLIP with patches of 32; 100 texts in each call, however many images."""
    import torch

    from tremula.garden.models.published.answering import ImageTextScores, ImageTower, TextTower

    images = _size(n_layers, n_words=0, n_positions=50, norms_first=True)
    texts = _size(
        n_layers, n_words=49408, n_positions=77, norms_first=True, width=512, n_heads=8,
        n_inner=2048,
    )  # fmt: skip
    model = ImageTextScores(ImageTower(images, 32, 512), TextTower(texts, 512)).half()
    pixels = torch.zeros(batch, 3, 224, 224, dtype=torch.half)
    return model, [pixels, *_int_rows(100, 77, 1)]


def _wide_and_deep(_: int, batch: int, __: bool) -> Built:
    import torch

    from tremula.garden.models.published.answering import WideAndDeep

    ids = torch.zeros(batch, 26, 2, dtype=torch.int32)
    return WideAndDeep().half(), [ids, torch.zeros(batch, 13, dtype=torch.half)]


ALBERT = Served(
    build=_answers(30000, embedding_width=128, shares_layer=True), n_layers=12, batch=40,
    max_sequences=100, proportion=0.5,
)  # fmt: skip
BERT_BASE = Served(build=_answers(30522), n_layers=12, batch=45, max_sequences=120)
ROBERTA = Served(build=_answers(50265), n_layers=12, batch=40, max_sequences=100, proportion=0.4)
DEBERTA = Served(build=_deberta, n_layers=12, batch=10, max_sequences=20, proportion=0.4)
CLIP = Served(
    build=_clip, n_layers=12, batch=4, n_threads=3, proportion=0.8, n_io_tiles=32,
    batches_per_run=128,
)  # fmt: skip
ROFORMER = Served(build=_roformer, n_layers=12, batch=12, n_threads=1)
VIDEO_BERT = Served(
    build=_video_bert, n_layers=12, batch=4, n_threads=3, proportion=0.2, batches_per_run=128
)
WIDE_AND_DEEP = Served(
    build=_wide_and_deep, n_layers=1, batch=20000, n_threads=5, n_io_tiles=32,
    batches_per_run=1024,
)  # fmt: skip


@workload("Swin-?Large.*inference", INFERENCE, gbytes=4.0)
def swin_inference(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """384 pixels, windows of 12; of 18 blocks of the third group two are built, and two more."""
    return _plain(SWIN_LARGE, row, chip_name)


def _swin_large(n_pairs: int, batch: int, _: bool) -> Built:
    """`n_pairs` of blocks in the third group."""
    import torch

    from tremula.garden.models.published.vision_transformers import Swin, SwinSize

    size = SwinSize(
        width=192, depths=(2, 2, 2 * n_pairs, 2), n_heads=(6, 12, 24, 48), window=12, n_pixels=384
    )
    return Swin(size).half(), [torch.zeros(batch, 3, 384, 384, dtype=torch.half)]


SWIN_LARGE = Served(
    build=_swin_large, n_layers=9, batch=2, n_threads=4, proportion=0.2, batches_per_run=128
)
