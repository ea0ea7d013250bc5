"""`tremula system TOOL …`, also `gc-TOOL …`: list, watch, reset and test devices."""

import argparse
import json
import time
from collections.abc import Callable

from tremula.commands.arguments import whole
from tremula.commands.system.cluster_files import add_cluster_tools
from tremula.commands.system.device_properties import DeviceProperties, facts_of
from tremula.commands.system.device_tests import add_tests
from tremula.commands.system.tables import show, table
from tremula.commands.system.view import add_view
from tremula.commands.system.vipu import add_server_options, client_of
from tremula.hardware import Chip, chip
from tremula.poplar.partition import partition_of_environment

Tool = Callable[[argparse.Namespace], int]

_MONITOR_COLUMNS = {
    "agent": "IPU-M", "serial": "Serial", "chip": "Type", "ipu": "IPU", "partition": "Partition",
    "clock": "Clock", "die": "Temp", "board": "Board", "power": "Power", "use": "Use",
    "fault": "Fault",
}  # fmt: skip
_PROCESS_COLUMNS = {
    "pid": "PID", "command": "Command", "age": "Age", "user": "User", "ipus": "IPUs",
    "partition": "Partition",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server_options(parser)
    tools = parser.add_subparsers(dest="tool", required=True, metavar="TOOL")
    info = tools.add_parser("info", help="list devices, or show one")
    info.add_argument("-l", "--list-devices", action="store_true", help="all devices")
    info.add_argument("-d", "--device-id", type=whole(0), metavar="N", help="one device")
    info.add_argument("--device-info", action="store_true", help="everything about device N")
    info.add_argument("--ipu-arch", action="store_true", help="its architecture")
    info.add_argument("--ipu-count", action="store_true", help="its IPUs")
    info.add_argument("--tile-clock-speed", action="store_true", help="its clock")
    info.set_defaults(action=_info)
    inventory = tools.add_parser("inventory", help="everything known about each IPU")
    inventory.set_defaults(action=_inventory)
    monitor = tools.add_parser("monitor", help="who uses which IPU, and what it draws")
    monitor.add_argument(
        "--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help="again and again (2)"
    )
    monitor.set_defaults(action=_monitor)
    for tool in (info, inventory, monitor):
        tool.add_argument("-j", "--json", action="store_true", help="as JSON")
        tool.add_argument("--all-partitions", action="store_true", help="not just this one's")
    reset = tools.add_parser("reset", help="reset the devices of a partition")
    reset.add_argument("partition", nargs="?", help="its name ($IPUOF_CONFIG_PATH's)")
    reset.set_defaults(action=_reset)
    add_tests(tools)
    add_cluster_tools(tools)
    add_view(tools)


def run(args: argparse.Namespace) -> int:
    tool: Tool = args.action
    return tool(args)


# -- info ------------------------------------------------------------------------------------------


def _info(args: argparse.Namespace) -> int:
    devices = facts_of(args).devices()
    if args.device_id is None:
        return _list_devices(devices, as_json=args.json)
    result = {device["id"]: device for device in devices}
    if args.device_id not in result:
        print(f"there is no device {args.device_id}: there are {len(devices)}")
        return 1
    device = result[args.device_id]
    requested = {
        "architecture": args.ipu_arch,
        "number of IPUs": args.ipu_count,
        "clock": args.tile_clock_speed,
    }
    chosen = {key: device[key] for key, is_asked in requested.items() if is_asked} or device
    if args.json:
        print(json.dumps(chosen, indent=2))
    else:
        print("\n".join(f"{key}: {value}" for key, value in chosen.items()))
    return 0


def _list_devices(devices: list[dict], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(devices, indent=2))
        return 0
    for device in devices:
        ipus = device["ipus"]
        if len(ipus) == 1:
            at = f"IPU-M host: [{device['host']}], IPU#: [{ipus[0]}]"
            print(f"-+- Id: [{device['id']}], target: [{device['target']}], {at}")
        else:
            print(f"-+- Id: [{device['id']}], target: [Multi IPU]")
            for index, ipu in enumerate(ipus):
                print(f" |--- Id: [{ipu}], DNC Id: [{index}]")
    return 0


# -- inventory and monitor -------------------------------------------------------------------------


def _inventory(args: argparse.Namespace) -> int:
    rows = [_attributes(row) for row in facts_of(args).ipus]
    if args.json:
        print(json.dumps({"devices": rows}, indent=2))
        return 0
    width = max((len(key) for row in rows for key in row), default=0)
    for row in rows:
        print("\n".join(f"{key:<{width}}  {value}" for key, value in row.items()), end="\n\n")
    return 0


def _attributes(row: dict) -> dict[str, str]:
    """An IPU as gc-inventory shows it: all values are texts, with units."""
    model: Chip = chip(row["chip"])
    return {
        "id": str(row["ipu"]),
        "target": "Fabric",
        "ipu name": row["chip"],
        "ipu architecture": row["arch"],
        "board serial number": row["serial"],
        "board ipu index": str(row["place"]),
        "ip address": row["host"],
        "clock": f"{row['clock_hz'] / 1e6:.0f}MHz",
        "number of tiles": str(model.n_tiles),
        "average board temp": f"{row['board_celsius']:.1f} C",
        "average die temp": f"{row['die_celsius']:.1f} C",
        "ipu power": f"{row['watts']:.1f} W",
        "ipu utilisation": f"{row['utilisation']:.2%}",
        "ipu utilisation (session)": f"{row['session']:.2%}",
        "link correctable error count": f"{row['link_errors']:.0f}",
        "partition": row["partition"] or "N/A",
        "fault": row["fault"] or "none",
    }


def _monitor(args: argparse.Namespace) -> int:
    if args.watch is None:
        _print_monitor(facts_of(args), as_json=args.json)
        return 0
    try:
        while True:
            facts = facts_of(args)
            print("\x1b[2J\x1b[H", end="")
            _print_monitor(facts, as_json=args.json)
            time.sleep(max(0.1, args.watch))
    except KeyboardInterrupt:
        return 0


def _print_monitor(facts: DeviceProperties, *, as_json: bool) -> None:
    rows = [_monitor_row(row) for row in facts.ipus]
    programs = [{**row, "age": _age(row["started_at"])} for row in facts.processes]
    if as_json:
        print(json.dumps({"cards": rows, "processes": programs}, indent=2))
        return
    for row in facts.partitions:
        state = row["state"].removeprefix("PS_").lower()
        kind = "reconfigurable " if row["is_reconfigurable"] else ""
        gcds = f" in {row['n_gcds']} GCDs" if row["n_gcds"] > 1 else ""
        print(f"Partition: {row['name']} [{state}] has {row['size']} {kind}IPUs{gcds}")
    print(table(rows, _MONITOR_COLUMNS))
    if programs:
        print()
        show(programs, _PROCESS_COLUMNS, as_json=False)
    else:
        print("\nNo program uses these IPUs.")


def _monitor_row(row: dict) -> dict:
    return {
        **row,
        "clock": f"{row['clock_hz'] / 1e6:.0f}MHz",
        "die": f"{row['die_celsius']:.1f} C",
        "board": f"{row['board_celsius']:.1f} C",
        "power": f"{row['watts']:.1f} W",
        "use": f"{row['utilisation']:.1%}",
    }


def _age(started_at: float) -> str:
    seconds = max(0, int(time.time() - started_at))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


# -- reset -----------------------------------------------------------------------------------------


def _reset(args: argparse.Namespace) -> int:
    mine = partition_of_environment() if args.partition is None else None
    name = args.partition or (mine.name if mine is not None else None)
    if name is None:
        print("nothing to reset: without a partition, every load of a program starts from scratch")
        return 0
    client_of(args).post(f"partitions/{name}/reset")
    print(f"the devices of partition {name} are reset; programs on it have lost them")
    return 0
