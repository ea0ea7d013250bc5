"""The PopLibs figures: speed against PyTorch and NumPy, planning and building, the cost model."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.figures import Figure, Suite
from benchmarks.measure import peak_rss_of, ratio
from tremula.base.errors import RuntimeFailure

SUITE = Suite("poplibs")
GIB = 2**30
N_ROWS, ROW_SIZE, N_LOOKUPS = 100_000, 128, 1_000_000


def torch_module():  # noqa: ANN201 - a module, loaded only here
    """PyTorch with as many threads as we use, or an error that says how to get it."""
    try:
        import torch  # pyright: ignore[reportMissingImports] - not everybody has it
    except ImportError:
        raise RuntimeFailure(
            "this figure compares with PyTorch, which is not installed.",
            hint="pip install torch==2.13.0, or choose others with --only",
        ) from None
    return torch


def check(ours: np.ndarray, theirs: np.ndarray, what: str, tolerance: float = 1e-3) -> None:
    """Refuse to report the speed of a wrong result."""
    scale = max(1.0, float(np.abs(theirs).max()))
    worst = float(np.abs(ours.reshape(theirs.shape) - theirs).max()) / scale
    if not worst <= tolerance:
        raise RuntimeFailure(
            f"{what} differs from the reference by {worst:.2g}, expected at most {tolerance:.2g}.",
            hint="this is a bug in Tremula: please report it",
        )


@SUITE.measurement("mat-mul")
def mat_mul() -> Iterator[Figure]:
    """1024³ floats on one Bow, tile by tile, against torch.mm."""
    from benchmarks.poplibs.programs import product

    torch = torch_module()
    ours = product(1024)
    a, b = (torch.from_numpy(ours.arrays[name]) for name in "ab")
    ours.engine.run()
    check(ours.result(), torch.mm(a, b).numpy(), "the product")
    measured = ratio(ours.engine.run, lambda: torch.mm(a, b))
    yield Figure.of("mat-mul-1024", measured.value, "× torch", "<= 3")


@SUITE.measurement("convolution")
def convolution() -> Iterator[Figure]:
    """3x3, 64 → 64 channels, 56², batch 16: forward and both gradients, against torch."""
    from benchmarks.poplibs import programs as poplibs_programs

    torch = torch_module()
    ours = poplibs_programs.convolution(16, 64, 56)
    acts, weights, deltas = (
        torch.from_numpy(ours.arrays[n]) for n in ("acts", "weights", "deltas")
    )
    weights = weights[0]  # one group

    def reference() -> dict[str, np.ndarray]:
        out = torch.nn.functional.conv2d(acts, weights, padding=1)
        back, update, _ = torch.ops.aten.convolution_backward(
            deltas, acts, weights, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
            [True, True, False],
        )  # fmt: skip
        return {"out": out.numpy(), "back": back.numpy(), "update": update.numpy()}

    ours.engine.run()
    for name, expected in reference().items():
        check(ours.engine.read_tensor(name), expected, f"convolution {name!r}")
    measured = ratio(ours.engine.run, reference, rounds=5)
    yield Figure.of("convolution-3x3", measured.value, "× torch", "<= 4")


@SUITE.measurement("a·x+y")
def scaled_sum() -> Iterator[Figure]:
    """2.5·x + y over 10⁷ floats, against NumPy."""
    from benchmarks.poplibs import programs as poplibs_programs

    ours = poplibs_programs.scaled_sum(10_000_000)
    x, y = ours.arrays["x"], ours.arrays["y"]
    out = np.empty_like(x)

    def reference() -> np.ndarray:
        np.multiply(x, np.float32(2.5), out=out)
        return np.add(out, y, out=out)

    ours.engine.run()
    check(ours.result(), reference(), "a·x+y", 1e-6)
    measured = ratio(ours.engine.run, reference)
    yield Figure.of("axpy-10⁷", measured.value, "× NumPy", "<= 2")


@SUITE.measurement("gather")
def gather() -> Iterator[Figure]:
    """10⁶ rows of a table of 10⁵ x 128 floats, against torch.index_select."""
    from benchmarks.poplibs import programs as poplibs_programs

    torch = torch_module()
    ours = poplibs_programs.gather(N_ROWS, ROW_SIZE, N_LOOKUPS)
    table = torch.from_numpy(ours.arrays["table"])
    indices = torch.from_numpy(ours.arrays["indices"][:, 0].astype(np.int64))
    ours.engine.run()
    check(ours.result(), torch.index_select(table, 0, indices).numpy(), "the gather", 0.0)
    measured = ratio(ours.engine.run, lambda: torch.index_select(table, 0, indices), rounds=5)
    yield Figure.of("gather-10⁶", measured.value, "× torch", "<= 2")


@SUITE.measurement("scatter-add")
def scatter_add() -> Iterator[Figure]:
    """10⁶ rows added into a table of 10⁵ x 128 floats, against Tensor.index_add_."""
    from benchmarks.poplibs import programs as poplibs_programs

    torch = torch_module()
    ours = poplibs_programs.scatter_add(N_ROWS, ROW_SIZE, N_LOOKUPS)
    rows = torch.from_numpy(ours.arrays["rows"][:, 0])
    indices = torch.from_numpy(ours.arrays["indices"][:, 0].astype(np.int64))
    table = torch.zeros(N_ROWS, ROW_SIZE)
    ours.engine.run()
    check(ours.result(), table.index_add_(0, indices, rows).numpy(), "the scatter-add")
    measured = ratio(ours.engine.run, lambda: table.index_add_(0, indices, rows), rounds=5)
    yield Figure.of("scatter-add-10⁶", measured.value, "× torch", "<= 2")


@SUITE.measurement("planning")
def planning() -> Iterator[Figure]:
    """Planning and building a new product, and one of a shape already planned."""
    import tremula as tr
    from tremula.poplibs import poplin

    def build(graph: tr.Graph, n: int) -> None:
        shapes = (n, 1024), (1024, 1024)
        left = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, *shapes, "a")
        right = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, *shapes, "b")
        poplin.mat_mul(graph, left, right, tr.Sequence())

    build(
        tr.Graph(tr.IPUModel("bow").create_device()), 16
    )  # pay for imports before the clock starts
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    yield Figure.of("plan-new", _seconds(lambda: build(graph, 1000)), "s", "<= 0.3")
    again = min(_seconds(lambda: build(graph, 1000)) for _ in range(20))
    yield Figure.of("plan-known", 1000 * again, "ms", "<= 5")


def _seconds(action: Callable[[], object]) -> float:
    started = time.process_time()  # one thread: other programs on the machine do not count
    action()
    return time.process_time() - started


_CHAIN = """
import time
from benchmarks.poplibs.programs import deep_chain
started = time.process_time()  # other programs on the machine do not count
deep_chain(100, 1024, 256)
print(time.process_time() - started)
"""


@SUITE.measurement("deep-chain")
def deep_chain() -> Iterator[Figure]:
    """100 layers of product, bias, GELU and layer norm on 256 x 1024, built and compiled."""
    usage = peak_rss_of(_CHAIN)
    yield Figure.of("chain-100-seconds", float(usage.output), "s", "<= 20")
    yield Figure.of("chain-100-peak", usage.peak_bytes / GIB, "GiB", "<= 4")


@SUITE.measurement("validate")
def validation() -> Iterator[Figure]:
    """Errors of the cost model, over all published rows and a sample of the grid."""
    from tremula.validate import GRID, PUBLISHED, Score, every_nth, rank_correlation, read_rows
    from tremula.validate import validate as check_rows

    rows = [*read_rows(PUBLISHED), *every_nth(read_rows(GRID), 90)]
    outcome = check_rows(rows)
    families = outcome.families
    on_bow = [one for one in families["dense mat-mul"] if one.row.text("dtype", "") == "fp32"]
    grid = [one for name in ("gather", "scatter-add", "SchNet block") for one in families[name]]
    for name, chosen, bar in (
        ("validate-memory-exchange", families["memory and exchange"], "<= 10"),
        ("validate-mat-mul", on_bow, "<= 15"),
        ("validate-grid", grid, "<= 20"),
        ("validate-all", outcome.checked, "<= 20"),
    ):
        yield Figure.of(name, 100 * Score.of(chosen).median, "% median", bar)
    yield Figure.of("validate-ranks", rank_correlation(outcome.checked), "Spearman", ">= 0.9")
