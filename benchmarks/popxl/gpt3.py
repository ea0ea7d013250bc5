"""Figures of GPT-3 over many chips: training against the dense model, compiling, tables."""

import resource
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.figures import Figure
from tremula.garden.models.gpt3 import dense
from tremula.garden.models.gpt3.config import GPTConfig, load_config
from tremula.garden.models.gpt3.costing import CompiledGPT, compile_gpt
from tremula.garden.models.gpt3.tables import layer_all_reduces, streaming_rows
from tremula.garden.models.gpt3.training import Trainer

CONFIGURATIONS = Path(__file__).resolve().parents[2] / "examples" / "popxl" / "gpt3_175b"


def training_error(n_steps: int) -> float:
    """The largest relative error of a weight after some steps of the tiny configuration."""
    config = load_config(CONFIGURATIONS / "tiny.toml")
    weights = dense.random_weights(config)
    expected = {name: w.clone() for name, w in weights.items()}
    batches = list(_batches(config, n_steps))
    trainer = Trainer(config, weights)
    for _ in trainer.train(batches):
        pass
    for _ in dense.train(expected, batches, config):
        pass
    result = trainer.weights()
    return max(
        ((result[name] - w).abs().max() / w.abs().max()).item() for name, w in expected.items()
    )


def _batches(config: GPTConfig, n: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    for _ in range(n):
        shape = (config.training.global_batch, config.model.sequence + 1)
        tokens = torch.randint(0, config.model.vocabulary, shape, generator=draw)
        yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def compiled_figures(name: str, figure: str, most_seconds: float) -> Iterator[Figure]:
    """A configuration compiled and costed: time, memory of this process, and its tables."""
    config = load_config(CONFIGURATIONS / f"{name}.toml")
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tiles that are too full are a separate figure
        compiled = compile_gpt(config)
    seconds = time.process_time() - began
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield Figure.of(f"{figure}-compile", seconds, "CPU s", f"<= {most_seconds:g}")
    yield Figure.of(f"{figure}-memory", gib, "GiB", "<= 16")
    yield Figure.of(f"{figure}-streaming-table", _table_error(compiled), "× off", "<= 0.01")
    yield Figure.of(f"{figure}-all-reduces", _n_all_reduces(compiled), "of a layer", "== 12")
    yield Figure.of(f"{figure}-tokens", compiled.tokens_per_second, "tokens/s", "> 0")


def _table_error(compiled: CompiledGPT) -> float:
    """Streaming memory of the program's buffers against the table, the worst row."""
    counted = {row.item: row.n_bytes for row in streaming_rows(compiled.config)}
    return max(
        abs(row.n_bytes - counted[row.item]) / counted[row.item]
        for row in compiled.streaming_rows()
    )


def _n_all_reduces(compiled: CompiledGPT) -> int:
    """All-reduces of a layer, both ways, layer norms included, in the graphs that were built."""
    program = compiled.program
    backward = program.layer_gradient.graph.called_graphs[-1]
    graphs = (program.layer_graph.graph, backward)
    result = sum(op.kind == "ReplicatedAllReduceTP" for g in graphs for op in g.ops)
    assert len(layer_all_reduces(compiled.config)) == 12, "eight, and four of layer norms"
    return result
