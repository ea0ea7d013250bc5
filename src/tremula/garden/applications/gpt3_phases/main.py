"""Trains a small GPT-3 on 2 · 2 · 2 replicas as the dense model trains, and costs a step."""

import warnings

import torch
from torch import Tensor

from tremula.garden.application import Findings, Modelled, Settings
from tremula.garden.models.gpt3 import dense
from tremula.garden.models.gpt3.config import (
    GPTConfig,
    GptMachine,
    GptTraining,
    ModelSizes,
    Parallelism,
)
from tremula.garden.models.gpt3.costing import CompiledGPT, compile_gpt
from tremula.garden.models.gpt3.training import Trainer


def run(settings: Settings) -> Findings:
    config = config_of(tiny=settings.tiny)
    n_replicas = config.parallel.n_replicas
    settings.show(f"{config.n_parameters:,} parameters, {n_replicas} replicas")
    batches = batches_of(config, n_steps=1 if settings.tiny else 10)
    weights = dense.random_weights(config)
    plain = {name: w.clone() for name, w in weights.items()}
    trainer = Trainer(config, weights)
    losses, off = [], 0.0
    for ours, theirs in zip(
        trainer.train(batches), dense.train(plain, batches, config), strict=True
    ):
        settings.show(f"  loss {ours:.4f}, of the dense model {theirs:.4f}")
        losses.append(float(ours))
        off = max(off, abs(ours - theirs))
    result = trainer.weights()
    error = max(((result[k] - w).abs().max() / w.abs().max()).item() for k, w in plain.items())
    settings.show(f"weights differ by {error:.1g} of the largest")
    return Findings(
        results={"difference_of_weights": error, "difference_of_loss": off},
        modelled=modelled_gpt(config, settings),
        curves={"loss": losses},
    )


def config_of(*, tiny: bool) -> GPTConfig:
    size = 1 if tiny else 4
    return GPTConfig(
        name="small GPT",
        model=ModelSizes(
            hidden=32 * size, n_layers=2 * size, n_heads=4, sequence=8 * size, vocabulary=64 * size,
            dtype="float32",
        ),
        parallel=Parallelism(data=2, tensor_1=2, tensor_2=2),
        training=GptTraining(
            global_batch=4, loss_scaling=16.0, learning_rate=1e-3, max_grad_norm=1.0
        ),
        machine=GptMachine(attention_serialisation=2),
    )  # fmt: skip


def batches_of(config: GPTConfig, n_steps: int) -> list[tuple[Tensor, Tensor]]:
    """Random tokens, and those that follow them."""
    draw = torch.Generator().manual_seed(0)
    shape = (config.training.global_batch, config.model.sequence + 1)
    rows = [
        torch.randint(0, config.model.vocabulary, shape, generator=draw) for _ in range(n_steps)
    ]
    return [(row[:, :-1].contiguous(), row[:, 1:].contiguous()) for row in rows]


def modelled_gpt(config: GPTConfig, settings: Settings) -> Modelled:
    """A step, from each of its graphs compiled for the tiles of one chip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what does not fit is in the figures
        compiled: CompiledGPT = compile_gpt(config)
    report = compiled.cost.largest.report
    if settings.report is not None:
        settings.show(f"The report is in {compiled.write_report(settings.report)}")
    return Modelled(
        machine=f"{config.parallel.n_replicas} × {report.chip.name}",
        cycles=round(compiled.cost.total_seconds * report.chip.clock_hz),
        bytes_on_fullest_tile=int(report.tiles.n_bytes.max()),
        rate=compiled.tokens_per_second,
        unit="tokens/s",
    )
