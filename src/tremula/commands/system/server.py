"""`tremula vipu-server`: run a controller of modelled machines."""

import argparse
from pathlib import Path

from tremula.base.requirements import require_for_command
from tremula.commands.arguments import port
from tremula.hardware import SYSTEMS, load_system, single, system


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        type=Path,
        default=Path("~/.tremula-vipu"),
        metavar="FOLDER",
        help="where its state is stored (~/.tremula-vipu)",
    )
    parser.add_argument(
        "--system",
        default="pod16",
        metavar="NAME|FILE",
        help=f"machine of a new state: {', '.join(SYSTEMS)}, or a TOML file (pod16)",
    )
    parser.add_argument(
        "--n-ipus", type=int, metavar="N", help="number of Bow chips, without --system"
    )
    parser.add_argument("--cluster", default="cl0", metavar="NAME", help="its cluster (cl0)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this computer alone)"
    )
    parser.add_argument("--port", type=port, default=8090, help="port; 0 is any free one (8090)")


def run(args: argparse.Namespace) -> int:
    require_for_command("tremula vipu-server", "system")
    from tremula.system.web.server import KEY_FILE, listening_socket, open_controller, serve

    folder = args.state.expanduser()
    controller = open_controller(folder, args.cluster, _machine(args))
    with listening_socket(args.host, args.port) as listening:
        host, number = listening.getsockname()[:2]
        print(f"controller at http://{host}:{number} (API: /docs, metrics: /metrics)")
        if controller.admin_key is not None:
            print(f"the administrator's key is in {folder / KEY_FILE}")
        print(f"its page: tremula system --config {folder / KEY_FILE} --api-port {number} view")
        print("Press Ctrl-C to stop.", flush=True)
        serve(controller, listening)
    controller.close()
    return 0


def _machine(args: argparse.Namespace):  # noqa: ANN202 - a System
    if args.n_ipus is not None:
        return single("bow", args.n_ipus)
    return load_system(args.system) if args.system.endswith(".toml") else system(args.system)
