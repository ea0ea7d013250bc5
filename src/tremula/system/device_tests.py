"""Tests of devices: tile programs whose results and cycles are judged by figures of the chip."""

from dataclasses import dataclass

import numpy as np

from tremula.base.errors import InvalidOption
from tremula.base.types import HALF, UNSIGNED_INT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Repeat, Sequence
from tremula.poplar.target import Device
from tremula.poplibs import poplin, popops
from tremula.runtime.engine import Engine

# What must be reached of a chip's figure: latencies and control take their part of short tests.
_LEAST_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class TestResult:
    """What was measured, what the chip's figure is, and whether that is good enough."""

    __test__ = False  # not a test, despite its name

    name: str
    measured: float
    figure: float
    unit: str
    is_passed: bool
    about: str


def memory_test(device: Device, n_bytes_per_tile: int = 16 << 10) -> TestResult:
    """Write a pattern to every tile, let the tiles invert it, and compare every word."""
    limit = device.target.chip.n_bytes_per_tile // 4
    if not 16 <= n_bytes_per_tile <= limit:
        raise InvalidOption(
            f"the pattern of a tile has {n_bytes_per_tile} bytes, expected 16 to {limit}.",
            hint="it is kept twice, beside the program",
        )
    graph, sequence = Graph(device), Sequence()
    n_words = device.target.n_tiles * (n_bytes_per_tile // 4)
    words = graph.add_variable(UNSIGNED_INT, [n_words], "words", mapping="linear")
    inverted = popops.bitwise_not(graph, words, sequence)
    graph.create_host_write("words", words)
    for name, tensor in (("read words", words), ("inverted", inverted)):
        graph.create_host_read(name, tensor)
    engine = Engine(graph, [sequence]).load(device)
    pattern = np.arange(n_words, dtype=np.uint32) * np.uint32(2_654_435_761)
    engine.write_tensor("words", pattern)
    engine.run()
    n_wrong = int((engine.read_tensor("read words") != pattern).sum())
    n_wrong += int((engine.read_tensor("inverted") != ~pattern).sum())
    about = f"{n_words * 4 / 2**20:.1f} MiB on {device.target.n_tiles} tiles, and its inverse"
    return TestResult("memory", n_wrong, 0, "wrong words", n_wrong == 0, about)


def exchange_test(device: Device, n_bytes_per_tile: int = 32 << 10) -> TestResult:
    """Every tile sends to the next but one on its chip, all at once."""
    target = device.target
    graph = Graph(device)
    n_words = n_bytes_per_tile // 4
    source, arrived = (
        graph.add_variable(UNSIGNED_INT, [target.n_tiles, n_words], name)
        for name in ("sent", "arrived")
    )
    per = target.tiles_per_ipu
    for tile in range(target.n_tiles):
        # Tiles two apart do not share a bus, which would deliver equal data twice as fast.
        to = tile // per * per + (tile + 2) % per
        graph.set_tile_mapping(source[tile], tile)
        graph.set_tile_mapping(arrived[tile], to)
    graph.create_host_write("sent", source)
    graph.create_host_read("arrived", arrived)
    engine = Engine(graph, [Copy(source, arrived)]).load(device)
    pattern = np.arange(target.n_tiles * n_words, dtype=np.uint32)
    engine.write_tensor("sent", pattern)
    engine.run()
    is_whole = bool((engine.read_tensor("arrived").ravel() == pattern).all())
    measured = n_bytes_per_tile / engine.clock.total_cycles
    figure = target.exchange_bytes_per_cycle
    about = f"{n_bytes_per_tile / 1024:g} KiB from each of {target.n_tiles} tiles" + (
        "" if is_whole else "; data arrived wrong"
    )
    is_passed = is_whole and measured >= _LEAST_SHARE * figure
    return TestResult("exchange", measured, figure, "B/cycle", is_passed, about)


def power_test(device: Device, size: int = 0, n_repeats: int = 4) -> TestResult:
    """Multiply matrices of halves, and see that the chip stays within its power limit."""
    target, chip = device.target, device.target.chip
    size = size or min(2048, 16 * int(np.sqrt(target.n_tiles) * 2))
    graph, sequence = Graph(device), Sequence()
    a = graph.add_variable(HALF, [size, size], "a", mapping="linear")
    b = graph.add_variable(HALF, [size, size], "b", mapping="linear")
    poplin.mat_mul(graph, a, b, sequence)
    engine = Engine(graph, [Repeat(n_repeats, sequence)]).load(device)
    engine.run()
    watts = engine.report().energy.watts / target.n_ipus
    about = f"a product of {size} × {size} halves; idle {chip.idle_watts:g} W"
    assert target.system is not None, "a target always gets a system"
    limit = target.system.watts_per_ipu
    is_passed = chip.idle_watts < watts <= limit
    return TestResult("power", watts, limit, "W per IPU", is_passed, about)


def traffic_test(device: Device) -> TestResult:
    """The first chip sends to the second, from all tiles at once."""
    target = device.target
    n_bytes_per_tile = min(128 << 10, max(8 << 10, (8 << 20) // target.tiles_per_ipu // 4 * 4))
    if target.n_ipus < 2:
        raise InvalidOption(
            "traffic between chips takes a device of two IPUs or more.",
            hint="choose one with --n-ipus 2",
        )
    per, n_words = target.tiles_per_ipu, n_bytes_per_tile // 4
    graph = Graph(device)
    source, arrived = (graph.add_variable(UNSIGNED_INT, [per, n_words], n) for n in ("from", "to"))
    for tile in range(per):
        graph.set_tile_mapping(source[tile], tile)
        graph.set_tile_mapping(arrived[tile], per + tile)
    engine = Engine(graph, [Copy(source, arrived)]).load(device)
    engine.run()
    seconds = engine.clock.total_cycles / target.tile_clock_hz
    measured = per * n_bytes_per_tile / seconds / 1e9
    assert target.system is not None, "a target always gets a system"
    system = target.system
    rates = (float(system.links.gbytes_per_s[row]) for row in system.link_path(0, 1))
    figure = min(rates)
    about = f"{per * n_bytes_per_tile / 2**20:.1f} MiB from IPU 0 to IPU 1"
    is_passed = _LEAST_SHARE * figure <= measured <= figure * 1.001
    return TestResult("IPU traffic", measured, figure, "GB/s", is_passed, about)


TESTS = {
    "memorytest": memory_test,
    "exchangetest": exchange_test,
    "powertest": power_test,
    "iputraffic": traffic_test,
}
