"""The Optimum figures: trainers and generation against transformers alone, on a CPU or a GPU."""

import copy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure, Suite
from benchmarks.measure import ratio

if TYPE_CHECKING:  # loaded where they are used
    from torch import Tensor
    from transformers import Trainer

SUITE = Suite("optimum")
N_STEPS, N_WORDS, N_ROWS = 24, 64, 8
N_ITERATIONS_GPU, N_CALLS_GPU = 32, 16  # an epoch long enough that its start does not count
N_PROMPT, N_GENERATED = 16, 48
_IMPORTS = """
import time
import transformers
from transformers import Pipeline, Seq2SeqTrainer, Trainer, pipeline
import poptorch
began = time.process_time()
from optimum.graphcore import IPUConfig, IPUTrainer, IPUTrainingArguments, pipeline
print(time.process_time() - began)
"""


def _is_on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _clock() -> Callable[[], float] | None:
    return None if _is_on_gpu() else time.process_time


# -- fine-tuning -----------------------------------------------------------------------------------


def _tiny_bert() -> Any:  # noqa: ANN401
    """BERT-tiny: two layers of 128."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    return BertForSequenceClassification(config)


def _rows(n: int) -> "list[dict[str, Tensor | int]]":
    import torch

    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 30_000, (n, N_WORDS), generator=draw)
    mask = torch.ones(N_WORDS, dtype=torch.long)
    return [{"input_ids": row, "attention_mask": mask, "labels": int(row[0]) % 2} for row in ids]


def _arguments(folder: str) -> dict[str, Any]:
    return {
        "output_dir": folder, "per_device_train_batch_size": N_ROWS, "report_to": [],
        "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no",
        "num_train_epochs": 1,
    }  # fmt: skip


def _data_for(n_iterations: int) -> "list[dict[str, Tensor | int]]":
    n_steps = N_STEPS if n_iterations == 1 else N_CALLS_GPU * n_iterations
    return _rows(N_ROWS * n_steps)


def _our_trainer(folder: str, n_iterations: int) -> "Trainer":
    from optimum.graphcore import IPUConfig, IPUTrainer, IPUTrainingArguments

    return IPUTrainer(
        _tiny_bert(),
        IPUConfig(device_iterations=n_iterations),
        IPUTrainingArguments(fp32=True, **_arguments(folder)),
        train_dataset=_data_for(n_iterations),
    )


def _their_trainer(folder: str, n_iterations: int) -> "Trainer":
    """The one of transformers, over the same rows."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(use_cpu=not _is_on_gpu(), **_arguments(folder))
    return Trainer(_tiny_bert(), arguments, train_dataset=_data_for(n_iterations))


@SUITE.measurement("fine-tuning")
def fine_tuning() -> Iterator[Figure]:
    """An epoch of BERT-tiny: ours ÷ transformers' Trainer; on a GPU theirs ÷ ours."""
    from accelerate.state import AcceleratorState
    from transformers import logging
    from transformers.trainer_callback import PrinterCallback

    logging.set_verbosity_error()
    n_iterations = N_ITERATIONS_GPU if _is_on_gpu() else 1
    result: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for make in (_our_trainer, _their_trainer):
            # accelerate has one device per process: that of the first trainer.
            AcceleratorState._reset_state(reset_partial_state=True)
            trainer = make(folder, n_iterations)
            trainer.remove_callback(PrinterCallback)
            result.append(_best_time(trainer.train))
    ours, theirs = result
    if _is_on_gpu():
        yield Figure.of("fine-tuning-gpu", theirs / ours, "× Trainer", ">= 4")
    else:
        yield Figure.of("fine-tuning", ours / theirs, "of Trainer", "<= 1.0")


def _best_time(action: Callable[[], object]) -> float:
    """Seconds of the best of a few calls, after one that compiles."""
    clock = _clock() or time.perf_counter
    times = []
    for _ in range(4 if _is_on_gpu() else 6):
        began = clock()
        action()
        times.append(clock() - began)
    return min(times[1:])


