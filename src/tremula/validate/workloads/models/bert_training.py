"""BERT in training: pre-training of both sizes, SQuAD, and MLPerf's."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.model_call import loaded_host_seconds
from tremula.validate.workloads.models.bert_facts import (
    MASKS,
    MAX_PACKED,
    MLPERF,
    MLPERF_GLOBAL_BATCH,
    MLPERF_TABLE_ROWS,
    PACKED_SEQUENCES,
    PROGRAMS,
    SQUAD,
    BertProgram,
    MlperfProgram,
    SquadProgram,
    mlperf_evaluation_interval,
)
from tremula.validate.workloads.models.pipeline import (
    Training,
    equal_layers,
    throughput,
    time_training,
)
from tremula.validate.workloads.models.row_facts import (
    TRAINING,
    accumulation_of,
    best_of,
    framework_of,
    gelu_of,
)
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tremula.garden.models.published.encoder import EncoderSize

GBYTES = 5.0


@workload("BERT[- ]?(Large|Base) pre-?training", TRAINING, gbytes=GBYTES)
def pre_training(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Sequences by the time of an update, which is a call."""
    program = _program_of(row)
    n_chips = len(program.layers)
    replicas = max(1, row.n_ipus // n_chips)
    training = Training(
        build=lambda layers: _pre_training_model(program, layers),
        of=equal_layers(program.layers),
        accumulation=accumulation_of(
            row, program.micro_batch, replicas, default=_rows_of_update(program)
        ),
        replicas=replicas,
        optimizer=program.optimizer,
        proportions=program.proportions,
        returns=True,
        micro_batch_items=program.micro_batch * _sequences_per_row(program),
    )
    return throughput(training, chip_name)


@workload("BERT[- ]?Large.*SQuAD.*(training|fine)|BERT[- ]?Large fine-?tuning.*", TRAINING,
          gbytes=GBYTES)  # fmt: skip
def squad(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Sequences by the time of a call, which has several updates."""
    program = best_of(SQUAD, lambda one: one.framework == framework_of(row))
    replicas = max(1, row.n_ipus // len(program.layers))
    training = Training(
        build=lambda layers: _squad_model(program, layers),
        of=equal_layers(program.layers, has_last=True),
        accumulation=accumulation_of(row, program.micro_batch, replicas, default=256),
        replicas=replicas,
        optimizer=program.optimizer,
        proportions=program.proportions,
        updates_per_call=program.updates_per_call,
        micro_batch_items=program.micro_batch,
    )
    return throughput(training, chip_name)


@workload("BERT[- ]?Large.*MLPerf|MLPerf.*BERT[- ]?Large", TRAINING, gbytes=GBYTES)
def mlperf(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Sequences by the time of a step and its part of the evaluations."""
    pod = row.n_ipus
    program = best_of(
        MLPERF, lambda one: one.chip == chip_name, lambda one: max(one.pods) >= pod >= min(one.pods)
    )
    replicas = max(1, pod // len(program.layers))
    # A row of the batch packs two sequences.
    n_rows = row.number("global_batch", MLPERF_GLOBAL_BATCH) / 2
    accumulation = max(1, round(n_rows / replicas / program.micro_batch))
    training = Training(
        build=lambda layers: _mlperf_model(program, layers),
        of=equal_layers(program.layers),
        accumulation=row.number("gradient_accumulation", accumulation),
        replicas=replicas,
        optimizer=program.optimizer,
        proportions=program.proportions,
        returns=True,
        layers_return=True,
        checkpoint_bytes=program.checkpoint_bytes,
        micro_batch_items=2 * program.micro_batch,
        host_s=loaded_host_seconds(replicas),  # each step has its batch of real data
    )
    time = time_training(training, chip_name)
    sequences = training.items_per_call
    interval = mlperf_evaluation_interval(int(sequences))
    evaluation_s = program.evaluation_seconds(time.seconds, sequences / 2)
    n_evaluations = sequences / interval if "eval" in row.details else 0.0
    seconds = time.seconds + evaluation_s * n_evaluations
    return ModelledValue(seconds * time.clock_hz, time.clock_hz, n_items=sequences)


def _program_of(row: MeasuredRow) -> BertProgram:
    """The program whose size, length and packing the row states; of several, its framework's."""
    text = f"{row.workload} {row.details}".lower()
    size = "large" if "large" in text else "base"
    length = _length_of(row, text)
    is_packed = bool(re.search(r"\bpack(ed|ing)\b", text)) and not re.search(
        r"\b(un|non-?|not |no |without )pack", text
    )
    known = [one for one in PROGRAMS if one.size == size]
    if not any(one.n_words == length for one in known):
        raise NoWorkload(f"no public program trains BERT-{size} with {length} words", hint="")
    return best_of(
        known,
        lambda one: one.n_words == length,
        lambda one: one.is_packed == is_packed,
        lambda one: one.framework == framework_of(row),
        lambda one: row.n_ipus >= one.large_pod > 0,
    )


def _length_of(row: MeasuredRow, text: str) -> int:
    """Words of a sequence: "SL384", "seq 384", or those of a phase of pre-training."""
    if row.has("sequence_length"):
        return row.number("sequence_length")
    stated = re.search(r"\b(?:sl|seq(?:uence)?(?:[ _-]?len(?:gth)?)?)[ =:_-]*(\d+)\b", text)
    if stated is not None:
        return int(stated[1])
    return 512 if re.search(r"\bph(ase)?[ -]?2\b", text) else 128


def _sequences_per_row(program: BertProgram) -> float:
    if not program.is_packed:
        return 1.0
    keys = (program.framework, program.n_words), ("", program.n_words)
    return next(PACKED_SEQUENCES[key] for key in keys if key in PACKED_SEQUENCES)


def _rows_of_update(program: BertProgram) -> int:
    """The global batch of the public configurations, where a row states none."""
    sequences = 65536 if program.n_words == 128 else 16384
    return round(sequences / _sequences_per_row(program))


# -- models ----------------------------------------------------------------------------------------


def _size(name: str, n_layers: int) -> "EncoderSize":
    from tremula.garden.models.published.encoder import EncoderSize

    large = EncoderSize(n_layers=n_layers, width=1024, n_heads=16, n_inner=4096, dropout=0.1)
    base = replace(large, width=768, n_heads=12, n_inner=3072)
    return {"large": large, "base": base}[name]


Built = tuple["nn.Module", Sequence["Tensor"]]


def _pre_training_model(program: BertProgram, layers: Sequence[int]) -> Built:
    from tremula.garden.models.published.bert import BertForPreTraining, PreTraining

    n_masks = MASKS[program.n_words] + (MAX_PACKED - 1 if program.is_packed else 0)
    task = PreTraining(
        n_masks=n_masks,
        n_packed=MAX_PACKED if program.is_packed else 0,
        has_transform=program.has_transform,
        keeps_last_of_chip=program.keeps_last_of_chip,
    )
    size = replace(
        _size(program.size, sum(layers)),
        n_words=program.table_rows,
        has_attention_bias=program.has_bias,
        gelu=gelu_of(program.framework),
    )
    model = BertForPreTraining(size, task).half().train()
    model.place(layers)
    return model, _words(program.micro_batch, program.n_words, n_masks, task.n_packed or 1)


def _words(n_rows: int, n_words: int, n_masks: int, n_labels: int) -> Sequence["Tensor"]:
    import torch

    sizes = (*[n_words] * 4, n_masks, n_labels)
    return [torch.zeros(n_rows, size, dtype=torch.int32) for size in sizes]


def _squad_model(program: SquadProgram, layers: Sequence[int]) -> Built:
    import torch

    from tremula.garden.models.published.bert import BertForAnswers

    size = replace(
        _size("large", sum(layers)),
        n_words=program.table_rows,
        has_attention_bias=program.has_bias,
        attention_dropout=program.attention_dropout,
        gelu=gelu_of(program.framework),
    )
    model = BertForAnswers(size).half().train()
    model.place(layers)
    words = torch.zeros(program.micro_batch, 384, dtype=torch.int32)
    place = torch.zeros(program.micro_batch, dtype=torch.int32)
    return model, (words, words, words, words, place, place)


def _mlperf_model(program: MlperfProgram, layers: Sequence[int]) -> Built:
    from tremula.garden.models.published.bert import BertForPreTraining, PreTraining

    n_masks = MASKS[512] + MAX_PACKED - 1
    task = PreTraining(
        n_masks=n_masks,
        n_packed=MAX_PACKED,
        has_next_sentence=program.has_next_sentence,
        keeps_last_of_chip=False,
    )
    size = replace(
        _size("large", sum(layers)),
        n_words=MLPERF_TABLE_ROWS,
        attention_dropout=program.attention_dropout,
    )
    model = BertForPreTraining(size, task).half().train()
    model.place(layers)
    return model, _words(program.micro_batch, 512, n_masks, MAX_PACKED)
