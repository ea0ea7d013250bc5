"""The engine: host access, streams, remote buffers, printing, aborts, clock, replicas, stopping."""

import io
import threading

import numpy as np
import pytest

from tests.engine.codelets import Blend, Collect, Countdown, Mark
from tremula import (
    BOOL,
    FLOAT,
    HALF,
    INT,
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    Abort,
    AbortOnCondition,
    Block,
    Call,
    Copy,
    CrossReplicaCopy,
    Engine,
    ErrorProgram,
    Execute,
    Graph,
    If,
    IPUModel,
    Loop,
    PrintTensor,
    PrintTensorFmt,
    Repeat,
    RepeatWhileTrue,
    ReplicatedStreamMode,
    Sequence,
    Switch,
    Sync,
    SyncType,
    compile_graph,
    cycle_count,
    cycle_stamp,
    errors,
    get_hw_seeds,
    set_floating_point_behaviour,
    set_hw_seeds,
)

ONE_THREAD = {"tremula.threads": 1}


def new_graph(n_ipus=1, replicas=1, tiles=4):
    return Graph(IPUModel("ipu2", n_ipus=n_ipus, tiles_per_ipu=tiles).create_device(), replicas)


def variable(graph, type, shape, name, value=None, tile=0):
    """A mapped variable with host handles of its own name."""
    tensor = graph.add_variable(type, shape, name, mapping=tile)
    if value is not None:
        graph.set_initial_value(tensor, value)
    graph.create_host_read(name, tensor)
    graph.create_host_write(name, tensor)
    return tensor


def loaded(graph, programs, **options):
    return Engine(graph, programs, ONE_THREAD | options).load()


def blend_set(graph, x, y, shift, tile=0):
    """A compute set of one vertex: y = x / 2 + shift."""
    cs = graph.add_compute_set("blend")
    graph.add_vertex(cs, Blend, {"x": x, "y": y, "shift": shift}, tile=tile)
    return cs


def adder(graph, total, row, tile=0):
    """A program that adds the elements of row to total."""
    cs = graph.add_compute_set("add")
    graph.add_vertex(cs, Collect, {"rows": [row], "total": total}, tile=tile)
    return Execute(cs)


# -- host access -----------------------------------------------------------------------------------


def test_what_the_host_writes_it_reads():
    """write_tensor and read_tensor go through any view, in its own order."""
    graph = new_graph()
    x = graph.add_variable(FLOAT, [2, 3], "x", mapping=1)
    graph.create_host_write("in", x.transpose())
    graph.create_host_read("out", x)
    graph.create_host_read("repeated", x[0].expand([0]).broadcast(2))
    engine = loaded(graph, Sequence())
    engine.write_tensor("in", np.arange(6).reshape(3, 2))
    assert engine.read_tensor("out").tolist() == [[0, 2, 4], [1, 3, 5]]
    assert engine.read_tensor("repeated").tolist() == [[0, 2, 4], [0, 2, 4]]


def test_what_is_read_is_a_copy():
    """Changing an array that was read does not change the device."""
    graph = new_graph()
    variable(graph, FLOAT, [2], "x", 1)
    engine = loaded(graph, Sequence())
    engine.read_tensor("x")[:] = 9
    assert engine.read_tensor("x").tolist() == [1, 1]


@pytest.mark.parametrize(
    ("handle", "data", "text"),
    [
        ("y", [1.0], "no host write 'y'.\n  try: known names: x"),
        ("x", [1.0], "host write 'x' takes 4 elements, got 1 (shape [1])."),
        ("x", ["a"] * 4, "host write 'x' has type FLOAT, got <U1."),
    ],
)
def test_wrong_writes_are_refused(handle, data, text):
    """Unknown handles, sizes and types that do not fit are errors that say so."""
    graph = new_graph()
    variable(graph, FLOAT, [4], "x")
    engine = loaded(graph, Sequence())
    with pytest.raises(errors.StreamConnectionError) as caught:
        engine.write_tensor(handle, data)
    assert text in str(caught.value)


