"""GPT-2 of transformers over several IPUs: blocks, a pipeline, a serialised output layer.

    python gpt2.py [--layers N] [--width N] [--steps N] [--cycles]

The model is transformers' own with random weights; it learns the documentation in Python's library
character by character. Four things are done to it from outside:

* `BeginBlock` says on which IPU each part runs; between them is a pipeline, which gradient
  accumulation keeps full;
* the output layer is computed in slices (`serializedMatMul`), so that not all of its result needs
  memory at once. It shares its weights with the embedding, so both lie on IPU 0;
* `recomputationCheckpoint` after each layer keeps the activations there, and lets the others be
  computed again in the backward pass;
* the optimiser is PopTorch's AdamW, with loss scaling.
"""

# Arguments when run as a test: --layers 2 --width 64 --steps 4 --length 32

import argparse

import torch
from transformers import GPT2Config

import poptorch
from _throughput import print_throughput
from tremula.garden.applications.gpt2_text.model import PipelinedGPT2
from tremula.garden.models.datasets.text import characters

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--layers-per-ipu", type=int, default=2)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--slices", type=int, default=4, help="of the output layer")
    parser.add_argument("--steps", type=int, default=40, help="weight updates")
    parser.add_argument("--cycles", action="store_true", help="compile for tiles, count cycles")
    args = parser.parse_args()

    torch.manual_seed(0)
    rows, alphabet = characters(args.length + 1)
    n_vocabulary = -(-len(alphabet) // args.slices) * args.slices  # slices are equal
    config = GPT2Config(
        vocab_size=n_vocabulary, n_positions=args.length, n_layer=args.layers, n_embd=args.width,
        n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = PipelinedGPT2(config, args.slices, args.layers_per_ipu)

    for layer in range(args.layers):
        print(f"Layer {layer} on IPU {1 + layer // args.layers_per_ipu}")
    n_stages = 2 + -(-args.layers // args.layers_per_ipu)
    options = poptorch.Options().logCycleCount(args.cycles)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    options.Training.gradientAccumulation(2 * n_stages)
    options.outputMode(poptorch.OutputMode.Sum)
    data = poptorch.DataLoader(options, rows, batch_size=1, shuffle=True)
    optimizer = poptorch.optim.AdamW(
        model.parameters(), lr=3e-3, weight_decay=0.01, loss_scaling=128
    )
    training_model = poptorch.trainingModel(model, options, optimizer)

    losses = []
    for step, ids in zip(range(args.steps), data, strict=False):
        losses.append(float(training_model(ids)) / data.combinedBatchSize)
        print(f"Update {step + 1}: loss {losses[-1]:.3f}")
    print("The loss fell:", losses[-1] < losses[0])
    if args.cycles:
        print_throughput(training_model, data.combinedBatchSize * args.length, "tokens")
