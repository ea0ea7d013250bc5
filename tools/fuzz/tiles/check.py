"""Oracles of tile programs: values against the reference, costs against themselves and reports."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

import numpy as np

from tests.vision.report.sums import assert_sums
from tools.fuzz.case import Case, CheckFailure, IllegalCase, plain
from tools.fuzz.tiles.build import Built, build
from tools.fuzz.tiles.generate import features, generate
from tools.fuzz.tiles.reference import Diverged, Reference
from tremula import Engine, Executable, forecast
from tremula.base.errors import (
    GraphReplicationError,
    MissingPerfEstimate,
    MissingProfileData,
)
from tremula.compiler.report.report import ProgramReport
from tremula.vision.analysis.whatif import RecostableProgram
from tremula.vision.report.reader import open_report
from tremula.vision.report.write import report_of_engine


class TilePrograms:
    """Programs of vertices, copies and control flow on a few tiles."""

    name = "tiles"

    def generate(self, random: Random) -> Case:
        return plain(generate(random))

    def features(self, case: Case) -> Iterable[str]:
        return features(case)

    def check(self, case: Case) -> None:
        try:
            expected, diverges = expected_results(case)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as why:
            raise IllegalCase(repr(why)) from None
        built = build(case)
        options = {"debug.strict": case["strict"], "tremula.threads": 1}
        engine = Engine(built.graph, built.programs, options)
        run_and_compare(case, built, engine, expected, diverges=diverges)
        if diverges:
            return
        check_costs(engine)
        for name in case["checks"]:
            CHECKS[name](case, engine)


def expected_results(case: Case) -> tuple[list[list[list[np.ndarray]]], bool]:
    """Variables of every replica after each run; whether replicas disagreed in the last one."""
    reference, after = Reference(case), []
    if case["chips"] < 1 or case["tiles"] < 2 or case["replicas"] < 1 or not case["variables"]:
        raise IllegalCase("a machine and variables")
    check_mapping(case)
    for number in case["runs"]:
        try:
            reference.run(number)
        except Diverged:
            return after, True
        after.append(snapshot(reference))
    return [*after, reference.fetched], False


def check_mapping(case: Case) -> None:
    """Every element has a tile that exists, and vertices run on such tiles."""
    n_tiles = case["chips"] * case["tiles"]
    tiles = [vertex["tile"] for rows in case["sets"] for vertex in rows]
    for variable in case["variables"]:
        n = int(np.prod(variable["shape"], dtype=np.int64))
        covered = np.zeros(n, bool)
        for start, stop, step, tile in variable["map"]:
            covered[start:stop:step] = True
            tiles.append(tile)
        if not covered.all() or len(variable["values"][0]) != n:
            raise IllegalCase("an element without a tile")
    if any(not 0 <= tile < n_tiles for tile in tiles):
        raise IllegalCase("a tile that exists")


def snapshot(reference: Reference) -> list[list[np.ndarray]]:
    numbers = range(len(reference.case["variables"]))
    replicas = range(reference.n_replicas)
    return [[reference.variable(n, replica).copy() for n in numbers] for replica in replicas]


def run_and_compare(
    case: Case, built: Built, engine: Engine, expected: list, *, diverges: bool
) -> None:
    """Run all programs; after each, every variable of every replica is as the reference says."""
    engine.load()
    _write_replica_values(case, engine)
    built.connect(engine)
    n_whole = len(expected) if diverges else len(expected) - 1
    for turn, number in enumerate(case["runs"]):
        if turn == n_whole:
            _expect_divergence(engine, number)
            return
        engine.run(number)
        for replica, values in enumerate(expected[turn]):
            for variable, wanted in enumerate(values):
                got = engine.read_tensor(f"v{variable}", replica)
                _compare(got, wanted, f"variable {variable} of replica {replica} after {turn}")
    for handle, node in built.fetches.items():
        for replica, wanted_rows in enumerate(expected[-1].get(node, [])):
            _compare_rows(built.fetched[handle][replica], wanted_rows, handle)


def _write_replica_values(case: Case, engine: Engine) -> None:
    for number, variable in enumerate(case["variables"]):
        for replica, row in enumerate(variable["values"][1:], 1):
            values = np.array(row, np.float32).astype("f2" if variable["type"] == "HALF" else "f4")
            engine.write_tensor(f"v{number}", values, replica)


def _expect_divergence(engine: Engine, number: int) -> None:
    try:
        engine.run(number)
    except GraphReplicationError:
        return
    raise CheckFailure("replicas disagree about a branch, and no error says so")


def _compare(got: np.ndarray, wanted: np.ndarray, what: str) -> None:
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        raise CheckFailure("wrong type or shape", f"{what}: {got!r}, expected {wanted!r}")
    if not np.array_equal(got, wanted, equal_nan=got.dtype.kind == "f"):
        raise CheckFailure("wrong values", f"{what}: {got!r}, expected {wanted!r}")


def _compare_rows(got: list[np.ndarray], wanted: list[np.ndarray], what: str) -> None:
    if len(got) != len(wanted):
        raise CheckFailure("wrong number of chunks", f"{what}: {len(got)}, not {len(wanted)}")
    for one, other in zip(got, wanted, strict=True):
        _compare(one, other, what)


# -- costs -----------------------------------------------------------------------------------------


def check_costs(engine: Engine) -> None:
    """No cost is negative or missing, phases add up, and nothing is faster than its parts."""
    report = engine.report()
    steps, total = report.steps, report.total_cycles if report.has_run else 0
    columns = (steps.sync, steps.exchange, steps.compute, report.cycles_of_chip,
               report.phases_of_chip, report.tiles.n_bytes, report.tiles.compute)  # fmt: skip
    if any(np.asarray(column).min(initial=0) < 0 for column in columns):
        raise CheckFailure("a negative cost", repr(columns))
    ran = steps.executed > 0
    if not steps.is_known[ran].all():
        raise CheckFailure("a step without a cost", repr(np.array(steps.name)[ran]))
    busy = report.phases_of_chip.sum(axis=1)
    if (busy > report.cycles_of_chip).any():
        raise CheckFailure("phases exceed the time of a chip", f"{busy}, {report.cycles_of_chip}")
    if len(busy) == 1 and busy[0] != total:
        raise CheckFailure("phases do not add up", f"{busy[0]} cycles of {total}")
    if not report.has_run:
        return
    _check_path(engine, report, ran)


def _check_path(engine: Engine, report: ProgramReport, ran: np.ndarray) -> None:
    """No run is shorter than its critical path, nor longer than its steps one after another."""
    steps, total = report.steps, report.total_cycles
    together = steps.cycles[ran] * steps.executed[ran]
    longest, slowest = int(together.max(initial=0)), int(together.sum())
    if total < report.cycles_of_chip.max():
        raise CheckFailure("less time than a chip takes", f"{total}, {report.cycles_of_chip}")
    if _averages(engine):
        return
    if total > slowest:
        raise CheckFailure("more time than all steps take", f"{total} cycles, steps {slowest}")
    if total < longest:
        raise CheckFailure("less time than one step takes", f"{total} cycles, step {longest}")
    if len(report.cycles_of_chip) == 1 and total != slowest:
        raise CheckFailure("steps of one chip do not add up", f"{total} cycles, steps {slowest}")


def _averages(engine: Engine) -> bool:
    """Cycles of steps that are counted while they run are averages, which round down."""
    execution = engine.report().ran
    return execution is not None and bool(execution.counted)


def check_report(_: Case, engine: Engine) -> None:
    """The report file has the engine's numbers, so has pva, and what-if of nothing changes none."""
    if not engine.report().has_run:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = report_of_engine(engine, Path(folder))
        with open_report(path) as reader:
            assert_sums(reader, engine)
            point = RecostableProgram(reader).as_reported()
            if point.total_cycles != engine.report().total_cycles:
                raise CheckFailure("what-if of nothing changes the total", repr(point))


