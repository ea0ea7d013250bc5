"""BERT exported by PyTorch to ONNX: tensors by name, run on the host, costed on a chip.

    python bert_profile.py [--small] [--chip bow]

`tremula profile model.onnx` does the last step for any file, and leaves a report for the analyser.
"""

# Run by the wide tests.
# Arguments when run as a test: --small

import argparse
import tempfile
from pathlib import Path

import torch

from tremula.garden.models.onnx_exports import export_bert
from tremula.onnx import compile_model, import_model

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="two narrow layers")
    parser.add_argument("--chip", default="bow")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bert.onnx")
        exported = export_bert(path, is_small=args.small)
        imported = import_model(path)

    # Any tensor can be looked at by its name: here what goes into the first softmax.
    first = next(n for n in imported.module.graph.nodes if n.op_type == "Softmax")
    scores = imported.run(exported.inputs, [first.inputs[0]])[first.inputs[0]]
    print("attention scores:", list(scores.shape))

    n_tiles = 64 if args.small else 0
    compiled = compile_model(imported, exported.inputs, chip=args.chip, n_tiles=n_tiles)
    states, summary = compiled(*(exported.inputs[name] for name in compiled.input_names))
    with torch.no_grad():
        expected = exported.module(*exported.inputs.values())
    print("as PyTorch computes it:", torch.allclose(summary, expected[1], atol=1e-4))

    report = compiled.program.report()
    fullest = report.memory.including_gaps.max()
    print(f"on {args.chip}: {report.total_cycles:,} cycles, fullest tile {fullest:,} B")
