"""Trains a small ViT with IPUTrainer, and spreads it over two chips for its figures."""

# `num_labels` is an argument that transformers' stubs do not know.
# pyright: reportCallIssue=false

import tempfile

import torch
from transformers import ViTConfig, ViTForImageClassification, logging
from transformers.trainer_callback import PrinterCallback

from optimum.graphcore import IPUConfig, IPUTrainer, IPUTrainingArguments
from tremula.garden.application import Findings, Settings, modelled_optimum
from tremula.garden.applications.vit_bars.bars import SIZE, bars

N_BATCH, N_TEST = 16, 64


def run(settings: Settings) -> Findings:
    logging.set_verbosity_error()
    torch.manual_seed(0)
    n_pictures, n_epochs, width, n_layers = (256, 8, 32, 2) if settings.tiny else (4096, 8, 128, 8)
    config = ViTConfig(
        image_size=SIZE, patch_size=8, hidden_size=width, num_hidden_layers=n_layers,
        num_attention_heads=4, intermediate_size=2 * width, num_labels=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.1,
    )  # fmt: skip
    known, new = bars(n_pictures), bars(N_TEST, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = IPUTrainer(
            ViTForImageClassification(config),
            IPUConfig(),
            IPUTrainingArguments(
                folder, fp32=True, num_train_epochs=n_epochs, learning_rate=2e-3, report_to=[],
                per_device_train_batch_size=N_BATCH, per_device_eval_batch_size=N_BATCH,
                save_strategy="no", logging_strategy="epoch", disable_tqdm=True,
            ),
            train_dataset=known,
            eval_dataset=new,
            compute_metrics=lambda result: {
                "accuracy": float((result.predictions.argmax(-1) == result.label_ids).mean())
            },
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        accuracy = trainer.evaluate()["eval_accuracy"]
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    settings.show(f"{n_pictures} pictures, {n_epochs} epochs: {accuracy:.1%} of {N_TEST} new ones")
    batch = {"pixel_values": torch.stack([row["pixel_values"] for row in new[:4]])}
    return Findings(
        results={"accuracy": accuracy},
        modelled=modelled_optimum(
            ViTForImageClassification(config), batch, settings, unit="pictures/s"
        ),
        curves={"loss": losses},
        picture=torch.cat([row["pixel_values"].mean(0) for row in new[:4]], 1).numpy(),
    )