def check_rebuild(case: Case, engine: Engine) -> None:
    """Built again, it costs what it cost."""
    built = build(case)
    again = Engine(built.graph, built.programs, {"tremula.threads": 1})
    _run_all(case, built, again)
    _same_costs(engine, again, "built again")


def check_executable(case: Case, engine: Engine) -> None:
    """Saved and loaded, it computes and costs the same."""
    expected, _ = expected_results(case)
    built = build(case)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "case.tremula"))
        engine.executable.save(path)
        loaded = Engine(Executable.load(path), options={"tremula.threads": 1})
        run_and_compare(case, built, loaded, expected, diverges=False)
    _same_costs(engine, loaded, "loaded from a file")


def check_forecast(case: Case, engine: Engine) -> None:
    """A forecast is what a run takes, where control flow does not depend on data."""
    number = case["runs"][0]
    try:
        foretold = forecast(engine.executable, number)
    except (MissingProfileData, MissingPerfEstimate):
        return
    built = build(case)
    once = Engine(engine.executable, options={"tremula.threads": 1}).load()
    built.connect(once)
    once.run(number)
    has_run = foretold.has_run, once.report().has_run
    if has_run == (False, False):
        return
    totals = foretold.total_cycles, once.report().total_cycles
    if totals[0] != totals[1]:
        raise CheckFailure("a forecast is wrong", f"{totals[0]} cycles foretold, {totals[1]} taken")


def _run_all(case: Case, built: Built, engine: Engine) -> None:
    engine.load()
    _write_replica_values(case, engine)
    built.connect(engine)
    for number in case["runs"]:
        engine.run(number)


def _same_costs(one: Engine, other: Engine, how: str) -> None:
    first, second = one.report(), other.report()
    pairs = (
        (first.cycles_of_chip, second.cycles_of_chip),
        (first.steps.executed, second.steps.executed),
        (first.tiles.n_bytes, second.tiles.n_bytes),
    )
    if any(not np.array_equal(a, b) for a, b in pairs):
        raise CheckFailure(f"another cost when {how}", repr(pairs))


CHECKS = {
    "report": check_report,
    "rebuild": check_rebuild,
    "executable": check_executable,
    "forecast": check_forecast,
}
