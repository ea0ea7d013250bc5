"""Configurations of GPT: what files say, what follows from them, and what is refused."""

from pathlib import Path

import pytest

from tremula.base.errors import FileLoadError, InvalidOption
from tremula.garden.models.gpt3.config import config_from_toml, load_config

FOLDER = Path(__file__).resolve().parents[4] / "examples" / "popxl" / "gpt3_175b"
SMALL = """
[model]
hidden = 64
n_layers = 2
n_heads = 4
sequence = 8
vocabulary = 128
[training]
global_batch = 8
"""


def test_the_175b_configuration():
    """Parameters, replicas, accumulation and the padded vocabulary are those of the paper's run."""
    config = load_config(FOLDER / "175b_pod256.toml")
    assert config.n_parameters == 174_604_259_328
    assert config.n_layer_parameters == 1_812_099_072
    assert config.n_embedding_parameters == 642_723_840
    assert config.parallel.n_replicas == 256
    assert config.accumulation == 32
    assert config.word_rows == 6288
    assert config.n_tokens_per_step == 128 * 2048


def test_the_other_configurations():
    """The tiny one runs on 8 replicas, the 1.3B one on 16, the 2.7B one on 64."""
    assert load_config(FOLDER / "tiny.toml").parallel.n_replicas == 8
    config = load_config(FOLDER / "1.3b_pod16.toml")
    assert config.parallel.n_replicas == 16
    assert config.n_parameters == pytest.approx(1.32e9, rel=0.01)
    config = load_config(FOLDER / "2.7b_pod64.toml")
    assert config.parallel.n_replicas == 64
    assert config.n_parameters == pytest.approx(2.65e9, rel=0.01)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (SMALL + "[modle]\n", "did you mean 'model'"),
        (SMALL.replace("n_heads", "n_head"), "did you mean 'n_heads'"),
        (SMALL.replace("hidden = 64", ""), "hidden"),
        (SMALL.replace("hidden = 64", "hidden = 66"), "hidden is 66, expected a multiple of"),
        (SMALL + "[parallel]\ntensor_1 = 3\n", "n_heads is 4, expected a multiple of tensor_1 = 3"),
        (SMALL + "[parallel]\ndata = 3\n", "global_batch is 8"),
        (SMALL.replace("128", '128\ndtype = "float61"'), "did you mean 'float16'"),
        (SMALL + '[machine]\nio_mode = "overlap"\n', "did you mean 'io_overlapped'"),
    ],
)
def test_wrong_configurations_say_what_is_wrong(text, complaint):
    """Unknown tables, keys and names suggest the nearest; sizes that do not divide are named."""
    with pytest.raises(InvalidOption, match=complaint):
        config_from_toml(text)


def test_files_that_cannot_be_read(tmp_path):
    """A missing file and a text that is not TOML are errors that name the file."""
    with pytest.raises(FileLoadError, match=r"nowhere\.toml"):
        load_config(tmp_path / "nowhere.toml")
    (tmp_path / "bad.toml").write_text("hidden: 3")
    with pytest.raises(FileLoadError, match="bad is not TOML"):
        load_config(tmp_path / "bad.toml")
