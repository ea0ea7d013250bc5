"""Programs of the structure that public ones have run as they are, and check themselves."""

import runpy
from pathlib import Path

import pytest

from tests.sampling import WIDE
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.keras import as_tensorflow

FOLDER = Path(__file__).parent / "programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
# By the wide tests.
LONG = (
    "bert", "graph_network", "gru_texts", "half_precision", "recommender", "recomputed_lstm",
    "sequential_pipeline", "unet",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=WIDE if name in LONG else ()) for name in PROGRAMS]
)
@pytest.mark.filterwarnings("ignore")
def test_a_program_in_tensorflow_s_names_runs(name):
    """`fit`, pipelines, loops, texts, images, BERT, recommenders: each against plain Keras."""
    as_tensorflow(synthetic_samples=160)
    try:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    finally:
        reset_ipu_configuration()
