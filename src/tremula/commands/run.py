"""`tremula run script.py …`, `tremula run model.onnx …`: a script as Python runs it, or a model."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.base.passes import DUMP_VARIABLE, PassTable, watch_passes
from tremula.commands.arguments import output_folder
from tremula.commands.onnx.run import run_model
from tremula.commands.port.tensorflow_import import offer_tensorflow, withdraw_tensorflow
from tremula.vision.analysis.scripts import reporting_to, reports_in, run_module, run_script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="the script is a module, as for python -m"
    )
    parser.add_argument("script", type=Path, help="a Python file, or an ONNX model")
    parser.add_argument(
        "--report",
        type=output_folder,
        metavar="DIR",
        help="let engines and models of all front ends leave reports here (profile.pop)",
    )
    parser.add_argument(
        "--passes", action="store_true", help="at the end, print the compiler's passes and times"
    )
    parser.add_argument(
        "--dump",
        type=output_folder,
        metavar="DIR",
        help="write what every pass leaves here, as text",
    )
    parser.add_argument(
        "--port",
        action="store_true",
        help="add names that older scripts use and libraries have dropped (docs/porting.md)",
    )
    parser.add_argument(
        "--as-tensorflow",
        action="store_true",
        help="let the script import tensorflow and tensorflow.python.ipu from Tremula, even where"
        " TensorFlow is installed",
    )
    parser.add_argument(
        "--synthetic-data",
        type=int,
        metavar="N",
        help="keras.datasets gives N generated samples, nothing is loaded",
    )
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="arguments of the script or model"
    )


def run(args: argparse.Namespace) -> int:
    script: Path = args.script
    if not args.is_module and not script.is_file():
        raise FileLoadError(
            f"there is no file {str(script)!r}.", hint="give the path of a Python or ONNX file"
        )
    with ExitStack() as stack:
        if args.passes:
            stack.enter_context(_printing_passes())
        if args.dump is not None:
            stack.enter_context(_dumping_to(args.dump))
        if args.report is not None:
            stack.enter_context(_reporting_to(args.report))
        if script.suffix == ".onnx":
            return run_model(script, args.arguments)
        if args.port:
            stack.enter_context(_porting())
        if args.as_tensorflow:
            _name_tensorflow(args.synthetic_data)
        elif args.synthetic_data is not None:
            _synthesize(args.synthetic_data)
        stack.enter_context(_offering_tensorflow())
        if args.is_module:
            run_module(str(script), args.arguments)
        else:
            run_script(script, args.arguments)
    return 0


def _name_tensorflow(synthetic_samples: int | None) -> None:
    from tremula.frontends.keras.tensorflow.names import as_tensorflow  # loads Keras

    as_tensorflow(synthetic_samples)


def _synthesize(n_samples: int) -> None:
    from tremula.frontends.keras.tensorflow.datasets import synthesize  # loads Keras

    synthesize(n_samples)


@contextmanager
def _offering_tensorflow() -> Iterator[None]:
    offer_tensorflow()
    try:
        yield
    finally:
        withdraw_tensorflow()


def _porting() -> AbstractContextManager[None]:
    from tremula.base.libraries.fallbacks import stand_in_for_libraries
    from tremula.commands.port.shims import ported
    from tremula.commands.port.table import SHIMS

    stand_in_for_libraries()
    return ported(SHIMS)


@contextmanager
def _printing_passes() -> Iterator[None]:
    """Print the table even if the script fails: then one wants to see it most."""
    passes = PassTable()
    try:
        with watch_passes(passes):
            yield
    finally:
        nothing = "no passes ran: nothing was compiled, or it came from a cache"
        print(passes if passes.records else nothing, file=sys.stderr)


@contextmanager
def _dumping_to(folder: Path) -> Iterator[None]:
    before = os.environ.get(DUMP_VARIABLE)
    os.environ[DUMP_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[DUMP_VARIABLE]
        else:
            os.environ[DUMP_VARIABLE] = before


@contextmanager
def _reporting_to(folder: Path) -> Iterator[None]:
    """Let engines leave reports, and say where they are if all went well."""
    began_s = time.time()
    with reporting_to(folder):
        yield
    reports = reports_in(folder, began_s)
    for path in reports:
        print(f"report: {path}", file=sys.stderr)
    if not reports:
        print(
            f"no report in {folder}: the script ran no engine and no model, or a warning above "
            "says why its programs have none",
            file=sys.stderr,
        )
