"""Executable files: what is saved is what is loaded, and nothing but an intact file is accepted."""

import copy
import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.runtime.codelets import Blend, Countdown, Mark, Spread
from tests.runtime.random_graphs import make_world, program
from tests.sampling import n_examples
from tremula import (
    BOOL,
    FLOAT,
    INT,
    UNSIGNED_CHAR,
    Call,
    Copy,
    Engine,
    Executable,
    Execute,
    Graph,
    IPUModel,
    PrintTensor,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    Switch,
    compile_graph,
    cycle_stamp,
)
from tremula.base.errors import FileLoadError, InvalidMachineModel
from tremula.compiler.file import codec
from tremula.compiler.program_ir import Opcode
from tremula.hardware import system

PREFIX_BYTES = 8 + 4 + 8 + 32  # magic, version, header's length, digest


def everything_graph():
    """A graph and program with every kind of instruction and column."""
    graph = Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device())
    x, y = (graph.add_variable(FLOAT, [8], name, mapping=0) for name in "xy")
    out, n = (
        graph.add_variable(INT, [4], "out", mapping=1),
        graph.add_variable(INT, [], "n", mapping=1),
    )
    data = graph.add_variable(UNSIGNED_CHAR, [3], "data", mapping=2)
    flags, go = (
        graph.add_variable(BOOL, [3], "flags", mapping=2),
        graph.add_variable(BOOL, [], mapping=2),
    )
    for tensor, value in ((x, np.arange(8)), (n, 3), (data, [1, 2, 3])):
        graph.set_initial_value(tensor, value)
    for name, tensor in (("x", x), ("y", y), ("out", out), ("n", n), ("flags", flags)):
        graph.create_host_read(name, tensor)
    graph.create_host_write("x", x)
    stream = graph.add_host_to_device_fifo("in", FLOAT, 8)
    work = graph.add_compute_set("work")
    graph.add_vertex(work, Blend, {"x": x[::2], "y": y.reverse(), "shift": 1.0}, tile=1)
    graph.add_vertex(work, Spread, {"first": n, "out": list(out), "steps": [1, 5]}, tile=2)
    graph.add_vertex(work, Mark, {"bytes": data, "flags": flags, "calls": 0}, tile=3)
    down = graph.add_compute_set("down")
    graph.add_vertex(down, Countdown, {"n": n, "go": go, "inverted": 0}, tile=0)
    body = Sequence(Execute(work, flags[0]), Copy(y, x))
    cycle_stamp(graph, body, 0)
    function = graph.add_function(Copy(x[:4], x[4:]))
    main = Sequence(
        RepeatWhileTrue(Execute(down), go, body),
        Repeat(2, Call(function)),
        Switch(n, {0: Copy(y, x), 1: Copy(x, y)}),
    )
    return graph, {"main": main, "feed": Copy(stream, x), "show": PrintTensor("x", x)}


@pytest.fixture(scope="module")
def executable():
    return compile_graph(*everything_graph())


@pytest.fixture(scope="module")
def saved(executable, tmp_path_factory):
    """The bytes of a good file."""
    path = tmp_path_factory.mktemp("good") / "good.tremula"
    executable.save(str(path))
    return path.read_bytes()


def load_bytes(tmp_path: Path, data: bytes) -> Executable:
    path = tmp_path / "file.tremula"
    path.write_bytes(data)
    return Executable.load(str(path))


def refusal(tmp_path: Path, data: bytes) -> str:
    """The text of the error that these bytes raise."""
    with pytest.raises(FileLoadError) as caught:
        load_bytes(tmp_path, data)
    assert "file.tremula" in str(caught.value)
    assert "\n  try: " in str(caught.value)
    return str(caught.value)


# -- round trips -----------------------------------------------------------------------------------


def results(engine: Engine) -> dict:
    engine.load()
    engine.run("main")
    return {name: engine.read_tensor(name) for name in engine.executable.host.reads}


