"""The table of models: every class of every family, tiny, on the host and on tiles.

python -m tests.frontends.optimum.family_table --page docs/optimum-models.md
python -m tests.frontends.optimum.family_table BertForMaskedLM     # a few, printed
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

import poptorch
from optimum.graphcore import IPUConfig
from poptorch import optim
from tremula.base.errors import PoplarError
from tremula.frontends.optimum.models.pipelined import to_pipelined
from tremula.frontends.optimum.training.executors import ComputedLoss
from tremula.garden.models.tiny_families import CLASSES, FAMILIES, tiny_family_model
from tremula.hardware import chip

_TASKS = {
    "ConditionalGeneration": "text from text, speech or pictures",
    "SequenceClassification": "classification of texts or sounds",
    "MaskedLM": "missing words",
    "MultipleChoice": "multiple choice",
    "PreTraining": "pre-training",
    "QuestionAnswering": "questions",
    "TokenClassification": "classification of words",
    "ImageClassification": "classification of pictures",
    "LMHeadModel": "next words",
    "CTC": "speech to text",
}


@dataclass(frozen=True)
class Row:
    """One class: whether it trains and infers, and what its tile program takes."""

    family: str
    name: str
    host: str
    tiles: str
    cycles: int = 0
    n_bytes_per_tile: int = 0

    @property
    def task(self) -> str:
        return next(text for end, text in _TASKS.items() if self.name.endswith(end))


def swept_families(names: Iterable[str] = CLASSES) -> list[Row]:
    """Try each class."""
    return list(_rows(names))


def _rows(names: Iterable[str]) -> Iterator[Row]:
    family_of = {name: family for family, own in FAMILIES.items() for name in own}
    for name in names:
        host = _attempt(lambda name=name: _trains(name))
        try:
            cycles, n_bytes = _on_tiles(name)
            tiles = "yes"
        except (PoplarError, RuntimeError, ValueError) as error:
            cycles = n_bytes = 0
            tiles = str(error).splitlines()[0]
        yield Row(family_of[name], name, host, tiles, cycles, n_bytes)


def _attempt(action: Any) -> str:
    try:
        action()
    except (PoplarError, RuntimeError, ValueError) as error:
        return str(error).splitlines()[0]
    return "yes"


def _trains(name: str) -> None:
    tiny = tiny_family_model(name)
    pipelined = to_pipelined(tiny.model, IPUConfig()).parallelize()  # pyright: ignore[reportCallIssue]
    trained = ComputedLoss(pipelined)
    optimizer = optim.AdamW(trained.parameters(), lr=1e-3)
    training = poptorch.trainingModel(trained, None, optimizer)
    loss = training(**tiny.batch)
    training.destroy()
    if not bool(torch.isfinite(loss).all()):
        raise ValueError(f"the loss is {float(loss)}")


def _on_tiles(name: str) -> tuple[int, int]:
    tiny = tiny_family_model(name)
    pipelined = to_pipelined(tiny.model.eval(), IPUConfig()).parallelize()  # pyright: ignore[reportCallIssue]
    inference = poptorch.inferenceModel(pipelined, poptorch.Options().logCycleCount(True))
    inference(**tiny.inference_batch)
    cycles = inference.cycleCount()
    memory = inference.tile_program().executable.analysis.memory
    inference.destroy()
    return cycles, int(memory.including_gaps.max())


# -- the usual sizes over a Pod4 -------------------------------------------------------------------

N_WORDS = 128
# Published configuration → class of transformers.
FULL_SIZE: dict[str, str] = {
    "bert-base": "BertForSequenceClassification",
    "distilbert-base": "DistilBertForSequenceClassification",
    "roberta-base": "RobertaForSequenceClassification",
    "vit-base": "ViTForImageClassification",
}


@dataclass(frozen=True)
class FullRow:
    """A model of the usual size over the IPUs of its configuration."""

    config: str
    name: str
    n_ipus: int
    per_second: float
    mib_per_chip: tuple[float, ...]


def full_size_rows() -> Iterator[FullRow]:
    """Compile each for a Pod4."""
    for config_name, name in FULL_SIZE.items():
        kind = getattr(transformers, name)
        torch.manual_seed(0)
        model = kind(kind.config_class()).eval().half()
        config = IPUConfig.from_pretrained(f"Graphcore/{config_name}-ipu").eval()
        config.device_iterations = 1
        pipelined = to_pipelined(model, config).parallelize()  # pyright: ignore[reportCallIssue]
        options = config.to_options(for_inference=True).logCycleCount(True)
        inference = poptorch.inferenceModel(pipelined, options)
        is_picture = name.startswith("ViT")
        picture = torch.zeros(1, 3, 224, 224, dtype=torch.float16)
        words = torch.ones(1, N_WORDS, dtype=torch.int32)
        inference(**({"pixel_values": picture} if is_picture else {"input_ids": words}))
        per_second = chip("bow").clock_hz / inference.cycleCount()
        memory = inference.tile_program().executable.analysis.memory
        n_ipus: int = config.ipus_per_replica
        used = memory.including_gaps.reshape(n_ipus, -1).sum(axis=1) / 2**20
        inference.destroy()
        yield FullRow(config_name, name, n_ipus, per_second, tuple(float(x) for x in used))


def full_size_table(rows: Iterable[FullRow]) -> list[str]:
    """The table of the usual sizes as lines of Markdown."""
    lines = [
        "",
        "## The usual sizes over a Pod4",
        "",
        f"Inference in half with the published configuration, one row of {N_WORDS} words or one",
        "picture at a time, random weights; modelled on Bow chips.",
        "",
        "| configuration | class | IPUs | rows per second | MiB on each chip |",
        "|---|---|---:|---:|---|",
    ]
    for row in rows:
        used = ", ".join(f"{value:,.0f}" for value in row.mib_per_chip)
        cells = [f"`Graphcore/{row.config}-ipu`", f"`{row.name}`", str(row.n_ipus)]
        lines.append("| " + " | ".join([*cells, f"{row.per_second:,.0f}", used]) + " |")
    return lines


def page(rows: list[Row]) -> str:
    """The table as Markdown."""
    bow = chip("bow")
    lines = [
        "# Models of Optimum",
        "",
        "Every class of every family that `optimum.graphcore` pipelined, in a tiny configuration",
        "(two layers of 16) with random weights: whether it trains here, whether its tile program",
        "compiles and fits, and what a Bow would take for a batch of two.",
        "",
        "Made by `python -m tests.frontends.optimum.family_table --page docs/optimum-models.md`.",
        "",
        "| family | class | task | host | tiles | cycles | µs on a Bow | bytes of fullest tile |",
        "|---|---|---|---|---|---:|---:|---:|",
    ]
    for row in rows:
        micro = f"{row.cycles / bow.clock_hz * 1e6:,.0f}" if row.cycles else ""
        cells = [row.family, f"`{row.name}`", row.task, row.host, row.tiles]
        figures = [f"{row.cycles:,}" if row.cycles else "", micro, f"{row.n_bytes_per_tile:,}"]
        lines.append("| " + " | ".join(cells + figures) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The table of models.")
    parser.add_argument("classes", nargs="*", default=list(CLASSES))
    parser.add_argument("--page", type=Path, help="write the table here")
    args = parser.parse_args()
    poptorch.setLogLevel("ERR")
    found = swept_families(args.classes)
    if args.page is not None:
        text = page(found) + "\n".join(full_size_table(full_size_rows())) + "\n"
        args.page.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(page(found))
