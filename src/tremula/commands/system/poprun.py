"""`poprun [options] program …`: run several instances of a program, on a partition if named."""

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tremula.base.errors import FileLoadError, InvalidOption, suggest
from tremula.base.storage import strict_json
from tremula.base.storage.atomic_file import write_text
from tremula.commands.arguments import output_folder, port, whole
from tremula.commands.guard import CommandParser
from tremula.poplar.partition import ACCESS_KEY, API
from tremula.system.client import Client, ControllerError, client_from, in_path
from tremula.system.launch.launching import InstanceLaunch, launch
from tremula.system.launch.topology import Topology, expand_hosts

_CONFIG_NAMES = (
    "host", "num_replicas", "ipus_per_replica", "num_instances", "num_ilds", "vipu_partition",
    "vipu_allocation", "executable_cache_path", "only_output_from_instance", "max_restarts",
)  # fmt: skip

_EXPORT_HINT = "`tremula poprun --export-config FILE` writes such a file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("instances")
    run.add_argument("-H", "--host", default="localhost", help="host[0-2,4],… (localhost)")
    run.add_argument("--hostfile", type=Path, metavar="FILE", help="a host in each line")
    run.add_argument("--num-instances", type=whole(1, 4096), default=1, metavar="N", help="(1)")
    run.add_argument("--num-replicas", type=whole(1, 65536), metavar="N", help="(one each)")
    run.add_argument("--ipus-per-replica", type=whole(1, 4096), default=1, metavar="N", help="(1)")
    run.add_argument("--num-ilds", type=whole(1, 4096), default=1, metavar="N", help="(1)")
    run.add_argument(
        "--numa-aware",
        type=_yes,
        default=False,
        metavar="0|1",
        help="dedicated cores for each instance",
    )
    run.add_argument("--max-restarts", type=whole(0, 1000), default=0, metavar="N", help="(0)")
    run.add_argument("--executable-cache-path", metavar="FOLDER", help="compiled programs")
    show = parser.add_argument_group("output")
    show.add_argument("--only-output-from-instance", type=whole(0), metavar="I", help="(all)")
    show.add_argument("--output-folder", type=output_folder, metavar="FOLDER", help="a log of each")
    show.add_argument(
        "--print-topology", type=_yes, default=False, metavar="0|1", help="who is where"
    )
    show.add_argument(
        "--offline-mode", type=_yes, default=False, metavar="0|1", help="no partition"
    )
    show.add_argument("-v", "--verbose", action="count", default=0, help="say what is done")
    vipu = parser.add_argument_group("partition")
    vipu.add_argument("--vipu-server-host", metavar="HOST", help="controller")
    vipu.add_argument("--vipu-server-port", type=port, metavar="PORT", help="(8090)")
    vipu.add_argument(
        "--vipu-server-timeout", type=whole(1), default=120, metavar="S", help="(120)"
    )
    vipu.add_argument("--vipu-partition", metavar="NAME", help="made if it is not there")
    vipu.add_argument("--vipu-allocation", metavar="NAME", help="where to cut it from")
    vipu.add_argument(
        "--update-partition", type=_yes, default=False, metavar="0|1", help="create it again"
    )
    vipu.add_argument(
        "--reset-partition", type=_yes, default=False, metavar="0|1", help="reset first"
    )
    vipu.add_argument(
        "--remove-partition", type=_yes, default=True, metavar="0|1", help="the one it made (1)"
    )
    files = parser.add_argument_group("options in files")
    files.add_argument(
        "--import-config", type=Path, metavar="FILE", help="options that were exported"
    )
    files.add_argument("--export-config", type=Path, metavar="FILE", help="write these options")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="a program, or a Python file")


def _yes(text: str) -> bool:
    if text.lower() not in ("0", "1", "yes", "no", "true", "false"):
        raise argparse.ArgumentTypeError(f"expected 0 or 1, got {text[:40]!r}")
    return text.lower() in ("1", "yes", "true")


def run(args: argparse.Namespace) -> int:
    if args.import_config is not None:
        _import(args)
    if args.export_config is not None:
        table = {name: getattr(args, name) for name in _CONFIG_NAMES}
        write_text(args.export_config, json.dumps(table, indent=1) + "\n")
    topology = _topology(args)
    if args.print_topology or args.verbose:
        print(topology.table(), flush=True)
    command = _command(args.program)
    if not command:
        if args.print_topology or args.export_config is not None:
            return 0
        raise InvalidOption(
            "there is no program to run.", hint="tremula poprun --num-instances 2 train.py"
        )
    with _ends_in_order():
        if args.vipu_partition is None or args.offline_mode:
            return launch(_wanted(args, topology, command, {}))
        with _partition(args, topology) as environment:
            return launch(_wanted(args, topology, command, environment, is_partition=True))


