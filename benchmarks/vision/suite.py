"""The vision figures: writing reports and asking them questions."""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Suite

SUITE = Suite("vision")
N_TILES = 1472
N_STEPS = 6_800  # 10⁷ cells of steps × tiles
N_CHIPS = 64
N_MUTATIONS = 10_000  # half of them of a report, half of a trace
N_HOSTILE = 2_000  # sealed again, so that all of them are read
_N_ROUNDS = 3


@SUITE.measurement("report")
def report() -> Iterator[Figure]:
    """Writing a report of 10⁷ cells, with compute, exchange and live bytes of each; questions."""
    from tests.vision.sample_reports import long_executable
    from tremula.runtime.forecast import forecast
    from tremula.vision.report.write import write_report

    executable = long_executable(N_STEPS, N_TILES)
    ran = forecast(executable)
    with tempfile.TemporaryDirectory() as folder:
        times, path = [], Path(folder, "profile.pop")
        for _ in range(_N_ROUNDS):
            started = time.perf_counter()
            write_report(path, executable, ran, keeps_executable=False)
            times.append(time.perf_counter() - started)
        yield Figure.of("report-write-seconds", min(times), "s", "<= 4")
        yield Figure.of("report-size", path.stat().st_size / 1e6, "MB", "<= 20")
        yield from _questions(path)


def _questions(path: Path) -> Iterator[Figure]:
    """From opening the file to the answer, and once it is open."""
    import pva

    first, later = [], []
    for tile in range(0, N_TILES, N_TILES // 8):
        started = time.perf_counter()
        opened = pva.openReport(path)
        opened.compilation.largestLiveAtPeak(tile, 10)
        first.append(time.perf_counter() - started)
        started = time.perf_counter()
        opened.compilation.largestLiveAtPeak((tile + 1) % N_TILES, 10)
        later.append(time.perf_counter() - started)
        opened.reader.close()
    yield Figure.of("pva-largest-at-peak", 1e3 * statistics.median(first), "ms", "<= 50")
    yield Figure.of("pva-largest-at-peak-again", 1e3 * statistics.median(later), "ms", "<= 50")


@SUITE.measurement("many-chips")
def many_chips() -> Iterator[Figure]:
    """A program on 64 chips, 10⁸ cells of steps × tiles: writing its report and looking at it."""
    from benchmarks.vision.page import slowest_paint
    from tests.vision.sample_reports import long_executable
    from tremula.runtime.forecast import forecast
    from tremula.vision.report.write import write_report

    executable = long_executable(10**8 // (N_CHIPS * N_TILES), N_TILES, N_CHIPS, n_layers=4)
    ran = forecast(executable)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        path = write_report(folder, executable, ran, keeps_executable=False)
        seconds = time.perf_counter() - started
        yield Figure.of("many-chips-write-seconds", seconds, "s", "<= 30")
        yield Figure.of("many-chips-report-size", path.stat().st_size / 1e6, "MB", "<= 200")
        yield Figure.of("many-chips-first-paint-slowest", slowest_paint(path), "s", "<= 1.5")


@SUITE.measurement("export")
def export() -> Iterator[Figure]:
    """The report of the GPT-2 example, four chips and a pipeline, as one HTML file."""
    from tests.vision.sample_reports import report_of_example
    from tremula.vision.page_data.fetch import PageData
    from tremula.vision.report.reader import open_report
    from tremula.vision.serve.export import export_page

    with tempfile.TemporaryDirectory() as folder:
        report = report_of_example(Path(folder), "poptorch/gpt2.py", "--steps", "1")
        page = Path(folder, "page.html")
        with open_report(report) as reader:
            started = time.perf_counter()
            export_page(PageData([reader]), page)
            seconds = time.perf_counter() - started
        yield Figure.of("gpt2-export-seconds", seconds, "s", "<= 15")
        yield Figure.of("gpt2-export-size", page.stat().st_size / 1e6, "MB", "<= 40")


@SUITE.measurement("fuzz")
def damage() -> Iterator[Figure]:
    """Damaged reports and traces that end in anything but an error that says so."""
    from tests.vision.report.fuzz import fuzz, read_report, read_trace
    from tests.vision.sample_reports import small_report

    with tempfile.TemporaryDirectory() as folder:
        report, trace = small_report(Path(folder))
        for name, path, read, n, is_sealed_again in (
            ("damaged-reports", report, read_report, N_MUTATIONS // 2, False),
            ("damaged-traces", trace, read_trace, N_MUTATIONS // 2, False),
            ("hostile-reports", report, read_report, N_HOSTILE, True),
        ):
            read(path)
            outcome = fuzz(path, n, read, is_sealed_again=is_sealed_again)
            for escape in outcome.escapes[:3]:
                print(escape, file=sys.stderr)
            yield Figure.of(f"{name}-escaped", len(outcome.escapes), "files", "== 0")
            yield Figure.of(f"{name}-refused", outcome.n_refused, "files", "> 0")


@SUITE.measurement("trace-off")
def trace_off() -> Iterator[Figure]:
    """What a tracepoint costs while no trace is open."""
    from tremula.base.tracing import span
    from tremula.vision.trace import recorder as trace

    trace.stop()
    n = 100_000
    started = time.process_time()  # one thread: other programs on the machine do not count
    for _ in range(n):
        with span("poplar", "nothing"):
            pass
    cost_ns = 1e9 * (time.process_time() - started) / n
    yield Figure.of("tracepoint-off", cost_ns, "ns", "<= 2000")


@SUITE.measurement("profiling")
def profiling() -> Iterator[Figure]:
    """A training step of the MNIST CNN on the host, with `enableProfiling` and without."""
    import poptorch
    from benchmarks.measure import ratio
    from benchmarks.poptorch.models import cases
    from tremula.ir.settings import configured
    from tremula.vision.trace import recorder as trace

    case = cases()["mnist"]
    batch = case.batch(case.n_batch)

    def model(options: poptorch.Options) -> poptorch.PoplarExecutor:
        module = case.make()
        made = poptorch.trainingModel(module, options, case.optimizer(module.parameters()))
        with configured(host="eager", device="cpu"):
            made(*batch)  # compiles, and a profiled one writes its report
        return made

    with tempfile.TemporaryDirectory() as folder:
        on, off = model(poptorch.Options().enableProfiling(folder)), model(poptorch.Options())

        def profiled() -> None:
            if trace.current_path() is None:
                trace.start(folder)
            on(*batch)

        def plain() -> None:
            trace.stop()  # a process has one trace: it stays open while the other model runs
            off(*batch)

        measured = ratio(profiled, plain, min_time_s=2)
        trace.stop()
    yield Figure.of("profiling-on", measured.value, "× off", "<= 1.05")


@SUITE.measurement("page")
def page() -> Iterator[Figure]:
    """The analyser page on a report of 10⁷ cells, in headless Chromium."""
    from benchmarks.vision.page import page_figures

    yield from page_figures(N_STEPS, N_TILES)