@pytest.mark.slow
def test_a_loaded_executable_runs_the_same(executable, saved, tmp_path):
    """Values, cycles, names and options are the same after save and load."""
    loaded = load_bytes(tmp_path, saved)
    first, second = Engine(executable), Engine(loaded)
    wanted, got = results(first), results(second)
    assert all(np.array_equal(wanted[name], got[name]) for name in wanted)
    assert first.clock.total_cycles == second.clock.total_cycles
    assert loaded.names == executable.names
    assert loaded.target == executable.target
    assert codec.digest_of(loaded) == codec.digest_of(executable)


def test_saving_is_reproducible(executable, saved, tmp_path):
    """Saving an executable twice gives the same bytes, and so does saving a loaded one."""
    path = tmp_path / "again.tremula"
    load_bytes(tmp_path, saved).save(str(path))
    assert path.read_bytes() == saved


@pytest.mark.slow
@settings(
    max_examples=15,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_random_programs_survive_a_file(tmp_path, data):
    """Any program computes the same after a round trip."""
    world = make_world(data.draw)
    tree = Sequence([program(world, 2) for _ in range(3)])
    executable = compile_graph(world.graph, tree)
    path = tmp_path / "program.tremula"
    executable.save(str(path))
    outcomes = []
    for one in (executable, Executable.load(str(path))):
        engine = Engine(one, options={"tremula.threads": 1}).load()
        engine.run()
        outcomes.append({name: engine.read_tensor(name).tobytes() for name in world.all_tensors()})
    assert outcomes[0] == outcomes[1]


# -- damaged files ---------------------------------------------------------------------------------


def test_truncated_files_are_refused(saved, tmp_path):
    """A file cut anywhere, in its prefix, header or arrays, is refused."""
    n_header = int.from_bytes(saved[12:20], "little")
    ends = {
        0,
        1,
        7,
        8,
        11,
        12,
        19,
        20,
        PREFIX_BYTES - 1,
        PREFIX_BYTES,
        PREFIX_BYTES + n_header // 2,
    }
    ends |= {PREFIX_BYTES + n_header, PREFIX_BYTES + n_header + 1, len(saved) - 64, len(saved) - 1}
    for end in sorted(ends):
        text = refusal(tmp_path, saved[:end])
        wanted = "is not a Tremula file" if end < 8 else "is truncated or was altered"
        assert wanted in text, end
    assert "is truncated or was altered" in refusal(tmp_path, saved + b"\0")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bits_are_found(saved, tmp_path, data):
    """Any single flipped bit is noticed."""
    at = data.draw(st.integers(0, len(saved) - 1))
    bit = data.draw(st.integers(0, 7))
    altered = bytearray(saved)
    altered[at] ^= 1 << bit
    refusal(tmp_path, bytes(altered))


def test_newer_versions_are_refused(saved, tmp_path):
    """A file of a later format says which version it has and to update."""
    newer = saved[:8] + (codec.FORMAT_VERSION + 1).to_bytes(4, "little") + saved[12:]
    text = refusal(tmp_path, newer)
    version = codec.FORMAT_VERSION
    assert f"has format version {version + 1}; this Tremula reads {version}." in text
    assert "try: update Tremula" in text


def test_older_versions_are_refused(saved, tmp_path):
    """Records of older formats have other names: the file says to compile again."""
    older = saved[:8] + (codec.FORMAT_VERSION - 1).to_bytes(4, "little") + saved[12:]
    text = refusal(tmp_path, older)
    assert f"has format version {codec.FORMAT_VERSION - 1}; this Tremula reads" in text
    assert "try: compile again" in text


def test_two_records_of_one_name_are_an_error():
    """A file could not tell them apart."""

    @codec.record
    @dataclass
    class Twice:
        x: int

    namesake = type("Twice", (), {k: getattr(Twice, k) for k in ("__module__", "__qualname__")})
    with pytest.raises(ValueError, match=r"both have a record '.*Twice': rename one"):
        codec.record(namesake)


def test_only_records_are_written(tmp_path):
    """Something that could not be read back is refused when it is written."""

    @dataclass
    class Stranger:
        x: int

    with pytest.raises(TypeError, match="Stranger cannot be written"):
        codec.write_record(tmp_path / "file", "executable", Stranger(1))


def test_other_files_are_refused(tmp_path):
    """Text, empty files, folders, and files that are not there are refused by name."""
    assert "is not a Tremula file" in refusal(tmp_path, b"hello, world")
    assert "is not a Tremula file" in refusal(tmp_path, b"")
    with pytest.raises(FileLoadError, match=r"cannot read .*missing.*: No such file"):
        Executable.load(str(tmp_path / "missing"))
    with pytest.raises(FileLoadError, match="cannot read"):
        Executable.load(str(tmp_path))


def test_files_of_another_kind_are_refused(executable, tmp_path):
    """A Tremula file that holds something else says what it holds."""
    path = tmp_path / "report.tremula"
    codec.write_record(path, "report", executable)
    with pytest.raises(FileLoadError, match="holds a report, expected a executable"):
        Executable.load(str(path))
    codec.write_record(path, "executable", executable.machine)
    with pytest.raises(FileLoadError, match="has no Executable in it"):
        Executable.load(str(path))


# -- contents that lie, with a correct digest ------------------------------------------------------


def rehashed(header: bytes, payload: bytes) -> bytes:
    """A file of any contents whose digest is right."""
    digest = hashlib.blake2b(header + payload, digest_size=32).digest()
    start = codec.MAGIC + codec.FORMAT_VERSION.to_bytes(4, "little")
    return start + len(header).to_bytes(8, "little") + digest + header + payload


HEADERS = [
    b"",
    b"not json",
    b"[]",
    b"null",
    b"{}",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"kind": "executable", "tree": {"$": "Nothing"}, "arrays": []}',
    b'{"kind": "executable", "tree": {"$": ["a"]}, "arrays": []}',
    b'{"kind": "executable", "tree": {"$": "Executable"}, "arrays": []}',
    b'{"kind": "executable", "tree": {"$array": 0}, "arrays": []}',
    b'{"kind": "executable", "tree": 3, "arrays": [{"dtype": "O", "shape": [1], "at": 0}]}',
    b'{"kind": "executable", "tree": 3, "arrays": [{"dtype": "V8", "shape": [1], "at": 0}]}',
    b'{"kind": "executable", "tree": 3, "arrays": [{"dtype": "<i8", "shape": [-1], "at": -8}]}',
    b'{"kind": "executable", "tree": 3, "arrays": [{"dtype": "<i8", "shape": [99999], "at": 0}]}',
    b'{"kind": "executable", "tree": 3, "arrays": [{"dtype": "<i8", "shape": [1e30], "at": 0}]}',
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_unreadable_headers_are_refused(tmp_path, header):
    """Headers that are no JSON, or describe what is not there, are refused, never followed."""
    text = refusal(tmp_path, rehashed(header, bytes(64)))
    assert "cannot read" in text or "expected a executable" in text or "has no Executable" in text


def with_code(op, operand, value):
    """A lie: an operand of the first instruction of a kind."""

    def lie(executable):
        code = executable.code.copy()
        code[np.flatnonzero(code[:, 0] == op)[0], 1 + operand] = value
        return replace(executable, code=code)

    return lie


def with_table(set_name, change):
    """A lie: a vertex table of a compute set changed."""

    def lie(executable):
        sets = list(executable.compute_sets)
        at = next(i for i, cs in enumerate(sets) if cs.name == set_name)
        tables = tuple(change(table) for table in sets[at].tables)
        sets[at] = replace(sets[at], tables=tables)
        return replace(executable, compute_sets=tuple(sets))

    return lie


def column_plus(index, amount):
    def change(table):
        columns = list(table.columns)
        columns[index] = (columns[index] + amount).astype(columns[index].dtype)
        return replace(table, columns=tuple(columns))

    return change


def with_copy(**changes):
    def lie(executable):
        plan = executable.copies[0]
        runs = plan.source._replace(**changes)
        return replace(executable, copies=(replace(plan, source=runs), *executable.copies[1:]))

    return lie


def with_costs(**changes):
    def lie(executable):
        costs = replace(executable.analysis.costs, **{k: v(executable) for k, v in changes.items()})
        return replace(executable, analysis=replace(executable.analysis, costs=costs))

    return lie


def with_exchanges(**changes):
    """A lie: the exchanges of steps changed."""

    def lie(executable):
        before = executable.analysis.exchanges
        made = replace(before, **{k: v(before) for k, v in changes.items()})
        return replace(executable, analysis=replace(executable.analysis, exchanges=made))

    return lie


def shorter(exchange):
    """An exchange whose first phase lacks the last tile."""
    phase = exchange.before
    return (
        exchange
        if phase is None
        else replace(exchange, before=replace(phase, received=phase.received[:-1]))
    )


def with_step(kind, **changes):
    def lie(executable):
        steps = list(executable.steps)
        at = next(i for i, step in enumerate(steps) if step.kind.value == kind)
        steps[at] = replace(steps[at], **changes)
        return replace(executable, steps=tuple(steps))

    return lie


def column(*values):
    return np.array(values, np.int64)


FAR = 1 << 40
LIES = {
    "a jump leaves the code": with_code(Opcode.JUMP, 0, FAR),
    "a loop target leaves the code": with_code(Opcode.LOOP_END, 1, -1),
    "a call leaves the code": with_code(Opcode.CALL, 0, 10_000),
    "a branch reads outside": with_code(Opcode.BRANCH_ZERO, 0, FAR),
    "a branch reads before memory": with_code(Opcode.BRANCH_ZERO, 0, -1),
    "a branch reads too much": with_code(Opcode.BRANCH_ZERO, 1, 64),
    "a switch reads outside": with_code(Opcode.SWITCH, 0, FAR),
    "a switch has missing cases": with_code(Opcode.SWITCH, 3, 99),
    "a default leaves the code": with_code(Opcode.SWITCH, 4, FAR),
    "a result is written outside": with_code(Opcode.EXECUTE, 1, FAR),
    "a result is written before memory": with_code(Opcode.EXECUTE, 1, -2),
    "a compute set is missing": with_code(Opcode.EXECUTE, 0, 7),
    "a copy is missing": with_code(Opcode.COPY, 0, -1),
    "a loop counter is missing": with_code(Opcode.LOOP_BEGIN, 0, 5),
    "a stamp is written outside": with_code(Opcode.STAMP, 0, FAR),
    "a stamp is of a missing tile": with_code(Opcode.STAMP, 1, 99),
    "a stamp is since outside": with_code(Opcode.STAMP, 2, FAR),
    "an instruction is unknown": lambda e: replace(e, code=e.code + 99),
    "the code has no end": lambda e: replace(e, code=e.code[:-1], step_of=e.step_of[:-1]),
    "the code is empty": lambda e: replace(e, code=e.code[:0], step_of=e.step_of[:0]),
    "the code is flat": lambda e: replace(e, code=e.code.ravel()),
    "the code is of floats": lambda e: replace(e, code=e.code.astype(np.float64)),
    "steps are missing": lambda e: replace(e, steps=e.steps[:-1]),
    "a step is below -1": lambda e: replace(e, step_of=e.step_of - 5),
    "an entry is missing": lambda e: replace(e, entries=(0, FAR, 0)),
    "entries and names differ": lambda e: replace(e, entries=(0,)),
    "a case leaves the code": lambda e: replace(e, switch_cases=e.switch_cases + FAR),
    "cases are flat": lambda e: replace(e, switch_cases=e.switch_cases.ravel()),
    "memory is too small": lambda e: replace(e, n_arena_bytes=64),
    "memory is negative": lambda e: replace(e, n_arena_bytes=-1),
    "no replicas": lambda e: replace(e, replication_factor=0),
    "the replica index is outside": lambda e: replace(e, replica_index_byte=FAR),
    "no codelets": lambda e: replace(e, codelet_forms=()),
    "a codelet is code": lambda e: replace(e, codelet_forms=('{"language": "sh"}',) * 9),
    "there is no machine": lambda e: replace(e, machine=replace(e.machine, chip_toml="x = [")),
    "the machine has no tiles": lambda e: replace(e, machine=replace(e.machine, tiles_per_ipu=-4)),
    "the machine is a view": lambda e: replace(e, machine=e.host.reads["x"]),
    "offsets are outside": with_table("down", column_plus(0, FAR)),
    "offsets are before memory": with_table("down", column_plus(0, -FAR)),
    "lengths are outside": with_table("work", column_plus(1, FAR)),
    "a column is missing": with_table("down", lambda t: replace(t, columns=t.columns[:-1])),
    "columns are of another type": with_table(
        "down", lambda t: replace(t, columns=tuple(c.astype(np.float32) for c in t.columns))
    ),
    "columns are too short": with_table(
        "work", lambda t: replace(t, columns=tuple(c[:0] for c in t.columns))
    ),
    "a tile is missing": with_table("down", lambda t: replace(t, tile=t.tile + 99)),
    "more rows than columns": with_table("down", lambda t: replace(t, tile=np.zeros(50, np.int32))),
    "a codelet is missing": with_table("down", lambda t: replace(t, codelet=-1)),
    "state is not state": with_table("down", lambda t: replace(t, state_columns=())),
    "a copy leaves memory": with_copy(start=column(FAR)),
    "a copy is uneven": with_copy(count=column(3)),
    "a copy overflows": with_copy(start=column(32), count=column(8), stride=column(1 << 61)),
    "a copy has a negative count": with_copy(count=column(-8)),
    "a copy is of floats": with_copy(start=np.array([32.0])),
    "a copy is of odd items": lambda e: replace(e, copies=(replace(e.copies[0], n_bytes=3),)),
    "a tensor is outside": with_step("PrintTensor", reads=()),
    "a stream is missing": with_step("StreamCopyIn", detail={"handle": "other"}),
    "a stream goes nowhere": with_step("StreamCopyIn", writes=()),
    "a step is of no compute set": with_step("OnTileExecute", compute_set=99),
    "a step is before all compute sets": with_step("OnTileExecute", compute_set=-1),
    "costs are too few": with_costs(sync=lambda e: e.analysis.costs.sync[:1]),
    "costs are of floats": with_costs(compute=lambda e: e.analysis.costs.compute * 1.5),
    "joins are too few": with_costs(joins=lambda e: e.analysis.costs.joins[:0]),
    "a counted step has no compute set": with_costs(
        needs_count=lambda e: np.ones_like(e.analysis.costs.needs_count),
        compute_set_of_step=lambda e: np.full_like(e.analysis.costs.compute_set_of_step, -1),
    ),
    "costs of a compute set are missing": with_costs(
        compute_sets=lambda e: e.analysis.costs.compute_sets[:-1]
    ),
    "costs of a table are missing": with_costs(
        compute_sets=lambda e: tuple(
            replace(cost, tables=cost.tables[1:]) for cost in e.analysis.costs.compute_sets
        )
    ),
    "exchanges are too few": with_exchanges(row_of_step=lambda x: x.row_of_step[:-1]),
    "an exchange is missing": with_exchanges(row_of_step=lambda x: x.row_of_step + 99),
    "an exchange is before all": with_exchanges(row_of_step=lambda x: x.row_of_step - 2),
    "exchanges are of floats": with_exchanges(row_of_step=lambda x: x.row_of_step * 1.5),
    "an exchange of a set is missing": with_exchanges(row_of_set=lambda x: x.row_of_set + 99),
    "there are no exchanges": with_exchanges(distinct=lambda x: ()),
    "uses are too few": with_exchanges(n_uses=lambda x: x.n_uses[:0]),
    "an exchange lacks tiles": with_exchanges(distinct=lambda x: tuple(map(shorter, x.distinct))),
    "there is no analysis": lambda e: replace(e, analysis=None),
    "initial values do not fit": lambda e: replace(
        e, initial_values=(replace(e.initial_values[0], values=np.zeros(3, np.float32)),)
    ),
    "variables end before they begin": lambda e: replace(
        e, variables=replace(e.variables, end_bytes=e.variables.base_bytes - 1)
    ),
    "variables have no names": lambda e: replace(e, variables=replace(e.variables, names=())),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_inconsistent_contents_are_refused(executable, tmp_path, lie):
    """A file that is intact but refers to what does not exist is refused before anything runs."""
    path = tmp_path / "lie.tremula"
    LIES[lie](executable).save(str(path))
    with pytest.raises(FileLoadError) as caught:
        Executable.load(str(path))
    text = str(caught.value)
    assert "lie.tremula' is inconsistent: " in text
    assert "try: compile the program again" in text


def places(tree, at=()):
    """Paths to all numbers, texts and lists of a JSON tree."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from places(value, (*at, key))
    elif isinstance(tree, list):
        yield at
        for i, value in enumerate(tree):
            yield from places(value, (*at, i))
    else:
        yield at


STRANGE = [
    None,
    True,
    -1,
    0,
    7,
    1 << 70,
    1.5,
    "",
    "text",
    [],
    [[]],
    {},
    {"$array": 0},
    {"$": "View"},
]


@pytest.mark.slow
def test_strange_contents_never_crash_the_reader(saved, tmp_path):
    """Whatever a header says instead, the file loads or FileLoadError is raised; both occur."""
    n_header = int.from_bytes(saved[12:20], "little")
    header = json.loads(saved[PREFIX_BYTES : PREFIX_BYTES + n_header])
    payload = saved[PREFIX_BYTES + n_header :]
    n_loaded, n_rejected = 0, 0

    @settings(max_examples=n_examples(150))
    @given(st.data())
    def load_changed(data):
        nonlocal n_loaded, n_rejected
        changed = copy.deepcopy(header)
        for _ in range(data.draw(st.integers(1, 2))):
            *path, last = data.draw(st.sampled_from(sorted(places(changed), key=str)))
            node = changed
            for key in path:
                node = node[key]
            node[last] = copy.deepcopy(data.draw(st.sampled_from(STRANGE)))
        try:
            load_bytes(tmp_path, rehashed(json.dumps(changed).encode(), payload))
            n_loaded += 1
        except FileLoadError:
            n_rejected += 1

    load_changed()
    assert min(n_loaded, n_rejected) > 0, (n_loaded, n_rejected)


# -- writing ---------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(executable, saved, tmp_path, monkeypatch):
    """If writing fails half way, the old file is whole and no part of the new one is left."""
    path = tmp_path / "kept.tremula"
    path.write_bytes(saved)

    def no_space(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, no_space)
            with pytest.raises(OSError, match="No space left"):
                executable.save(str(path))
        assert path.read_bytes() == saved
        assert [p.name for p in tmp_path.iterdir()] == ["kept.tremula"]


def test_what_cannot_be_written_leaves_nothing(executable, tmp_path):
    """A value that has no written form raises before any file is touched."""
    with pytest.raises(TypeError, match="cannot be written to a file"):
        codec.write_record(tmp_path / "new.tremula", "executable", {"a": object()})
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made(executable, tmp_path):
    """save makes the folders of its path."""
    path = tmp_path / "a" / "b" / "c.tremula"
    executable.save(str(path))
    assert Executable.load(str(path)).names == executable.names


def test_a_system_of_ones_own_is_kept(tmp_path):
    """An executable knows the system it was compiled for; more chips than it has are refused."""
    mine = system("pod16").replace(name="Mine", gateway_link_gbytes_per_s=50.0)
    graph = Graph(IPUModel(mine, n_ipus=2, tiles_per_ipu=2).create_device())
    here, there = (graph.add_variable(FLOAT, [4], str(i), mapping=2 * i) for i in range(2))
    executable = Engine(graph, Sequence([Copy(here, there)])).executable
    executable.save(str(tmp_path / "own.exe"))
    again = Executable.load(str(tmp_path / "own.exe"))
    assert again.target.system == mine
    assert again.machine.system_name == "Mine"
    with pytest.raises(InvalidMachineModel, match="Mine has 16 IPUs, not 17"):
        IPUModel(mine, n_ipus=17).create_target()
