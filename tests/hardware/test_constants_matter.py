"""Every constant of a chip and of a system is read, and changing it changes a figure."""

import ast
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import tremula as tr
from tests.sources import ROOT, tree_of
from tremula.base.errors import PoplarError
from tremula.base.types import FLOAT, HALF, QUARTER
from tremula.commands.chips import _system_row
from tremula.compiler.compile import compile_graph
from tremula.compiler.file.codec import digest_of
from tremula.compiler.report.energy import PARTS
from tremula.hardware import Chip, System, chip, chip_to_toml, system
from tremula.hardware.constant_records import quantities
from tremula.poplibs import poplin, popops
from tremula.poplibs.popops import expr
from tremula.runtime.forecast import forecast
from tremula.vision.page_data import memory as page_memory

SOURCE = ROOT / "src" / "tremula"
HARDWARE = SOURCE / "hardware"

# -- every constant is read ------------------------------------------------------------------------


@cache
def readers_in_hardware() -> dict[str, set[str]]:
    """By attribute: the functions and properties of `hardware` that read it."""
    result: dict[str, set[str]] = {}
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    for path in sorted(HARDWARE.glob("*.py")):
        for function in (n for n in ast.walk(tree_of(path)) if isinstance(n, kinds)):
            if function.name.startswith(("_check", "check")):
                continue  # to check a constant is not to use it
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute):
                    result.setdefault(node.attr, set()).add(function.name)
                elif isinstance(node, ast.Name):
                    result.setdefault(node.id, set()).add(function.name)
    return result


@cache
def texts_outside() -> dict[Path, str]:
    """The sources of the packages that compute with machines, except `hardware` itself."""
    packages = "codelets poplar compiler runtime poplibs vision system explore commands".split()
    paths = (path for name in packages for path in sorted((SOURCE / name).rglob("*.py")))
    return {path: path.read_text(encoding="utf-8") for path in paths}


def is_read_outside(name: str) -> bool:
    """Whether a statement outside `hardware` reads a name or an attribute of this name."""
    for path, text in texts_outside().items():
        if name in text:  # parsing takes long
            for node in ast.walk(tree_of(path)):
                if (isinstance(node, ast.Attribute) and node.attr == name) or (
                    isinstance(node, ast.Name) and node.id == name
                ):
                    return True
    return False