def test_nothing_works_before_load():
    """Reading, writing and running need load() first, and the error says so."""
    graph = new_graph()
    variable(graph, FLOAT, [1], "x")
    engine = Engine(graph, Sequence(), ONE_THREAD)
    for act in (
        engine.run,
        lambda: engine.read_tensor("x"),
        lambda: engine.write_tensor("x", [1.0]),
    ):
        with pytest.raises(errors.TensorIoStateError, match="the engine is not loaded"):
            act()


def test_programs_by_index_and_name():
    """Programs run by position or name; unknown ones are errors."""
    graph = new_graph()
    x = variable(graph, INT, [], "x", 0)
    one, two = (graph.add_constant(INT, [], v) for v in (1, 2))
    engine = loaded(graph, {"first": Copy(one, x), "second": Copy(two, x)})
    engine.run(1)
    assert engine.read_tensor("x") == 2
    engine.run("first")
    assert engine.read_tensor("x") == 1
    with pytest.raises(errors.ControlProgramError, match="did you mean 'second'"):
        engine.run("secnd")
    with pytest.raises(errors.ControlProgramError, match="program 2 does not exist: there are 2"):
        engine.run(2)


def test_state_persists_until_load():
    """Variables and vertex state survive run; load brings back initial values."""
    graph = new_graph()
    flags = variable(graph, BOOL, [3], "flags", True)
    data = variable(graph, UNSIGNED_CHAR, [3], "data", [1, 2, 3])
    cs = graph.add_compute_set()
    graph.add_vertex(cs, Mark, {"bytes": data, "flags": flags, "calls": 0}, tile=0)
    engine = loaded(graph, Execute(cs))
    seen = []
    for _ in range(2):
        engine.run()
        seen.append(engine.read_tensor("flags").tolist())
    engine.load()
    seen.append(engine.read_tensor("flags").tolist())
    engine.run()
    seen.append(engine.read_tensor("flags").tolist())
    first, second = [False, True, True], [False, False, True]
    assert seen == [first, second, [True, True, True], first]


def test_initial_values_and_constants():
    """Initial values may be set through views, the last one wins; constants hold theirs."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2, 3], "x", 1)
    graph.set_initial_value(x[:, 1], [7, 8])
    graph.create_host_read("c", graph.add_constant(HALF, [2, 2], [[1, 2], [3, 4]]))
    graph.create_host_read("zero", graph.add_variable(FLOAT, [2], mapping=0))
    engine = loaded(graph, Sequence())
    assert engine.read_tensor("x").tolist() == [[1, 7, 1], [1, 8, 1]]
    assert engine.read_tensor("c").tolist() == [[1, 2], [3, 4]]
    assert engine.read_tensor("c").dtype == np.float16


def test_a_compiled_executable_runs():
    """Engine takes an Executable in place of a graph, several times independently."""
    graph = new_graph()
    x = variable(graph, FLOAT, [4], "x", 2)
    executable = compile_graph(graph, Execute(blend_set(graph, graph.clone(x), x, 1.0)))
    first, second = Engine(executable).load(), Engine(executable).load()
    first.run()
    assert first.read_tensor("x").tolist() == [1, 1, 1, 1]
    assert second.read_tensor("x").tolist() == [2, 2, 2, 2]


def test_progress_is_reported():
    """The progress function sees each pass and ends at the total."""
    graph = new_graph()
    seen = []
    Engine(graph, Sequence(), progress=lambda step, total: seen.append((step, total)))
    assert [step for step, _ in seen] == list(range(1, seen[-1][1] + 1))


# -- streams ---------------------------------------------------------------------------------------


def test_ring_buffers_wrap():
    """Successive copies take successive chunks and start over at the end, across runs."""
    graph = new_graph()
    x = variable(graph, INT, [2], "x")
    total = variable(graph, INT, [], "total", 0)
    source = graph.add_host_to_device_fifo("in", INT, 2)
    sink = graph.add_device_to_host_fifo("out", INT, 2)
    step = Sequence(Copy(source, x), adder(graph, total, x), Copy(x, sink))
    engine = Engine(graph, Repeat(2, step), ONE_THREAD)
    received = np.zeros(4, np.int32)
    engine.connect_stream("in", np.arange(6, dtype=np.int32))
    engine.connect_stream("out", received)
    engine.load().run()
    assert received.tolist() == [0, 1, 2, 3]
    engine.run()
    assert received.tolist() == [4, 5, 0, 1]
    assert engine.read_tensor("total") == sum(range(6)) + 1
    engine.load().run()
    assert received.tolist() == [0, 1, 2, 3]
    assert engine.list_streams() == ["in", "out"]


def test_callbacks_give_and_take():
    """A callback fills each chunk in, or receives it, in program order."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    source = graph.add_host_to_device_fifo("in", FLOAT, 2)
    sink = graph.add_device_to_host_fifo("out", FLOAT, 2)
    engine = Engine(graph, Repeat(3, Sequence(Copy(source, x), Copy(x, sink))), ONE_THREAD)
    order = []

    def fill(buffer):
        order.append("fill")
        buffer[:] = len(order)

    engine.connect_stream_to_callback("in", fill)
    engine.connect_stream_to_callback("out", lambda buffer: order.append(buffer.tolist()))
    engine.load().run()
    assert order == ["fill", [1, 1], "fill", [3, 3], "fill", [5, 5]]


