"""ViT learns shapes with IPUTrainer, from pictures made here.

python vit.py [--layers N] [--epochs N]
"""

# Arguments when run as a test: --layers 2 --epochs 3

import argparse
import tempfile
import time

import torch
from transformers import ViTConfig, ViTForImageClassification, logging
from transformers.trainer_callback import PrinterCallback

import poptorch
from _speed import print_pod4
from optimum.graphcore import IPUConfig, IPUTrainer, IPUTrainingArguments
from tremula.garden.applications.vit_bars.bars import SIZE, bars

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    poptorch.setLogLevel("ERR")
    logging.set_verbosity_error()
    pictures = bars(320)
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=SIZE, patch_size=8, hidden_size=64, num_hidden_layers=args.layers,
        num_attention_heads=4, intermediate_size=128, num_labels=2,
    )  # fmt: skip
    model = ViTForImageClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = IPUTrainer(
            model,
            IPUConfig(),
            IPUTrainingArguments(
                folder, fp32=True, num_train_epochs=args.epochs, learning_rate=2e-3, report_to=[],
                per_device_train_batch_size=16, per_device_eval_batch_size=16,
                save_strategy="no", logging_strategy="epoch", disable_tqdm=True,
            ),
            train_dataset=pictures[64:],
            eval_dataset=pictures[:64],
            compute_metrics=lambda found: {
                "accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())
            },
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
        right = trainer.evaluate()["eval_accuracy"]
        print(f"Right on pictures held out: {right:.0%}; better than chance: {right > 0.6}")
    print(f"Here: {args.epochs * 256 / seconds:,.0f} pictures per second")
    batch = {"pixel_values": torch.stack([p["pixel_values"] for p in pictures[:4]])}
    print_pod4(ViTForImageClassification(config), batch, "pictures")
