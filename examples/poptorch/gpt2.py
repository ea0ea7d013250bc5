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
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import poptorch
from _throughput import print_throughput
from tremula.garden.text import characters


class SerializedLinear(nn.Linear):
    """A dense layer whose product is computed in `factor` slices."""

    def __init__(self, n_in, n_out, factor, mode):
        super().__init__(n_in, n_out, bias=False)
        self.factor, self.mode = factor, mode

    def forward(self, x):
        return poptorch.serializedMatMul(x, self.weight.t(), self.mode, self.factor)


class Checkpointed(nn.Module):
    """A layer whose result is kept for the backward pass."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *args, **kwargs):
        result = self.layer(*args, **kwargs)
        return poptorch.recomputationCheckpoint(result)


class PipelinedGPT2(nn.Module):
    """GPT-2 with its loss; embeddings and output layer on IPU 0, the layers on the others."""

    def __init__(self, config, n_slices, layers_per_ipu):
        super().__init__()
        self.model = GPT2LMHeadModel(config)
        if n_slices > 1:
            mode = poptorch.MatMulSerializationMode.OutputChannels
            head = SerializedLinear(config.n_embd, config.vocab_size, n_slices, mode)
            head.load_state_dict(self.model.lm_head.state_dict())
            self.model.lm_head = head
            self.model.tie_weights()
        parts = self.model.transformer
        parts.wte = poptorch.BeginBlock(parts.wte, "embedding", ipu_id=0)
        for number, layer in enumerate(parts.h):
            ipu, place = divmod(number, layers_per_ipu)
            parts.h[number] = Checkpointed(layer)
            if place == 0:
                poptorch.BeginBlock(parts.h[number], f"layer{number}", ipu_id=1 + ipu)
            print(f"Layer {number} on IPU {1 + ipu}")
        self.model.lm_head = poptorch.BeginBlock(self.model.lm_head, "head", ipu_id=0)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, ids):
        hidden = self.model.transformer(input_ids=ids[:, :-1], use_cache=False)[0]
        scores = self.model.lm_head(hidden)
        return self.loss(scores.flatten(0, 1), ids[:, 1:].flatten())


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