class Recorder:
    """A stream callback that writes down what is asked of it."""

    def __init__(self, available=True):
        self.calls, self.next, self.available = [], 0, available

    def fetch(self, buffer):
        self.calls.append("fetch")
        self._fill(buffer)

    def prefetch(self, buffer):
        self.calls.append("prefetch")
        if self.available:
            self._fill(buffer)
        return self.available

    def complete(self):
        self.calls.append("complete")

    def invalidate_prefetched(self):
        self.calls.append("invalidate")

    def _fill(self, buffer):
        buffer[:] = self.next
        self.next += 1


def prefetching_engine(recorder):
    graph = new_graph()
    x = variable(graph, INT, [1], "x")
    total = variable(graph, INT, [], "total", 0)
    source = graph.add_host_to_device_fifo("in", INT, 1)
    program = Repeat(3, Sequence(Copy(source, x), adder(graph, total, x)))
    engine = Engine(graph, program, ONE_THREAD | {"exchange.enablePrefetch": True})
    engine.connect_stream_to_callback("in", recorder)
    return engine.load()


def test_prefetch_runs_ahead():
    """After a chunk is used the next is prefetched; load invalidates what is left over."""
    recorder = Recorder()
    engine = prefetching_engine(recorder)
    engine.run()
    assert recorder.calls[:4] == ["fetch", "complete", "prefetch", "complete"]
    assert engine.read_tensor("total") == 0 + 1 + 2
    engine.load()
    assert recorder.calls[-1] == "invalidate"
    assert recorder.calls.count("fetch") == 1
    assert recorder.calls.count("complete") == 3


def test_prefetch_may_have_nothing():
    """A prefetch that returns False is followed by a fetch when the chunk is needed."""
    recorder = Recorder(available=False)
    engine = prefetching_engine(recorder)
    engine.run()
    assert engine.read_tensor("total") == 0 + 1 + 2
    assert recorder.calls.count("fetch") == 3


