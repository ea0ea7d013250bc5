"""`gc-powertest`, `gc-memorytest`, `gc-exchangetest`, `gc-iputraffic`: programs test a device."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from tremula.commands.arguments import whole
from tremula.commands.progress import progress
from tremula.poplar.target import Device, DeviceManager

_HELP = {
    "powertest": "load the tiles, and judge the power",
    "exchangetest": "let all tiles send, and judge the rate",
    "memorytest": "write, invert and compare a pattern on all tiles",
    "iputraffic": "send from chip to chip, and judge the rate",
}


def add_tests(tools: Any) -> None:  # noqa: ANN401 - argparse's own class is private
    """A parser for each test."""
    for name, help in _HELP.items():
        tool = tools.add_parser(name, help=help)
        tool.add_argument("-d", "--device-id", type=whole(0), metavar="N", help="(the first free)")
        n = 2 if name == "iputraffic" else 1
        few = f"(the smallest device of {n} or more)"
        tool.add_argument("--n-ipus", type=whole(1), metavar="N", help=few)
        tool.add_argument("--tiles", type=whole(1), metavar="N", help="of each IPU (all)")
        tool.add_argument("-j", "--json", action="store_true", help="as JSON")
        tool.set_defaults(action=_run_test, test=name, least=n)


def _run_test(args: argparse.Namespace) -> int:
    from tremula.system.device_tests import TESTS  # brings PopLibs

    device = _device(args)
    try:
        with progress(args.test):
            result = TESTS[args.test](device)
    finally:
        device.detach()
    if args.json:
        print(json.dumps({"device": device.id, **asdict(result)}, indent=2))
    else:
        verdict = "PASS" if result.is_passed else "FAIL"
        of = f"{result.measured:.4g} {result.unit}, figure {result.figure:.4g}"
        print(f"{verdict}  device {device.id}, {result.name}: {of} ({result.about})")
    return 0 if result.is_passed else 1


def _smallest(manager: DeviceManager, least: int) -> int:
    """The size of the smallest devices that have some IPUs; a usual partition is one device."""
    sizes = (device.target.n_ipus for device in manager.get_devices())
    return min((n for n in sizes if n >= least), default=least)


def _device(args: argparse.Namespace) -> Device:
    manager = DeviceManager()
    if args.device_id is None:
        device = manager.acquire_available_device(args.n_ipus or _smallest(manager, args.least))
    else:
        device = manager.get_device(args.device_id)
        if not device.attach():
            raise manager.held_by_others([device])
    return device if args.tiles is None else device.create_virtual_device(args.tiles)
