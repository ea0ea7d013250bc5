"""`tremula run model.onnx`: its outputs for inputs from files, or random ones."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tremula.base.storage.atomic_file import atomic_file
from tremula.commands.arguments import output_file
from tremula.commands.guard import CommandParser
from tremula.commands.onnx.inputs import add_input_arguments, load_inputs
from tremula.commands.progress import progress

_BACKENDS = ("eager", "inductor", "plain")


def run_model(model: Path, arguments: Sequence[str]) -> int:
    """Run a model, print what its outputs are, and write them if asked to."""
    parser = CommandParser(prog="tremula run model.onnx")
    add_input_arguments(parser)
    parser.add_argument("--output", type=output_file, metavar="FILE", help="write outputs as .npz")
    parser.add_argument("--tiles", action="store_true", help="compute on tiles, vertex by vertex")
    parser.add_argument("--chip", default="bow", help="with --tiles: the machine (bow)")
    parser.add_argument(
        "--host", default="eager", choices=_BACKENDS,
        help="eager or inductor run the captured program, plain one node after another (eager)",
    )  # fmt: skip
    args = parser.parse_args(list(arguments))
    args.model = model
    imported, inputs, lines = load_inputs(args)
    print("\n".join(f"input  {line}" for line in lines))
    names = [value.name for value in imported.outputs]
    with progress("computing"):
        outputs = _outputs(imported, inputs, args)
    result = dict(zip(names, outputs, strict=True))
    for name, value in result.items():
        print(f"output {name}: {_described(value)}")
    if args.output is not None:
        arrays = {name: value for name, value in result.items() if isinstance(value, np.ndarray)}
        path = args.output if args.output.suffix == ".npz" else Path(f"{args.output}.npz")
        with atomic_file(path) as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType] - names of outputs
    return 0


def _outputs(imported: Any, inputs: dict[str, Any], args: argparse.Namespace) -> list[Any]:  # noqa: ANN401
    from dataclasses import replace

    import torch

    from tremula.frontends.onnx.compiled import compile_model
    from tremula.frontends.onnx.element_types import arrays_of
    from tremula.ir.settings import host_settings

    kinds = [value.type for value in imported.outputs]
    with torch.no_grad():
        if args.host == "plain" and not args.tiles:
            result = imported.module(*(inputs[name] for name in imported.module.input_names))
        else:
            host = replace(host_settings(), host="eager" if args.host == "plain" else args.host)
            compiled = compile_model(
                imported, inputs, on_tiles=args.tiles, chip=args.chip, host=host
            )
            result = compiled(*(inputs[name] for name in compiled.input_names))
    return [arrays_of(value, kind) for value, kind in zip(result, kinds, strict=True)]


def _described(value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, np.ndarray):
        return repr(value)
    first = ", ".join(_number(v) for v in value.reshape(-1)[:6])
    more = ", …" if value.size > 6 else ""
    return f"{value.dtype}{list(value.shape)} = {first}{more}"


def _number(value: float) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind == "f" else str(value)