def test_without_the_option_nothing_is_prefetched():
    """exchange.enablePrefetch is off by default: only fetch and complete are called."""
    graph = new_graph()
    x = variable(graph, INT, [1], "x")
    source = graph.add_host_to_device_fifo("in", INT, 1)
    engine = Engine(graph, Repeat(2, Copy(source, x)), ONE_THREAD)
    recorder = Recorder()
    engine.connect_stream_to_callback("in", recorder)
    engine.load().run()
    assert recorder.calls == ["fetch", "complete"] * 2


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            np.zeros(4, np.float64),
            "stream 's' needs a contiguous NumPy array of float32, got float64.",
        ),
        ([1.0, 2.0], "stream 's' needs a contiguous NumPy array of float32, got list."),
        (np.zeros(5, np.float32), "moves 2 elements at a time; 5 is not a multiple of that."),
        (np.zeros(0, np.float32), "0 is not a multiple of that."),
        (np.zeros(8, np.float32)[::2], "needs a contiguous NumPy array"),
    ],
)
def test_streams_refuse_arrays_that_do_not_fit(data, text):
    """A ring buffer must be contiguous, of the stream's type, and whole chunks."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    engine = Engine(graph, Copy(graph.add_host_to_device_fifo("s", FLOAT, 2), x), ONE_THREAD)
    with pytest.raises(errors.StreamConnectionError) as caught:
        engine.connect_stream("s", data)
    assert text in str(caught.value)
    assert "try:" in str(caught.value)


def test_stream_errors_say_what_is_missing():
    """Unconnected and unknown streams, read-only sinks and uncallable callbacks are errors."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    engine = loaded(graph, Copy(x, graph.add_device_to_host_fifo("out", FLOAT, 2)))
    with pytest.raises(
        errors.StreamConnectionError, match="stream 'out' is used but not connected"
    ):
        engine.run()
    with pytest.raises(
        errors.StreamConnectionError, match=r"no stream 'uot'\.\n  try: did you mean"
    ):
        engine.connect_stream("uot", np.zeros(2, np.float32))
    frozen = np.zeros(2, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(errors.StreamConnectionError, match="which is read-only"):
        engine.connect_stream("out", frozen)
    with pytest.raises(errors.StreamConnectionError, match="got int, which cannot be called"):
        engine.connect_stream_to_callback("out", 3)


def test_exceptions_of_callbacks_reach_the_caller():
    """What host code raises comes out of run unchanged, and the engine can run again."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    engine = loaded(graph, Copy(x, graph.add_device_to_host_fifo("out", FLOAT, 2)))

    def fail(_):
        raise KeyError("mine")

    engine.connect_stream_to_callback("out", fail)
    with pytest.raises(KeyError, match="mine"):
        engine.run()
    engine.connect_stream_to_callback("out", lambda buffer: None)
    engine.run()


# -- remote buffers, host functions, printing ------------------------------------------------------


def test_remote_buffers_move_rows():
    """Rows go to and from the device by an offset tensor, one or several at a time."""
    graph = new_graph()
    x = variable(graph, INT, [2, 3], "x")
    rows = variable(graph, UNSIGNED_INT, [2], "rows")
    buffer = graph.add_remote_buffer("store", INT, 3, repeats=4)
    one = graph.add_remote_buffer("one", INT, 3)
    engine = loaded(
        graph,
        [Copy(buffer, x, rows), Copy(x, buffer, rows), Sequence(Copy(x[1], one), Copy(one, x[0]))],
    )
    for row in range(4):
        engine.copy_to_remote_buffer(np.arange(3) + 10 * row, "store", row)
    engine.write_tensor("rows", np.array([3, 1], np.uint32))
    engine.run(0)
    assert engine.read_tensor("x").tolist() == [[30, 31, 32], [10, 11, 12]]
    engine.write_tensor("rows", np.array([0, 2], np.uint32))
    engine.run(1)
    assert engine.copy_from_remote_buffer("store", 2).tolist() == [10, 11, 12]
    assert engine.copy_from_remote_buffer("store", 3).tolist() == [30, 31, 32]
    engine.run(2)
    assert engine.read_tensor("x").tolist() == [[10, 11, 12]] * 2
    engine.write_tensor("rows", np.array([0, 4], np.uint32))
    with pytest.raises(
        errors.RuntimeFailure, match="row 4 of remote buffer 'store' does not exist"
    ):
        engine.run(0)
    with pytest.raises(errors.StreamConnectionError, match="has 4 rows, row 9 does not exist"):
        engine.copy_from_remote_buffer("store", 9)


def test_host_functions_compute_with_tensors():
    """Call of a host function passes inputs and stores what it puts into outputs."""
    graph = new_graph()
    x = variable(graph, FLOAT, [4], "x", [1, 2, 3, 4])
    n = variable(graph, INT, [1], "n", 0)
    function = graph.add_host_function("sum", [(FLOAT, 2)], [(INT, 1)])
    engine = loaded(graph, Call(function, [x[::2]], [n]))
    with pytest.raises(errors.StreamConnectionError, match="host function 'sum' is called but not"):
        engine.run()

    def add_up(inputs, outputs):
        outputs[0][0] = inputs[0].sum()

    engine.connect_host_function("sum", add_up)
    engine.run()
    assert engine.read_tensor("n").tolist() == [4]


def test_print_tensor_prints():
    """PrintTensor writes title and values to the engine's stream, in program order."""
    graph = new_graph()
    x = variable(graph, INT, [3], "x", [1, -2, 3])
    fmt = PrintTensorFmt(open_bracket="(", close_bracket=")")
    engine = loaded(
        graph, Sequence(PrintTensor("x", x), PrintTensor(x[1], fmt), PrintTensor(x, fmt))
    )
    engine.print_stream = io.StringIO()
    engine.run()
    assert engine.print_stream.getvalue() == "x: [ 1 -2  3]\n-2\n( 1 -2  3)\n"


# -- control ---------------------------------------------------------------------------------------


def test_aborts_raise_with_their_message():
    """Abort, AbortOnCondition and ErrorProgram stop the run with their text and line."""
    graph = new_graph()
    flag = variable(graph, BOOL, [], "flag", False)
    x = variable(graph, INT, [3], "x", [1, 2, 3])
    control = variable(graph, INT, [], "control", 5)
    programs = {
        "plain": Abort(),
        "told": Abort("out of luck"),
        "maybe": Sequence(AbortOnCondition(flag, "flag is set"), Copy(x[0], x[1])),
        "values": ErrorProgram("bad values:", x),
        "switch": Switch.with_bounds_checking(control, [(1, Sequence()), (2, Sequence())]),
    }
    engine = loaded(graph, programs)
    engine.run("maybe")
    engine.write_tensor("flag", True)
    expected = {
        "plain": "the program was aborted",
        "told": "out of luck",
        "maybe": "flag is set",
        "values": "bad values: [1 1 3]",
        "switch": "Switch: no case for the control value; cases are [1, 2]",
    }
    for name, text in expected.items():
        with pytest.raises(errors.ApplicationRuntimeError) as caught:
            engine.run(name)
        assert text in str(caught.value)
        assert "test_engine.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("type", "value", "case"),
    [
        (UNSIGNED_CHAR, 200, 200),
        (INT, -3, -3),
        (UNSIGNED_INT, 2**32 - 1, 2**32 - 1),
        (BOOL, True, 1),
    ],
)
def test_switch_on_any_type(type, value, case):
    """Cases match controls of signed and unsigned types, at the ends of their ranges."""
    graph = new_graph()
    control = variable(graph, type, [], "control", value)
    x = variable(graph, INT, [], "x", 0)
    one, two = (graph.add_constant(INT, [], v) for v in (1, 2))
    loaded_engine = loaded(graph, Switch(control, {case: Copy(one, x), 0: Copy(two, x)}))
    loaded_engine.run()
    assert loaded_engine.read_tensor("x") == 1


