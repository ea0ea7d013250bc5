"""What the device tools show: of a controller's partitions, or of a machine of one's own."""

import argparse
import sys
from dataclasses import dataclass

from tremula.base.storage.strict_json import JsonObject
from tremula.commands.system.vipu import client_of
from tremula.hardware import System
from tremula.poplar.partition import partition_of_environment
from tremula.poplar.target import DeviceManager
from tremula.system.client import Client, in_path
from tremula.system.control.telemetry import ChipColumns

_INVENTED = (
    "note: no partition is set, so what follows is invented: a modelled {}, whose {} IPUs idle.\n"
    "  try: `tremula vipu create partition NAME --size N`, then set IPUOF_CONFIG_PATH; or name a "
    "controller with --api-host"
)


@dataclass(frozen=True)
class DeviceProperties:
    """Partitions, IPUs and programs, as the controller's `monitor` returns them."""

    partitions: list[JsonObject]
    ipus: list[JsonObject]
    processes: list[JsonObject]
    target: str = "Fabric"

    def devices(self) -> list[JsonObject]:
        """Devices of all sizes, numbered as Poplar does: single IPUs first, then pairs, …"""
        result: list[JsonObject] = []
        size = 1
        while size <= len(self.ipus):
            if self._has_devices_of(size):
                for first in range(0, len(self.ipus) - size + 1, size):
                    result.append(self._device(len(result), self.ipus[first : first + size]))
            size *= 2
        return result

    def _has_devices_of(self, size: int) -> bool:
        """A partition that is not reconfigurable is one device, or one for each domain."""
        if len(self.partitions) != 1 or self.partitions[0]["is_reconfigurable"]:
            return True
        return size == self.partitions[0]["size"] // self.partitions[0]["n_gcds"]

    def _device(self, id: int, ipus: list[JsonObject]) -> JsonObject:
        first = ipus[0]
        return {
            "id": id,
            "target": self.target,
            "ipus": [row["ipu"] for row in ipus],
            "number of IPUs": len(ipus),
            "name": first["chip"],
            "architecture": first["arch"],
            "clock": f"{first['clock_hz'] / 1e6:.0f}MHz",
            "host": first["host"],
            "power": f"{sum(row['watts'] for row in ipus):.1f} W",
        }


def facts_of(args: argparse.Namespace) -> DeviceProperties:
    """Of the partition that the environment names; of a controller's all; or of a Pod16."""
    mine = partition_of_environment()
    if args.all_partitions or (mine is None and _names_controller(args)):
        return DeviceProperties(**client_of(args).get("monitor"))
    if mine is None:
        machine = DeviceManager().system
        print(_INVENTED.format(machine.name, machine.n_ipus), file=sys.stderr)
        return _of_machine(machine)
    client = Client(mine.host, mine.port, mine.key)
    return DeviceProperties(**client.get(f"partitions/{in_path(mine.name)}/monitor"))


def _names_controller(args: argparse.Namespace) -> bool:
    return any((args.api_host, args.api_port, args.api_access_key, args.config))


def _of_machine(machine: System) -> DeviceProperties:
    """A modelled machine that is not shared: it idles."""
    columns = ChipColumns(machine.chip, machine.n_ipus)
    about = {
        "chip": machine.chip.name,
        "arch": machine.chip.arch,
        "clock_hz": machine.chip.clock_hz,
        "partition": None,
        "fault": None,
        "host": "localhost",
        "watts": float(columns.watts[0]),
        "die_celsius": float(columns.die_celsius[0]),
        "board_celsius": float(columns.board_celsius[0]),
        "utilisation": 0.0,
        "session": 0.0,
        "link_errors": 0.0,
    }
    per = machine.n_ipus_per_machine
    ipus = [
        {"ipu": i, "place": i % per, "agent": f"machine {i // per}", "serial": "model", **about}
        for i in range(machine.n_ipus)
    ]
    return DeviceProperties([], ipus, [], target="Model")
