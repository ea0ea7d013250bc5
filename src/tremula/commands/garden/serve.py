"""`tremula serve`: a compiled inference program behind HTTP, in the V2 inference protocol."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tremula.base.libraries.parts import is_installed
from tremula.base.requirements import require_for_command
from tremula.commands.arguments import port, whole
from tremula.commands.progress import progress

if TYPE_CHECKING:
    from tremula.serving.program import ServedProgram


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "program",
        help="an .onnx file, a file of model.compileAndExport, a folder of export_for_ipu_serving, "
        "or an application that can be served: its name, or a folder of yours",
    )
    parser.add_argument("--name", help="of the model in addresses (the file's)")
    parser.add_argument("--host", default="127.0.0.1", help="address (127.0.0.1: this computer)")
    parser.add_argument("--port", type=port, default=8000, help="port; 0 is any free one (8000)")
    parser.add_argument("--batch", type=whole(1, 1 << 16), help="of an ONNX model with an open one")
    parser.add_argument(
        "--max-delay-ms", type=whole(0, 60_000), default=2, metavar="MS",
        help="how long a request waits for others to share a batch with (2)",
    )  # fmt: skip
    parser.add_argument(
        "--queue", type=whole(1, 10_000), default=8, metavar="BATCHES",
        help="how many batches may wait; more is rejected with status 503 (8)",
    )  # fmt: skip
    parser.add_argument("--tiles", action="store_true", help="compute on tiles, vertex by vertex")
    parser.add_argument(
        "--trust", action="store_true", help="read a PopTorch file, which can run code"
    )


def run(args: argparse.Namespace) -> int:
    require_for_command("tremula serve", "serve")
    from tremula.serving.server import ServeSettings, listening_socket, run_server

    with listening_socket(args.host, args.port) as listening:
        host, number = listening.getsockname()[:2]
        with progress(f"preparing {args.program}"):
            program = _program(args)

        def ready() -> None:
            print(f"{program.name}: batches of {program.batch_size}, {program.platform}")
            for word, specs in (("input", program.inputs), ("output", program.outputs)):
                for spec in specs:
                    shape = ", ".join(map(str, ("rows", *spec.shape)))
                    print(f"  {word:<6} {spec.name}: {spec.datatype}[{shape}]")
            print(f"POST http://{host}:{number}/v2/models/{program.name}/infer")
            print("Press Ctrl-C to stop.", flush=True)

        settings = ServeSettings(max_delay_s=args.max_delay_ms / 1000, max_queue_batches=args.queue)
        metrics = run_server(program, listening, settings, ready)
    answers = ", ".join(f"{n:,} × {status}" for status, n in sorted(metrics.by_status.items()))
    print(f"stopped; answers by status: {answers or 'none'}")
    return 0


def _program(args: argparse.Namespace) -> "ServedProgram":
    from tremula.serving.sources import program_of_file

    path = Path(args.program)
    is_application = _is_application(path)
    if not is_application and (path.suffix or "/" in args.program or path.exists()):
        return program_of_file(
            path, name=args.name, batch_size=args.batch, trusts_file=args.trust, on_tiles=args.tiles
        )
    from tremula.garden.application import Settings
    from tremula.garden.catalogue.catalogue import find_application
    from tremula.garden.catalogue.runner import served_application

    name = str(path.resolve()) if is_application else args.program
    return served_application(find_application(name), Settings(tiny=True))


def _is_application(path: Path) -> bool:
    if not (path.is_dir() and is_installed("tremula.garden")):
        return False
    from tremula.garden.catalogue.manifest import MANIFEST

    return (path / MANIFEST).is_file()