def test_functions_share_code_and_nest():
    """A function runs wherever it is called, also from functions, and its code exists once."""
    graph = new_graph()
    total = variable(graph, INT, [], "total", 0)
    one = graph.add_constant(INT, [1], 1)
    inner = graph.add_function(adder(graph, total, one), "inner")
    outer = graph.add_function(Sequence(Call(inner), Repeat(2, Call(inner))), "outer")
    engine = loaded(graph, Sequence(Call(outer), Call(inner), Repeat(2, Call(outer))))
    engine.run()
    assert engine.read_tensor("total") == 3 + 1 + 2 * 3
    assert sum(step.compute_set >= 0 for step in engine.executable.steps) == 1


def test_loop_ends_when_told():
    """Loop runs until another thread calls stop(), and the program then goes on."""
    graph = new_graph()
    total = variable(graph, INT, [], "total", 0)
    done = variable(graph, BOOL, [], "done", False)
    one = graph.add_constant(INT, [1], 1)
    yes = graph.add_constant(BOOL, [], True)
    engine = loaded(graph, Sequence(Loop(adder(graph, total, one)), Copy(yes, done)))
    runner = threading.Thread(target=engine.run)
    runner.start()
    while runner.is_alive() and engine.read_tensor("total") == 0:
        pass  # wait for the loop itself, however long compiling takes
    engine.stop()
    runner.join(timeout=60)
    assert not runner.is_alive()
    assert engine.read_tensor("done")
    assert engine.read_tensor("total") > 0


