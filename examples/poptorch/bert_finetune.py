"""A BERT-style encoder learns to tell from which module of Python's library a text is.

    python bert_finetune.py [--layers N] [--width N] [--epochs N] [--cycles]

As in fine-tuning, the learning rate rises and falls, biases and norms do not decay, and a new head
is trained with the encoder. But the encoder, transformers' own, starts from random weights, because
no trained ones come with it; and words are numbered by frequency, not by a real tokenizer.
"""

# Run by the wide tests.
# Arguments when run as a test: --layers 1 --width 64 --epochs 2 --length 32

import argparse

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import poptorch
from _throughput import print_throughput
from tremula.garden.models.datasets.text import Excerpts

MODULES = ["argparse", "decimal", "difflib", "logging", "statistics", "threading"]


class Classifier(nn.Module):
    """Texts in, scores and loss out. The encoder and the head may run on two IPUs."""

    def __init__(self, config, n_ipus):
        super().__init__()
        self.bert = BertForSequenceClassification(config)
        self.loss = nn.CrossEntropyLoss()
        if n_ipus > 1:
            self.bert.bert.embeddings = poptorch.BeginBlock(self.bert.bert.embeddings, ipu_id=0)
            layers = self.bert.bert.encoder.layer
            layers[0] = poptorch.BeginBlock(layers[0], ipu_id=1)

    def forward(self, ids, labels=None):
        scores = self.bert(input_ids=ids).logits
        return scores if labels is None else (scores, self.loss(scores, labels))


def grouped(model, decay):
    """Weights of products decay; biases and the scales of norms do not."""
    named = list(model.named_parameters())
    return [
        {"params": [p for _, p in named if p.dim() > 1], "weight_decay": decay},
        {"params": [p for _, p in named if p.dim() <= 1], "weight_decay": 0.0},
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--cycles", action="store_true", help="compile for tiles, count cycles")
    args = parser.parse_args()

    torch.manual_seed(0)
    texts = Excerpts(MODULES, args.length)
    n_test = len(texts) // 5
    examples, held_out = torch.utils.data.random_split(texts, [len(texts) - n_test, n_test])
    print(
        f"{len(examples)} texts to learn from, {len(held_out)} held out, of {len(MODULES)} modules"
    )

    config = BertConfig(
        vocab_size=len(texts.vocabulary), hidden_size=args.width, num_hidden_layers=args.layers,
        num_attention_heads=4, intermediate_size=4 * args.width,
        max_position_embeddings=args.length, num_labels=len(MODULES),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    options = poptorch.Options().logCycleCount(args.cycles)
    options.Training.gradientAccumulation(4)
    options.outputMode(poptorch.OutputMode.All)
    data = poptorch.DataLoader(options, examples, batch_size=args.batch_size, shuffle=True)

    model = Classifier(config, n_ipus=2)
    optimizer = poptorch.optim.AdamW(grouped(model, 0.01), lr=1e-3, bias_correction=True)
    n_updates = args.epochs * len(data)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-3, n_updates, pct_start=0.2, cycle_momentum=False
    )
    training_model = poptorch.trainingModel(model, options, optimizer)

    for epoch in range(args.epochs):
        losses = []
        for ids, labels in data:
            _, loss = training_model(ids, labels)
            losses.append(loss.mean())
            schedule.step()
            training_model.setOptimizer(optimizer)
        print(f"Epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}")
    training_model.detachFromDevice()

    options = poptorch.Options().deviceIterations(2)  # as many as the pipeline has stages
    inference_model = poptorch.inferenceModel(model.eval(), options)
    test = poptorch.DataLoader(options, held_out, batch_size=args.batch_size)
    right = sum(int((inference_model(ids).argmax(1) == labels).sum()) for ids, labels in test)
    print(f"Right on texts held out: {right / (len(test) * test.combinedBatchSize):.0%}")
    if args.cycles:
        print_throughput(training_model, data.combinedBatchSize, "texts")
