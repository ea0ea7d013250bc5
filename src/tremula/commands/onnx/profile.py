"""`tremula profile model.onnx`: cycles and memory on a chip, and a report for the analyser."""

import argparse
from pathlib import Path

from tremula.base.errors import GraphMemoryAllocationError, MissingPerfEstimate
from tremula.commands.arguments import chip_name, output_folder, whole
from tremula.commands.onnx.inputs import add_model_arguments, load_inputs
from tremula.compiler.executable.executable import Executable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--chip", type=chip_name, default="bow", help="the machine (bow)")
    parser.add_argument("--n-tiles", type=whole(0), default=0, help="of the chip; 0 = all (0)")
    parser.add_argument(
        "--report", type=output_folder, metavar="DIR",
        help="where the report goes (a folder named after the model)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from tremula.runtime.forecast import forecast
    from tremula.vision.report.write import write_report

    folder = args.report or output_folder(str(Path(f"{args.model.stem}-profile")))
    fits = True
    try:
        executable = _executable(args)
    except GraphMemoryAllocationError as error:
        if not isinstance(error.executable, Executable):
            raise
        executable, fits = error.executable, False
        print(f"does not fit: {error.what}")
    try:
        report = forecast(executable)
    except MissingPerfEstimate:
        report = None
    path = write_report(folder, executable, report, extra={"model": str(args.model)})
    print(_summary(path))
    print(f"report: {path}\n  open it with: tremula view {path.parent}")
    return 0 if fits else 1


def _executable(args: argparse.Namespace) -> Executable:
    from tremula.frontends.onnx.compiled import compile_model

    imported, inputs, lines = load_inputs(args)
    print("\n".join(f"input  {line}" for line in lines))
    compiled = compile_model(imported, inputs, chip=args.chip, n_tiles=args.n_tiles)
    return compiled.step.tiles.program().executable


def _summary(path: Path) -> str:
    from tremula.vision.analysis.summary import VIEWS
    from tremula.vision.analysis.text_views import text_of_view
    from tremula.vision.report.reader import open_report

    with open_report(path) as report:
        return text_of_view("summary", VIEWS["summary"](report), 40)