def test_a_callback_can_stop_a_loop():
    """stop() from a callback ends the loop after the body that called it."""
    graph = new_graph()
    x = variable(graph, INT, [1], "x", 0)
    seen = []
    engine = loaded(graph, Loop(Copy(x, graph.add_device_to_host_fifo("out", INT, 1))))

    def count(_):
        seen.append(1)
        if len(seen) == 5:
            engine.stop()

    engine.connect_stream_to_callback("out", count)
    engine.run()
    assert len(seen) == 5


def test_stop_before_run_is_harmless():
    """stop() without a running program does nothing."""
    graph = new_graph()
    total = variable(graph, INT, [], "total", 0)
    engine = loaded(graph, adder(graph, total, graph.add_constant(INT, [1], 1)))
    engine.stop()
    engine.run()
    assert engine.read_tensor("total") == 1


def test_long_loops_hear_interrupts(monkeypatch):
    """Ctrl-C ends even a loop with nothing in it: native code comes back regularly."""
    from tremula.runtime import interpreter

    graph = new_graph()
    engine = loaded(graph, Repeat(10**15, Sequence()))
    native = interpreter.interpret
    returns = []

    def interrupted(*arguments):
        reason = native(*arguments)
        returns.append(reason)
        if len(returns) == 20:
            raise KeyboardInterrupt
        return reason

    monkeypatch.setattr(interpreter, "interpret", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert set(returns) == {interpreter.BUDGET_SPENT}


@pytest.mark.parametrize("n_threads", [1, 2])
def test_threads_change_nothing(n_threads):
    """Large tables and large copies, which are split over threads, give the same values."""
    graph = new_graph(tiles=64)
    x, y, z = (graph.add_variable(FLOAT, [256, 512], name, mapping="linear") for name in "xyz")
    start = np.arange(256 * 512, dtype=np.float32).reshape(256, 512) % 1021
    graph.set_initial_value(x, start)
    graph.create_host_read("z", z)
    cs = graph.add_compute_set("blend")
    fields = {"x": x, "y": y, "shift": 1.0}
    graph.add_vertices(cs, Blend, fields, tiles=np.arange(256) % 64)
    engine = loaded(
        graph,
        Sequence(Execute(cs), Copy(y.transpose(), z)),
        **{"tremula.threads": n_threads},
    )
    engine.run()
    assert np.array_equal(engine.read_tensor("z").ravel(), (start / 2 + 1).T.ravel())


# -- clock -----------------------------------------------------------------------------------------


def read_counter(engine, handle):
    low, high = engine.read_tensor(handle).tolist()
    return low + (high << 32)


def test_cycle_counts_are_exact_for_loops():
    """cycle_count grows by the same amount per iteration, also when data decides how many."""
    graph = new_graph()
    n = variable(graph, INT, [], "n", 0)
    go = variable(graph, BOOL, [], "go", False)
    cs = graph.add_compute_set()
    graph.add_vertex(cs, Countdown, {"n": n, "go": go, "inverted": 0}, tile=0)
    body = Sequence(Sync(SyncType.INTERNAL))
    counted = Sequence(RepeatWhileTrue(Execute(cs), go, body))
    graph.create_host_read("count", cycle_count(graph, counted, 0))
    engine = loaded(graph, counted)
    counts = []
    for start in (2, 3, 4, 10):
        engine.write_tensor("n", start)
        engine.run()
        counts.append(read_counter(engine, "count"))
    steps = np.diff(counts)
    assert steps[0] == steps[1] > 0
    assert steps[2] == 6 * steps[0]


def test_cycle_stamps_ascend_and_go_on_between_runs():
    """Stamps read one clock that starts at load and never goes back."""
    graph = new_graph()
    x, y = (variable(graph, FLOAT, [4], name, 1) for name in "xy")
    program = Sequence()
    graph.create_host_read("before", cycle_stamp(graph, program, 1))
    program.add(Execute(blend_set(graph, x, y, 0.0)))
    graph.create_host_read("after", cycle_stamp(graph, program, 1))
    engine = loaded(graph, program)
    stamps = []
    for _ in range(2):
        engine.run()
        stamps += [read_counter(engine, "before"), read_counter(engine, "after")]
    assert stamps == sorted(set(stamps))
    assert stamps[3] - stamps[2] == stamps[1] - stamps[0]
    assert engine.clock.total_cycles >= stamps[-1]
    engine.load()
    assert engine.clock.total_cycles == 0


def test_hw_seeds_round_trip():
    """Seeds read from the machine can be set again; each worker has its own."""
    graph = new_graph(tiles=2)
    save = Sequence()
    seeds = get_hw_seeds(graph, save)
    graph.create_host_read("seeds", seeds)
    graph.create_host_write("seeds", seeds)
    restore = Sequence()
    set_hw_seeds(graph, seeds, restore)
    engine = loaded(graph, [save, restore])
    engine.run(0)
    first = engine.read_tensor("seeds")
    assert first.shape == (2, 6, 4)
    assert len(np.unique(first.reshape(-1, 4), axis=0)) == 12
    engine.write_tensor("seeds", first[::-1] + 1)
    engine.run(1)
    engine.run(0)
    assert np.array_equal(engine.read_tensor("seeds"), first[::-1] + 1)


@pytest.mark.parametrize(
    ("value", "flags", "text"),
    [
        (np.nan, {}, "floating-point invalid operation: field Blend.y wrote nan"),
        (np.inf, {}, "floating-point overflow or division by zero: field Blend.y wrote inf"),
        (np.nan, {"inv": False}, None),
        (np.inf, {"div0": False, "oflo": False}, None),
        (1.0, {}, None),
    ],
)
def test_floating_point_exceptions(value, flags, text):
    """Results that are not finite stop the program if their exception is on, naming the element."""
    graph = new_graph()
    x = variable(graph, FLOAT, [3], "x", [1, value, 1])
    y = variable(graph, FLOAT, [3], "y")
    program = Sequence()
    set_floating_point_behaviour(graph, program, **flags)
    program.add(Execute(blend_set(graph, x, y, 0.0)))
    engine = loaded(graph, program)
    if text is None:
        engine.run()
        return
    with pytest.raises(errors.RuntimeFailure) as caught:
        engine.run()
    assert f"{text} to element 1 of variable 'y' in compute set 'blend'." in str(caught.value)


def test_the_option_turns_floating_point_exceptions_on():
    """debug.floatPointOpException stops on NaN without any program step."""
    graph = new_graph()
    x = variable(graph, FLOAT, [1], "x", np.nan)
    y = variable(graph, FLOAT, [1], "y")
    engine = loaded(
        graph, Execute(blend_set(graph, x, y, 0.0)), **{"debug.floatPointOpException": True}
    )
    with pytest.raises(errors.RuntimeFailure, match="invalid operation"):
        engine.run()


# -- replicas --------------------------------------------------------------------------------------


def test_replicas_have_their_own_memory():
    """Each replica computes on its own data; the replication index tells them apart."""
    graph = new_graph(n_ipus=3, replicas=3)
    index = graph.add_replication_index_constant()
    total = variable(graph, INT, [], "total", 10)
    engine = loaded(graph, adder(graph, total, index.reinterpret(INT).reshape([1])))
    engine.run()
    assert [int(engine.read_tensor("total", replica=r)) for r in range(3)] == [10, 11, 12]
    engine.write_tensor("total", 5)
    engine.write_tensor("total", 7, replica=1)
    assert [int(engine.read_tensor("total", replica=r)) for r in range(3)] == [5, 7, 5]


def test_replicas_have_their_own_vertex_state():
    """State of vertices is kept per replica."""
    graph = new_graph(n_ipus=2, replicas=2)
    flags = variable(graph, BOOL, [1], "flags")
    data = variable(graph, UNSIGNED_CHAR, [1], "data", 2)
    cs = graph.add_compute_set()
    graph.add_vertex(cs, Mark, {"bytes": data, "flags": flags, "calls": 0}, tile=0)
    engine = loaded(graph, Execute(cs))
    seen = []
    for _ in range(2):
        engine.run()
        seen.append([bool(engine.read_tensor("flags", replica=r)) for r in range(2)])
    assert seen == [[True, True], [False, False]]


def test_cross_replica_copy_permutes():
    """CrossReplicaCopy sends each replica's tensor where the map says, all at once."""
    graph = new_graph(n_ipus=3, replicas=3)
    x = variable(graph, INT, [2], "x")
    engine = loaded(graph, CrossReplicaCopy(x, x, {0: 1, 1: 2, 2: 0}))
    for r in range(3):
        engine.write_tensor("x", [r, 10 * r], replica=r)
    engine.run()
    assert [engine.read_tensor("x", replica=r).tolist() for r in range(3)] == [
        [2, 20],
        [0, 0],
        [1, 10],
    ]


def test_replicated_streams():
    """REPLICATE takes a chunk per replica, BROADCAST one for all; replicas may have own buffers."""
    graph = new_graph(n_ipus=2, replicas=2)
    x, y = (variable(graph, INT, [2], name) for name in "xy")
    each = graph.add_host_to_device_fifo("each", INT, 2)
    same = graph.add_host_to_device_fifo("same", INT, 2, ReplicatedStreamMode.BROADCAST)
    engine = Engine(graph, Sequence(Copy(each, x), Copy(same, y)), ONE_THREAD)
    for r in range(2):
        engine.connect_stream("each", np.array([r, r], np.int32), replica=r)
    engine.connect_stream("same", np.array([7, 8, 9, 10], np.int32))
    engine.load().run()
    assert [engine.read_tensor("x", replica=r).tolist() for r in range(2)] == [[0, 0], [1, 1]]
    assert [engine.read_tensor("y", replica=r).tolist() for r in range(2)] == [[7, 8]] * 2
    engine.run()
    assert [engine.read_tensor("y", replica=r).tolist() for r in range(2)] == [[9, 10]] * 2


def test_replicas_must_agree_about_control_flow():
    """A predicate that differs between replicas is an error that names the program."""
    graph = new_graph(n_ipus=2, replicas=2)
    flag = variable(graph, BOOL, [], "flag", False)
    engine = loaded(graph, If(flag, Sequence(Sync())))
    engine.run()
    engine.write_tensor("flag", True, replica=1)
    with pytest.raises(errors.GraphReplicationError) as caught:
        engine.run()
    assert "If: the replicas disagree about the predicate." in str(caught.value)
    assert "test_engine.py:" in str(caught.value)


def test_replicas_that_do_not_exist():
    """Naming a replica that is not there is an error."""
    graph = new_graph(n_ipus=2, replicas=2)
    variable(graph, INT, [], "x", 0)
    graph.add_remote_buffer("store", INT, 1)
    stream = graph.add_host_to_device_fifo("in", INT, 1)
    engine = loaded(graph, Sequence())
    for act in (
        lambda: engine.read_tensor("x", replica=2),
        lambda: engine.write_tensor("x", 1, replica=2),
        lambda: engine.copy_to_remote_buffer([1], "store", replica=2),
        lambda: engine.connect_stream(stream.handle, np.zeros(1, np.int32), replica=2),
    ):
        with pytest.raises(
            errors.GraphReplicationError, match="replica 2 does not exist: the graph"
        ):
            act()


def test_printing_names_the_replica():
    """PrintTensor of a replicated graph prints every replica with its number."""
    graph = new_graph(n_ipus=2, replicas=2)
    x = variable(graph, INT, [], "x", 4)
    engine = loaded(graph, Block(PrintTensor("x", x)))
    engine.print_stream = io.StringIO()
    engine.run()
    assert engine.print_stream.getvalue() == "x[0]: 4\nx[1]: 4\n"


def test_load_checks_the_device():
    """A program is refused by a device with another number of IPUs or another architecture."""
    graph = new_graph(n_ipus=2, replicas=2)
    engine = Engine(graph, Sequence(), ONE_THREAD)
    engine.load(IPUModel("ipu2", n_ipus=2).create_device())
    for model in (IPUModel("ipu2"), IPUModel("ipu1", n_ipus=2)):
        with pytest.raises(errors.GraphReplicationError, match="was compiled for 2 IPUs of ipu2"):
            engine.load(model.create_device())
