"""GPT-3 over many chips: data parallel × two-dimensional tensor parallel, phase by phase, sharded.

    python gpt3.py                              # tiny: trains, compared with the dense model
    python gpt3.py --config 175b_pod256.toml --compile-only
    python gpt3.py --config 1.3b_pod16.toml --compile-only
    python gpt3.py --config 2.7b_pod64.toml --compile-only --report report

The model is in tremula.garden.models.gpt3. `--compile-only` builds the training step without any
weight, compiles each of its graphs for the tiles of one chip, and sums what a step takes.
"""
# Run by the wide tests.
# Arguments when run as a test: --steps 1

import argparse
import warnings
from pathlib import Path

import torch

from tremula.garden.models.gpt3 import dense
from tremula.garden.models.gpt3.config import load_config
from tremula.garden.models.gpt3.costing import compile_gpt, lines_of
from tremula.garden.models.gpt3.training import Trainer

HERE = Path(__file__).resolve().parent

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="tiny.toml", help="a file of this folder, or yours")
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--compile-only", action="store_true", help="cost a step, and train nothing")
parser.add_argument("--report", default="", help="where to leave a report for the analyser")
args = parser.parse_args()
path = Path(args.config)
config = load_config(path if path.exists() else HERE / path)

if args.compile_only:
    with warnings.catch_warnings(record=True):  # what does not fit is in the table
        warnings.simplefilter("always")
        compiled = compile_gpt(config)
    print("\n".join(lines_of(compiled)))
    if args.report:
        print("report:", compiled.write_report(args.report))
    raise SystemExit(0)

draw = torch.Generator().manual_seed(0)
batches = []
for _ in range(args.steps):
    shape = (config.training.global_batch, config.model.sequence + 1)
    tokens = torch.randint(0, config.model.vocabulary, shape, generator=draw)
    batches.append((tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()))

weights = dense.random_weights(config)
plain = {name: w.clone() for name, w in weights.items()}
trainer = Trainer(config, weights)
print(f"{config.name}: {config.n_parameters:,} parameters, {config.parallel.n_replicas} replicas")
for step, (loss, expected) in enumerate(
    zip(trainer.train(batches), dense.train(plain, batches, config), strict=True)
):
    print(f"step {step}: loss {loss:.4f}, of the dense model {expected:.4f}")

trained = trainer.weights()
error = max(((trained[k] - w).abs().max() / w.abs().max()).item() for k, w in plain.items())
print(f"weights differ by less than 1e-4: {error < 1e-4}")
