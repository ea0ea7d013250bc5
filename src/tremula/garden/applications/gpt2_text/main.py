"""Trains a small GPT-2 as a pipeline on Python's documentation, then lets it write."""

# `generate` and models that were spread over chips are not what transformers' stubs say.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false

import copy
import math

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import poptorch
from optimum.graphcore.generation import generating
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.gpt2_text.model import PipelinedGPT2
from tremula.garden.models.datasets.text import characters

N_BATCH, N_SLICES = 8, 4  # rows; slices of the output layer
BEGINNING = "Return the "
N_WRITTEN = 12  # letters


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_layers, width, length, n_updates = (1, 64, 32, 80) if settings.tiny else (6, 256, 128, 2000)
    rows, alphabet = characters(length + 1)
    config = GPT2Config(
        vocab_size=-(-len(alphabet) // N_SLICES) * N_SLICES,  # slices are equal
        n_positions=length, n_layer=n_layers, n_embd=width, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.1,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = PipelinedGPT2(config, N_SLICES, layers_per_ipu=1)
    n_stages = 2 + n_layers
    options = poptorch.Options().autoRoundNumIPUs(True).outputMode(poptorch.OutputMode.All)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    n_accumulated = 2 * n_stages
    options.Training.gradientAccumulation(n_accumulated)
    data = poptorch.DataLoader(options, rows, batch_size=N_BATCH, shuffle=True)
    optimizer = poptorch.optim.AdamW(
        model.parameters(), lr=1e-2, loss_scaling=128, bias_correction=True
    )
    training = poptorch.trainingModel(model, options, optimizer)
    settings.show(f"{n_layers + 2} stages on {n_layers + 1} chips, {len(alphabet)} letters")
    losses = []
    for update, ids in zip(range(n_updates), data, strict=False):
        losses.append(float(training(ids).mean()) / math.log(2))
        if update % 20 == 19:
            settings.show(f"  update {update + 1}: {losses[-1]:.2f} bits per letter")
    training.copyWeightsToHost()
    is_same = writes_as_transformers(model, config, alphabet, settings)
    return Findings(
        results={
            "bits_per_letter": sum(losses[-5:]) / 5,
            "written_as_transformers": float(is_same),
        },
        modelled=modelled_poptorch(
            training, settings, n_items=n_accumulated * N_BATCH * length, unit="letters/s"
        ),
        curves={"bits_per_letter": losses},
    )


def writes_as_transformers(
    model: PipelinedGPT2, config: GPT2Config, alphabet: str, settings: Settings
) -> bool:
    """Let the trained weights continue a text on the device; transformers must write the same."""
    plain = GPT2LMHeadModel(config).eval()
    weights = {name.replace(".layer.", "."): w for name, w in model.model.state_dict().items()}
    plain.load_state_dict(weights)
    compiled = generating(copy.deepcopy(plain))
    ids = torch.tensor([[alphabet.index(letter) for letter in BEGINNING]])
    options = {"max_new_tokens": N_WRITTEN, "do_sample": False, "pad_token_id": 0}
    written = compiled.generate(ids, **options)
    text = "".join(alphabet[i] for i in written[0].tolist() if i < len(alphabet))
    settings.show(f"it writes: {text!r}")
    return torch.equal(written, plain.generate(ids, **options))
