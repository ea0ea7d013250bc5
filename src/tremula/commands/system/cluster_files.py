"""`tremula system files`, `tremula system offer-node`: what Slurm, Kubernetes, Prometheus need."""

import argparse
import shutil
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from tremula.base.errors import InvalidOption
from tremula.commands.arguments import output_folder, whole
from tremula.commands.system.vipu import client_of
from tremula.system.node_resource import Cluster

_KINDS = {
    "slurm": "cluster/slurm",
    "kubernetes": "cluster/kubernetes",
    "monitoring": "monitoring",
}


def add_cluster_tools(tools: Any) -> None:  # noqa: ANN401 - argparse's own class is private
    written = tools.add_parser("files", help="write files for Slurm, Kubernetes or Prometheus")
    written.add_argument("kind", choices=list(_KINDS))
    written.add_argument("folder", type=output_folder)
    written.set_defaults(action=_write_files)
    offer = tools.add_parser("offer-node", help="tell Kubernetes how many IPUs a node offers")
    offer.add_argument("node")
    offer.add_argument("--every", type=whole(1), metavar="SECONDS", help="again and again")
    offer.add_argument("--kubernetes", default="https://kubernetes.default.svc", metavar="URL")
    offer.add_argument("--account", type=Path, metavar="FOLDER", help="with `token` and `ca.crt`")
    offer.set_defaults(action=_offer)


def _write_files(args: argparse.Namespace) -> int:
    with as_file(files("tremula.system").joinpath(_KINDS[args.kind])) as folder:
        for file in sorted(Path(folder).iterdir()):
            target = args.folder / file.name
            if target.exists():
                raise InvalidOption(f"{str(target)!r} is there already.", hint="an empty folder")
            shutil.copy(file, target)  # scripts stay executable
            print(target)
    return 0


def _offer(args: argparse.Namespace) -> int:
    """All chips of the controller that work: their number follows faults."""
    cluster = Cluster(args.kubernetes, *([args.account] if args.account else []))
    while True:
        devices = client_of(args).get("devices")
        n_working = sum(device["fault"] is None for device in devices)
        cluster.offer(args.node, n_working)
        print(f"node {args.node}: {n_working} IPUs", flush=True)
        if args.every is None:
            return 0
        time.sleep(args.every)