# -- generation ------------------------------------------------------------------------------------


@SUITE.measurement("generation")
def generation() -> Iterator[Figure]:
    """Words per second of GPT-2 small with random weights, greedy: ours ÷ transformers'."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from tremula.frontends.optimum.generation.mixin import generating

    torch.manual_seed(0)
    plain: Any = GPT2LMHeadModel(GPT2Config()).eval()
    plain.generation_config.pad_token_id, plain.generation_config.eos_token_id = 0, None
    compiled: Any = generating(copy.deepcopy(plain))
    words = torch.randint(3, 50_000, (1, N_PROMPT))
    there = words
    if _is_on_gpu():
        plain, there = plain.cuda(), words.cuda()
    settings = {"max_new_tokens": N_GENERATED, "do_sample": False}
    measured = ratio(
        lambda: compiled.generate(words, **settings),
        lambda: plain.generate(there, **settings),
        rounds=5,
        min_time_s=0,
        clock=_clock(),
    )
    bar = ">= 4" if _is_on_gpu() else ">= 1.2"
    name = "generation-gpu" if _is_on_gpu() else "generation"
    yield Figure.of(name, 1 / measured.value, "× generate", bar)


# -- packing ---------------------------------------------------------------------------------------


@SUITE.measurement("packing")
def packing() -> Iterator[Figure]:
    """Sentences per second, packed ÷ each in a separate row, on lengths of a real text."""
    import torch

    import poptorch
    from tremula.frontends.optimum.packing import (
        PackedBertForSequenceClassification,
        PackedDataset,
    )
    from tremula.garden.models.datasets.text import documentation

    size = 128
    texts = [text for own in documentation().values() for text in own]
    lengths = [min(len(text.split()) + 2, size) for text in texts]
    draw = torch.Generator().manual_seed(0)
    sentences = [
        {"input_ids": torch.randint(3, 30_000, (n,), generator=draw), "labels": n % 2}
        for n in lengths
    ]
    packed = PackedDataset(sentences, max_length=size)
    model = _tiny_bert().eval()
    rows = {k: torch.stack([packed[i][k] for i in range(N_ROWS)]) for k in packed[0]}
    single = {name: rows[name] for name in ("input_ids",)}
    single["attention_mask"] = torch.ones_like(rows["input_ids"])
    single["labels"] = torch.zeros(N_ROWS, dtype=torch.long)
    alone = copy.deepcopy(model)
    one = poptorch.trainingModel(alone, None, torch.optim.SGD(alone.parameters(), lr=0.0))
    wrapped = PackedBertForSequenceClassification(model)
    many = poptorch.trainingModel(wrapped, None, torch.optim.SGD(wrapped.parameters(), lr=0.0))
    measured = ratio(lambda: many(**rows), lambda: one(**single), rounds=7, clock=_clock())
    gain = packed.packing.sequences_per_row / measured.value
    yield Figure.of("packing", gain, "× unpacked", ">= 1.7")


# -- families, import ------------------------------------------------------------------------------


@SUITE.measurement("families")
def families() -> Iterator[Figure]:
    """Families of which a class trains and infers on the host, and compiles for tiles."""
    from tests.frontends.optimum.family_table import swept_families

    rows = swept_families()
    n_families = len({row.family for row in rows})
    on_host = {row.family for row in rows} - {row.family for row in rows if row.host != "yes"}
    on_tiles = {row.family for row in rows} - {row.family for row in rows if row.tiles != "yes"}
    yield Figure.of("families-host", len(on_host), f"of {n_families}", f">= {n_families}")
    yield Figure.of("families-tiles", len(on_tiles), f"of {n_families}", f">= {n_families}")


@SUITE.measurement("import")
def import_time() -> Iterator[Figure]:
    """CPU seconds that the names of `optimum.graphcore` take after transformers and PopTorch."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True
    )
    yield Figure.of("import", float(done.stdout), "CPU s", "<= 0.5")
