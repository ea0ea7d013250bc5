"""BERT fine-tuned and evaluated with IPUTrainer: which module of Python's library is a text from?

    python text_classification.py [--layers N] [--width N] [--epochs N]

The script is one for transformers' Trainer with three names changed. The model has random weights,
because none can be fetched; a folder with weights works as well (`from_pretrained`).
"""

# Run by the wide tests.
# Arguments when run as a test: --layers 1 --width 64 --epochs 2 --length 32

import argparse
import tempfile
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, logging
from transformers.trainer_callback import PrinterCallback

import poptorch
from _speed import print_pod4
from optimum.graphcore import IPUConfig, IPUTrainer, IPUTrainingArguments
from tremula.garden.models.datasets.text import Excerpts

MODULES = ["argparse", "decimal", "difflib", "logging", "statistics", "threading"]


def rows_of(texts):
    mask = torch.ones(texts.ids.shape[1], dtype=torch.long)
    return [
        {"input_ids": ids, "attention_mask": mask, "labels": int(label)} for ids, label in texts
    ]


def accuracy(predicted):
    scores, labels = predicted
    return {"accuracy": float((np.argmax(scores, axis=-1) == labels).mean())}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    poptorch.setLogLevel("ERR")
    logging.set_verbosity_error()

    torch.manual_seed(0)
    texts = Excerpts(MODULES, args.length)
    rows = rows_of(texts)
    order = torch.randperm(len(rows)).tolist()
    rows = [rows[i] for i in order]
    n_test = len(rows) // 5
    config = BertConfig(
        vocab_size=len(texts.vocabulary), hidden_size=args.width, num_hidden_layers=args.layers,
        num_attention_heads=4, intermediate_size=4 * args.width, num_labels=len(MODULES),
        max_position_embeddings=args.length,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = IPUTrainer(
            model,
            IPUConfig(gradient_accumulation_steps=2, replication_factor=1),
            IPUTrainingArguments(
                folder, fp32=True, num_train_epochs=args.epochs, learning_rate=1e-3,
                per_device_train_batch_size=8, per_device_eval_batch_size=8, warmup_ratio=0.1,
                report_to=[], save_strategy="no", logging_strategy="epoch", disable_tqdm=True,
            ),
            train_dataset=rows[n_test:],
            eval_dataset=rows[:n_test],
            compute_metrics=accuracy,
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
        for record in trainer.state.log_history:
            if "loss" in record:
                print(f"Epoch {record['epoch']:.0f}: loss {record['loss']:.3f}")
        metrics = trainer.evaluate()
    print(f"Here: {args.epochs * (len(rows) - n_test) / seconds:,.0f} texts per second")
    print(f"Better than chance on texts held out: {metrics['eval_accuracy'] > 1.5 / len(MODULES)}")
    batch = {k: torch.stack([torch.as_tensor(r[k]) for r in rows[:4]]) for k in ("input_ids",)}
    print_pod4(BertForSequenceClassification(config), batch, "texts")