def is_read(name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a constant is read outside `hardware`, directly or by what computes with it there."""
    if is_read_outside(name):
        return True
    readers = readers_in_hardware().get(name, set()) - seen
    return any(is_read(reader, seen | readers) for reader in sorted(readers))


@pytest.mark.parametrize("record", [Chip, System])
def test_every_constant_is_read(record):
    """No constant is there only to be listed: code outside of `hardware` depends on each."""
    assert not [name for name in quantities(record) if not is_read(name)]


def test_a_constant_that_nothing_reads_is_caught():
    """The check above can fail."""
    assert not is_read("a_constant_of_no_use")


# -- changing it changes a figure ------------------------------------------------------------------

# Small, with several rows and columns of tiles, units for 8-bit floats, and links for a pod.
CHIP = chip("c600").replace(
    name="small", n_tiles=24, n_columns=2, n_ipu_links=10, exchange_latency_cycles_across=3
)
# Two racks of two machines, with two tiles of each chip in use.
SYSTEM = system("pod16", chip=CHIP).replace(name="racks", n_machines_per_rack=2)

# Values to try where twice the usual one is not possible, or too little to matter.
OTHER_VALUES: dict[str, int | float | str] = {
    "arch": "ipu1",
    "rpt_count_max": 16,
    "compute_set_start_cycles": 10,
    "n_stride_bits": 2,
    "n_receivers_for_double_width": 1,
    "n_bytes_region1": 0,
    "n_tiles_per_numbering_step": 1,
    "ipu_link_efficiency": 0.5,
    "idle_watts": 100.0,
    "topology": "torus",
    "n_gateways_per_machine": 0,
    "n_bytes_dram_per_machine": 64,
    "machine_watts": 100.0,
}


def element_wise(graph, sequence):
    """Vector loops, one fused expression, a fill, lists of regions, and conversions."""
    a, b = (graph.add_variable(HALF, [7000], n, mapping="linear") for n in "ab")
    c = popops.add(graph, a, b, sequence)
    popops.map(graph, expr.sqrt(expr._1 * expr._2), [a, c], sequence)
    popops.zero(graph, c, sequence)
    popops.scaled_add_to(graph, a[1::3], b[1::3], 0.5, sequence)


def product(inputs, partials):
    """A matrix product that the matrix unit computes."""

    def build(graph, sequence):
        metadata = graph.add_constant("quarter_metadata", [], 0) if inputs is QUARTER else None
        left, right = (
            graph.add_variable(inputs, shape, name, mapping="linear", metadata=metadata)
            for name, shape in (("left", [512, 64]), ("right", [64, 48]))
        )
        poplin.mat_mul(graph, left, right, sequence, partials_type=partials)

    return build


def slices(graph, sequence):
    """A reduction over rows, and a lookup of rows."""
    table = graph.add_variable(FLOAT, [100, 24], "table", mapping="linear")
    indices = graph.add_variable("unsigned int", [40], "indices", mapping="linear")
    popops.reduce(graph, table, (0,), "ADD", sequence)
    popops.multi_slice(graph, table, indices, sequence)


def copies(graph, sequence):
    """Copies on a tile, between tiles, to several tiles, from the host and streaming memory."""
    n = graph.target.n_tiles
    x, y, z = (graph.add_variable(FLOAT, [n, 64], name) for name in "xyz")
    for tile in range(n):
        graph.set_tile_mapping(x[tile], tile)
        graph.set_tile_mapping(y[tile], n - 1 - tile)
        graph.set_tile_mapping(z[tile], tile)
    sequence.add(tr.Copy(x, y))
    sequence.add(tr.Copy(x[0].broadcast(n, 0).reshape([n, 64]), z))
    sequence.add(tr.Copy(x[0, :40], x[0, 20:60].reverse(0)))
    sequence.add(tr.Copy(x[0, 0], x[0, 1]))
    stream = graph.add_host_to_device_fifo("in", FLOAT, n * 64, buffering_depth=2)
    sequence.add(tr.Copy(stream, x))
    sequence.add(tr.Copy(graph.add_host_to_device_fifo("more", FLOAT, n * 64), x))
    buffer = graph.add_remote_buffer("buffer", FLOAT, n * 64)
    sequence.add(tr.Copy(x, buffer))


PROGRAMS = {
    "element-wise": element_wise,
    "half": product(HALF, HALF),
    "half-float": product(HALF, FLOAT),
    "float": product(FLOAT, FLOAT),
    "quarter": product(QUARTER, HALF),
    "slices": slices,
    "copies": copies,
}


def machine_of(chip_or_system):
    if isinstance(chip_or_system, Chip):
        return tr.IPUModel(chip_or_system)
    return tr.IPUModel(chip_or_system, n_ipus=chip_or_system.n_ipus, tiles_per_ipu=2)


def figures(chip_or_system, program: str) -> str:
    """A digest of costs, layout, memory and energy of a program."""
    graph = tr.Graph(machine_of(chip_or_system).create_device())
    sequence = tr.Sequence()
    PROGRAMS[program](graph, sequence)
    executable = compile_graph(graph, [sequence])
    energy = forecast(executable).energy
    joules = [getattr(energy, part) for part in PARTS]
    return digest_of((executable.analysis, executable.variables, joules))


@cache
def usual_figures(kind: type, program: str) -> str:
    return figures(CHIP if kind is Chip else SYSTEM, program)


def listed(machine) -> tuple[str, ...]:
    """What no compiled program depends on: addresses on the page, power limits, hosts."""
    whole = machine if isinstance(machine, System) else system("pod16", chip=machine)
    reader = SimpleNamespace(target={"chip_toml": chip_to_toml(whole.chip)})
    address = page_memory._memory_facts(reader, [])["base_address"]
    return (str(address), str(whole.watts_per_ipu), *_system_row("", whole))


def has_effect(usual, name: str) -> bool:
    """Whether another value of a constant is an error, or changes a figure of some program."""
    value = OTHER_VALUES[name] if name in OTHER_VALUES else 2 * getattr(usual, name)
    try:
        machine = usual.replace(**{name: value})
        if listed(machine) != listed(usual):
            return True
        programs = PROGRAMS if isinstance(usual, Chip) else ["copies"]
        return any(figures(machine, p) != usual_figures(type(usual), p) for p in programs)
    except PoplarError as error:
        return "try: " in str(error)  # it says what to do


@pytest.mark.parametrize("usual", [CHIP, SYSTEM], ids=["chip", "system"])
def test_every_constant_has_an_effect(usual):
    """A what-if on any constant changes a cost, a layout, a memory figure, or is an error."""
    assert not [name for name in quantities(type(usual)) if not has_effect(usual, name)]


def test_a_wider_data_path_is_faster():
    """Element-wise loops take half as many steps on a data path of twice the width."""

    def cycles(machine):
        graph, sequence = tr.Graph(tr.IPUModel(machine).create_device()), tr.Sequence()
        element_wise(graph, sequence)
        return int(compile_graph(graph, [sequence]).analysis.costs.compute.sum())

    wide = CHIP.replace(data_path_bytes=16, load_bytes_per_cycle=32, store_bytes_per_cycle=16)
    assert cycles(wide) < 0.8 * cycles(CHIP)
