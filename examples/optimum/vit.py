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

SIZE = 32


def picture(kind, draw):
    """A bright bar, lying (0) or standing (1), somewhere in noise."""
    image = torch.randn(3, SIZE, SIZE, generator=draw) * 0.3
    at = int(torch.randint(4, SIZE - 8, (1,), generator=draw))
    bar, along = slice(at, at + 4), slice(4, SIZE - 4)
    rows, columns = (bar, along) if kind == 0 else (along, bar)
    image[:, rows, columns] += 2
    return {"pixel_values": image, "labels": kind}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    poptorch.setLogLevel("ERR")
    logging.set_verbosity_error()
    draw = torch.Generator().manual_seed(0)
    pictures = [picture(i % 2, draw) for i in range(320)]
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
