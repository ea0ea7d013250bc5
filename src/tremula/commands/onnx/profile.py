"""`tremula profile model.onnx`: cycles and memory on a chip, and a report for the analyser."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tremula.base.errors import GraphMemoryAllocationError, MissingPerfEstimate, MissingProfileData
from tremula.commands.arguments import chip_name, output_folder, whole
from tremula.commands.onnx.inputs import add_model_arguments, load_inputs
from tremula.commands.progress import progress
from tremula.compiler.executable.executable import Executable

if TYPE_CHECKING:  # imports PyTorch
    from tremula.frontends.shared.program import StepProgram


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--chip", type=chip_name, default="bow", help="the machine (bow)")
    parser.add_argument("--n-tiles", type=whole(0), default=0, help="of the chip; 0 = all (0)")
    parser.add_argument(
        "--report", type=output_folder, metavar="DIR",
        help="where the report goes (a folder named after the model)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    program, fits = _program(args), True  # before a folder is made that an error would leave empty
    folder = args.report or output_folder(f"{args.model.stem}-profile")
    try:
        with progress("compiling"):
            path = program.save_report(folder, str(args.model))
    except GraphMemoryAllocationError as error:
        if not isinstance(error.executable, Executable):
            raise
        fits = False
        print(f"does not fit: {error.what}")
        path = _report_of_overfull(folder, error.executable, str(args.model))
    print(_summary(path))
    print(f"report: {path}\n  open it with: tremula view {path.parent}")
    return 0 if fits else 1


def _report_of_overfull(folder: Path, executable: Executable, model_name: str) -> Path:
    """The report of a program that cannot be loaded; without cycles if they depend on data."""
    from tremula.runtime.forecast import forecast
    from tremula.vision.report.write import write_report

    try:
        report = forecast(executable)
    except (MissingPerfEstimate, MissingProfileData):
        report = None
    return write_report(folder, executable, report, extra={"model": model_name})


def _program(args: argparse.Namespace) -> "StepProgram":
    from tremula.frontends.onnx.compiled import compile_model

    imported, inputs, lines = load_inputs(args)
    print("\n".join(f"input  {line}" for line in lines))
    with progress("capturing"):
        compiled = compile_model(imported, inputs, chip=args.chip, n_tiles=args.n_tiles)
    return compiled.program


def _summary(path: Path) -> str:
    from tremula.vision.analysis.summary import VIEWS
    from tremula.vision.analysis.text_views import text_of_view
    from tremula.vision.report.reader import open_report

    with open_report(path) as report:
        return text_of_view("summary", VIEWS["summary"](report), 40)
