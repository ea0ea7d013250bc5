"""The public programs that train BERT: placement, batches, memory and optimisers, as a table.

From graphcore/examples v2.5 to v3.3 (nlp/bert/popart, pytorch, tensorflow2; tensorflow of v2.5) and
mlcommons/training_results_v1.1 and v2.0 (Graphcore/benchmarks/bert).
"""

import math
from dataclasses import dataclass, replace
from functools import partial

from tremula.validate.workloads.models.pipeline import MeasuredOptimizer

# Sequences in a row of a packed batch. PopTorch's configuration states 1.17 for 128 words and 2.0
# for 512; PopART's global batches are those of its unpacked ones divided by 1.196.
PACKED_SEQUENCES = {("popart", 128): 1.196, ("poptorch", 128): 1.17, ("", 384): 1.7, ("", 512): 2.0}
MASKS = {128: 20, 384: 56, 512: 76}
MAX_PACKED = 3

_ADAM = MeasuredOptimizer(kind="adam", first_is_half=True, is_sharded=True)
_LAMB = MeasuredOptimizer(kind="lamb", is_off_chip=True, is_sharded=True)
_LAMB_OF_MLPERF_V1 = MeasuredOptimizer(kind="lamb", first_is_half=True, is_sharded=True)
_LAMB_OF_MLPERF_V2 = replace(_LAMB_OF_MLPERF_V1, second_is_half=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BertProgram:
    """One way to train BERT; rows say framework, length, pod and batch."""

    framework: str
    size: str  # large, base
    n_words: int  # of a sequence
    is_packed: bool = False
    layers: tuple[int, ...]
    micro_batch: int
    proportions: tuple[float, ...]
    optimizer: MeasuredOptimizer = _LAMB
    table_rows: int = 30400
    has_bias: bool = False
    has_transform: bool = True
    keeps_last_of_chip: bool = True
    large_pod: int = 0  # only for pods from this size on


_popart = partial(BertProgram, framework="popart", keeps_last_of_chip=False)
_poptorch = partial(
    BertProgram, framework="poptorch", table_rows=30522, has_bias=True,
    optimizer=MeasuredOptimizer(kind="lamb", is_off_chip=True, is_sharded=True, corrects_bias=True),
)  # fmt: skip
_tf = partial(
    BertProgram, has_transform=False, optimizer=MeasuredOptimizer(kind="lamb", is_off_chip=True)
)
_LARGE, _BASE = (3, 7, 7, 7), (0, 4, 4, 4)

PROGRAMS = (
    _popart(size="large", n_words=128, is_packed=True, layers=_LARGE, micro_batch=8,
                proportions=(0.15, 0.25)),
    _popart(size="large", n_words=512, is_packed=True, layers=_LARGE, micro_batch=2,
                proportions=(0.16, 0.21)),
    _popart(size="large", n_words=128, layers=_LARGE, micro_batch=8,
                proportions=(0.15, 0.25)),
    _popart(size="large", n_words=384, layers=_LARGE, micro_batch=2,
                proportions=(0.15, 0.40)),
    _popart(size="large", n_words=512, layers=_LARGE, micro_batch=2,
                proportions=(0.16, 0.21)),
    _popart(size="base", n_words=128, layers=_BASE, micro_batch=32,
                proportions=(0.28,)),
    _popart(size="base", n_words=384, layers=_BASE, micro_batch=8,
                proportions=(0.28,)),
    _popart(size="base", n_words=512, layers=_BASE, micro_batch=8,
                proportions=(0.28,)),
    _poptorch(size="large", n_words=128, is_packed=True, layers=_LARGE,
                micro_batch=8, proportions=(0.15, 0.25)),
    _poptorch(size="large", n_words=128, is_packed=True, layers=_LARGE,
                micro_batch=8, proportions=(0.14, 0.19), large_pod=64),
    _poptorch(size="large", n_words=512, is_packed=True, layers=_LARGE,
                micro_batch=2, proportions=(0.10, 0.15)),
    _poptorch(size="large", n_words=512, is_packed=True, layers=_LARGE,
                micro_batch=2, proportions=(0.13, 0.19), large_pod=64),
    _poptorch(optimizer=_LAMB, size="base", n_words=128,
                layers=_BASE, micro_batch=32, proportions=(0.25,)),
    _tf(framework="tf2", size="large", n_words=128, layers=_LARGE, micro_batch=8,
                proportions=(0.15, 0.19, 0.25, 0.25)),
    _tf(optimizer=_LAMB, framework="tf2", size="large", n_words=128,
                layers=_LARGE, micro_batch=8, proportions=(0.10, 0.19, 0.20, 0.20), large_pod=64),
    _tf(framework="tf2", size="base", n_words=128, layers=_BASE, micro_batch=32,
                proportions=(0.28,)),
    _tf(framework="tf2", size="base", n_words=384, layers=_BASE, micro_batch=8,
                proportions=(0.28,)),
    _tf(optimizer=_LAMB, framework="tf1", size="large", n_words=128,
                layers=_LARGE, micro_batch=8, proportions=(0.15, 0.25)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SquadProgram:
    """Fine-tuning of BERT-Large on SQuAD, 384 words; the head is on the last chip."""

    framework: str
    layers: tuple[int, ...] = (2, 3, 3, 3, 3, 3, 3, 4)
    micro_batch: int = 4
    proportions: tuple[float, ...]
    table_rows: int
    has_bias: bool
    attention_dropout: float
    updates_per_call: int
    optimizer: MeasuredOptimizer = _ADAM


SQUAD = (
    SquadProgram(framework="popart", proportions=(0.10, 0.32, 0.32, 0.32), table_rows=30400,
                 has_bias=False, attention_dropout=0.1, updates_per_call=4),
    SquadProgram(framework="poptorch", proportions=(0.08, 0.32, 0.32, 0.32), table_rows=30522,
                 has_bias=True, attention_dropout=0.15, updates_per_call=2),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MlperfProgram:
    """MLPerf's BERT-Large: packs of 512 words, two sequences each.

    Attention and dense parts of layers were placed one by one; a part counts as half a layer.
    """

    chip: str
    pods: tuple[int, ...]
    layers: tuple[float, ...]  # of chips 0, 1, …; those of chip 0 come last
    micro_batch: int
    proportions: tuple[float, ...]
    attention_dropout: float = 0.0
    has_next_sentence: bool = True
    # Evaluation runs the training program with a rate of zero; else a forward-only pipeline.
    evaluates_by_training: bool = False
    optimizer: MeasuredOptimizer = _LAMB_OF_MLPERF_V1
    checkpoint_bytes: int = 2  # of an element; one: floats of 8 bits, cast before and behind

    def evaluation_seconds(self, step_s: float, rows_per_step: float) -> float:
        """Of one evaluation; forward takes a quarter of forward, recomputation and backward."""
        if self.evaluates_by_training:
            return step_s * math.ceil(MLPERF_EVALUATED / rows_per_step)
        return step_s * MLPERF_EVALUATED / rows_per_step / 4


MLPERF = (
    MlperfProgram(chip="gc200", pods=(16,), layers=(4.5, 6.5, 6.5, 6.5), micro_batch=2,
                  proportions=(0.23,), has_next_sentence=False, evaluates_by_training=True,
                  optimizer=replace(_LAMB_OF_MLPERF_V1, is_off_chip=True)),
    MlperfProgram(chip="gc200", pods=(64, 128, 256), layers=(1.5, 2, 3, 3.5, 3.5, 3.5, 3.5, 3.5),
                  micro_batch=2, proportions=(0.20, 0.25), has_next_sentence=False,
                  evaluates_by_training=True),
    MlperfProgram(chip="bow", pods=(16,), layers=(0.5, 3, 3.5, 3, 3.5, 3.5, 3.5, 3.5),
                  micro_batch=3, proportions=(0.30,), attention_dropout=0.1, checkpoint_bytes=1,
                  optimizer=_LAMB_OF_MLPERF_V2),
    MlperfProgram(chip="bow", pods=(64, 128, 256), layers=(1, 3, 3, 3, 3.5, 3.5, 3.5, 3.5),
                  micro_batch=3, proportions=(1.0,), attention_dropout=0.1,
                  optimizer=_LAMB_OF_MLPERF_V2),
)  # fmt: skip
MLPERF_TABLE_ROWS = 30912
MLPERF_GLOBAL_BATCH = 3072  # sequences, where a row states none: that of a Pod16 in v1.1
MLPERF_EVALUATED = 10_000  # sequences of an evaluation, one a row


def mlperf_evaluation_interval(global_batch: int) -> int:
    """Sequences between two evaluations, by the rule of the benchmark."""
    return int(0.05 * (230.23 * global_batch + 3_000_000) // 25_000) * 25_000
