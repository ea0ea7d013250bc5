"""ResNet-50 exported by PyTorch to ONNX, run on the host and costed on a chip.

    python resnet_profile.py [--small] [--chip bow] [--n-batch 1]

The same from a terminal, for any file: `tremula run model.onnx`, `tremula profile model.onnx`.
"""

# Arguments when run as a test: --small

import argparse
import tempfile
from pathlib import Path

import torch

from tremula.garden.models.onnx_exports import export_resnet
from tremula.onnx import compile_model, import_model

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="fewer and narrower layers")
    parser.add_argument("--chip", default="bow")
    parser.add_argument("--n-batch", type=int, default=1)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "resnet.onnx")
        exported = export_resnet(path, n_batch=args.n_batch, is_small=args.small)
        imported = import_model(path)
    print(f"{len(imported.module.graph.nodes)} nodes, {len(imported.parameters_by_name)} weights")
    print("in: ", *imported.inputs)
    print("out:", *imported.outputs)

    images = exported.inputs["images"]
    n_tiles = 64 if args.small else 0
    compiled = compile_model(imported, exported.inputs, chip=args.chip, n_tiles=n_tiles)
    (scores,) = compiled(images)
    with torch.no_grad():
        difference = (scores - exported.module(images)).abs().max().item()
    print("as PyTorch computes it:", difference < 1e-4)

    timing = compiled.program.timing()
    milliseconds = 1e3 * timing.total_cycles / timing.clock_hz
    print(f"on {args.chip}: {timing.total_cycles:,} cycles, {milliseconds:.3f} ms")
