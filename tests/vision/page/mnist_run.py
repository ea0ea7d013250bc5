"""A fresh run of the MNIST example with reports and a system trace, once for all test processes."""

from pathlib import Path

from tests.scripts import run_command

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "poptorch" / "mnist_poptorch.py"
N_BATCH, N_ITERATIONS, N_TRAINING_CALLS = 16, 4, 3  # as in docs/vision-tour.md
N_TEST_BATCH, N_TEST_CALLS = 50, 4
_ARGUMENTS = (
    "--subset", "--images", N_TRAINING_CALLS * N_BATCH * N_ITERATIONS, "--batch-size", N_BATCH,
    "--device-iterations", N_ITERATIONS, "--test-images", N_TEST_CALLS * N_TEST_BATCH,
    "--test-batch-size", N_TEST_BATCH,
)  # fmt: skip


def run_mnist(folder: Path) -> None:
    """Leaves the reports `training` and `inference` in a folder."""
    code, printed = run_command(folder, "run", "--report", folder, EXAMPLE, *_ARGUMENTS)
    assert code == 0, printed