@contextmanager
def _ends_in_order() -> Iterator[None]:
    """A polite end, as schedulers send it, stops instances and removes partitions."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wanted(
    args: argparse.Namespace,
    topology: Topology,
    command: list[str],
    environment: dict[str, str],
    *,
    is_partition: bool = False,
) -> InstanceLaunch:
    if args.executable_cache_path:
        environment = {**environment, "POPTORCH_CACHE_DIR": args.executable_cache_path}
    return InstanceLaunch(
        topology,
        command,
        environment,
        only_instance=args.only_output_from_instance,
        log_folder=args.output_folder,
        n_restarts=args.max_restarts,
        is_numa_aware=args.numa_aware,
        is_partition=is_partition,
    )


def _topology(args: argparse.Namespace) -> Topology:
    if args.hostfile is not None:
        lines = args.hostfile.read_text(encoding="utf-8").split("\n")
        hosts = tuple(h for line in lines if line.strip() for h in expand_hosts(line.split()[0]))
    else:
        hosts = expand_hosts(args.host)
    n_replicas = args.num_replicas or args.num_instances
    sizes = n_replicas, args.ipus_per_replica, args.num_ilds
    return Topology(hosts, args.num_instances, *sizes)


def _command(words: list[str]) -> list[str]:
    words = words[1:] if words[:1] == ["--"] else words
    return [sys.executable, *words] if words and words[0].endswith(".py") else words


def _import(args: argparse.Namespace) -> None:
    """Options from a file; those of the command line that are not the usual ones win."""
    parser = CommandParser(prog=f"tremula poprun, with {args.import_config}")
    add_arguments(parser)
    usual = parser.parse_args([])
    imported = parser.parse_args(_words_of(args.import_config))
    for name in _CONFIG_NAMES:
        if getattr(args, name) == getattr(usual, name):
            setattr(args, name, getattr(imported, name))


def _words_of(file: Path) -> list[str]:
    """The options in a file as words of a command line, whose values are checked like others."""
    try:
        table = strict_json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileLoadError(f"{str(file)!r} is not JSON: {error}.", hint=_EXPORT_HINT) from None
    if not isinstance(table, dict):
        what = f"{str(file)!r} must hold an object of options, got {type(table).__name__}."
        raise FileLoadError(what, hint=_EXPORT_HINT)
    unknown = [name for name in table if name not in _CONFIG_NAMES]
    if unknown:
        what = f"{str(file)!r} has the option {unknown[0]!r}, which does not exist."
        raise FileLoadError(what, hint=suggest(unknown[0], _CONFIG_NAMES))
    return [
        f"--{name.replace('_', '-')}={value}" for name, value in table.items() if value is not None
    ]


# -- the partition ---------------------------------------------------------------------------------


@contextmanager
def _partition(args: argparse.Namespace, topology: Topology) -> Iterator[dict[str, str]]:
    """The partition requested, a domain for each instance; removed if it was made here."""
    client = client_from(args.vipu_server_host, args.vipu_server_port, None, None)
    is_made = _ensure(client, args, topology)
    try:
        if args.reset_partition and not is_made:
            client.post(f"partitions/{in_path(args.vipu_partition)}/reset")
        yield {
            f"{API}HOST": client.host if client.host != "127.0.0.1" else _own_address(topology),
            f"{API}PORT": str(client.port),
            f"{API}PARTITION_ID": args.vipu_partition,
            f"{API}TIMEOUT": str(args.vipu_server_timeout),
            ACCESS_KEY: client.key,
        }
    finally:
        if is_made and args.remove_partition:
            client.delete(f"partitions/{in_path(args.vipu_partition)}?force=true")


def _own_address(topology: Topology) -> str:
    is_here = all(host == "localhost" for host in topology.hosts)
    return "127.0.0.1" if is_here else socket.gethostname()


def _ensure(client: Client, args: argparse.Namespace, topology: Topology) -> bool:
    """Make the partition unless it is there; whether it was made."""
    name, path = args.vipu_partition, f"partitions/{in_path(args.vipu_partition)}"
    size = 1 << (topology.n_ipus - 1).bit_length()
    try:
        result = client.get(path)
    except ControllerError as error:
        if error.status != 404:
            raise
        result = None
    if result is not None and (result["size"], result["n_gcds"]) == (size, topology.n_instances):
        return False
    if result is not None:
        if not args.update_partition:
            raise InvalidOption(
                f"partition {name!r} has {result['size']} IPUs in {result['n_gcds']} domains; "
                f"{topology.n_instances} instances of {topology.n_ipus} IPUs need {size} in "
                f"{topology.n_instances}.",
                hint="--update-partition 1 creates it again",
            )
        client.delete(path)
    client.post(
        "partitions",
        name=name,
        size=size,
        n_gcds=topology.n_instances,
        allocation=args.vipu_allocation,
    )
    if args.verbose:
        print(f"partition {name}: {size} IPUs for process {os.getpid()}", flush=True)
    return True
