"""Whether public programs fit: which program a row means, and how parts of chips add up."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import poptorch
from tests.validate.tiny_published import N_TILES, _vit
from tremula.validate.workloads.models.built_memory import BuiltMemory, built_memory
from tremula.validate.workloads.models.memory_table import (
    BEGIN,
    END,
    KnownNeeds,
    MemoryNeed,
    by_proportion,
    fullest_tile,
    memory_lines,
    public_rows,
    training_of,
    with_batch,
    write_memory_page,
)
from tremula.validate.workloads.models.pipeline import (
    MeasuredOptimizer,
    Reduced,
    Training,
    _choose,
    equal_layers,
    whole,
)


def example(of, optimizer, build=None, replicas=4):
    return Training(
        build=build or (lambda _: (None, ())), of=of, accumulation=8, replicas=replicas,
        optimizer=optimizer, proportions=(0.6,), n_tiles=N_TILES,
    )  # fmt: skip


def memory_with(n_chips=1, n_tiles=1, **columns):
    """Built chips of one tile each with these bytes; what is not named is zero."""
    names = ("resident", "sums", "waiting", "registers", "passing", "updating", "code")
    zeros = np.zeros((n_chips, n_tiles), np.int64)
    of = {name: np.array(columns.get(name, zeros)).reshape(n_chips, n_tiles) for name in names}
    codelets = np.array(columns.get("has_codelet", np.zeros((0, n_chips))), bool)
    codelet_bytes = np.array(columns.get("codelet_bytes", []), np.int64)
    has = np.repeat(codelets[:, :, None], n_tiles, axis=2)
    return BuiltMemory(
        **of, codelet_bytes=codelet_bytes, has_codelet=has, stack_bytes=3, available_bytes=1000
    )


def test_layers_add_their_tensors_and_share_their_code():
    """Two layers and the ends: tensors add up, code comes once, the larger temporary counts."""
    training = example(equal_layers((2, 3)), MeasuredOptimizer(kind="sgd"))
    built = memory_with(
        3, resident=[100, 30, 0], sums=[50, 15, 0], code=[10, 7, 0], passing=[5, 8, 0],
        codelet_bytes=[40, 60], has_codelet=[[1, 1, 0], [1, 0, 0]],
    )  # fmt: skip
    contents = fullest_tile(training, built, np.zeros(3))
    assert contents == {
        "weights": 100 + 2 * 30,
        "gradients": 50 + 2 * 15,
        "stash": 0,
        "passing": 8,
        "code": 10 + 7 + 40 + 60 + 3,
    }


def test_values_wait_longer_on_earlier_chips():
    """Of five stages, the first chip with layers waits for twice three; the built one for two."""
    training = replace(
        example(equal_layers((0, 1, 1, 1)), MeasuredOptimizer(kind="sgd")), returns=True
    )
    built = memory_with(3, waiting=[0, 40, 0])
    assert fullest_tile(training, built, np.zeros(3))["stash"] == 40 * 6 / 4


def test_one_of_a_pair_of_layers_has_half_of_their_code():
    """A chip with half of a built part has half of its code, but all of its codelets."""
    of = Reduced((2,), ((0.5,), (1.5,)), (0, 0), lambda _: [0.0])
    built = memory_with(code=[40], codelet_bytes=[6], has_codelet=[[1]])
    training = example(of, MeasuredOptimizer(kind="sgd"))
    assert fullest_tile(training, built, np.zeros(1), [0])["code"] == 20 + 6 + 3
    assert fullest_tile(training, built, np.zeros(1), [1])["code"] == 40 + 6 + 3


def test_the_first_layer_behind_the_embedding_has_its_input_computed_again():
    """Of two layers in the embedding's stage, one has an input that waits."""
    training = example(equal_layers((2, 3)), MeasuredOptimizer(kind="sgd"))
    built = memory_with(3, waiting=[5, 40, 0])
    assert fullest_tile(training, built, np.zeros(3), [0])["stash"] == 5 * 2 / 4 + 1 * 40 * 2 / 2
    assert fullest_tile(training, built, np.zeros(3), [1])["stash"] == 0, "the last stage"


def test_layers_of_the_last_stage_keep_the_results_of_their_halves():
    """They wait for no other stage: two of the four values that wait on the built chip."""
    training = example(equal_layers((2, 3, 3)), MeasuredOptimizer(kind="sgd"))
    training = replace(training, returns=True, layers_return=True)
    built = memory_with(3, waiting=[0, 40, 0])
    assert fullest_tile(training, built, np.zeros(3), [0])["stash"] == 2 * 40 * 2 / 4


def test_checkpoints_of_8_bits_take_half_but_in_the_last_stage():
    """MLPerf's BERT of v2.0 casts what waits for another stage."""
    training = example(equal_layers((2, 3, 3)), MeasuredOptimizer(kind="sgd"))
    training = replace(training, returns=True, layers_return=True)
    eight_bits = replace(training, checkpoint_bytes=1)
    built = memory_with(3, waiting=[0, 40, 0])
    own, cast = (
        [fullest_tile(one, built, np.zeros(3), [chip])["stash"] for chip in (0, 1)]
        for one in (training, eight_bits)
    )
    assert cast == [own[0], own[1] / 2]
    assert own[1] > 0


def test_layers_have_the_proportion_of_their_chip():
    """What products may take differs between chips: there is a build for each."""
    training = example(equal_layers((3, 7, 7)), MeasuredOptimizer(kind="sgd"))
    assert by_proportion(training) == {(0.6,): [0, 1, 2]}
    apart = by_proportion(replace(training, proportions=(0.15, 0.4, 0.3)))
    assert apart == {(0.15,): [0], (0.15, 0.4): [1], (0.15, 0.3): [2]}


def test_sharded_states_count_once_over_replicas():
    """Of states on chips that replicas share, the small build has all, the program a share."""
    optimizer = MeasuredOptimizer(kind="adam", first_is_half=True, is_sharded=True)
    training = example(whole(1), optimizer, replicas=4)
    built = memory_with(resident=[100], passing=[10], updating=[80])
    contents = fullest_tile(training, built, np.array([8.0]))
    assert contents["weights"] == 100 - 8 * 6 * 0.75
    assert contents["passing"] == 80 / 4, "each replica updates its share"


@pytest.mark.parametrize("row", public_rows(), ids=lambda row: row.id)
def test_every_public_program_is_known(row):
    """Each row of the table finds its training program, on as many chips as it has."""
    training = training_of(row)
    n_chips = len(training.of.parts) * training.replicas
    assert n_chips == row.n_ipus
    assert isinstance(training.of, Reduced)


def test_group_norms_of_public_programs_stride_channels():
    """As TensorFlow's group_norm does by default; the option reaches PopTorch's session."""
    strided = {
        row.id: training_of(row) for row in public_rows() if row.id.startswith(("eff", "resn"))
    }
    chosen = {
        name: pipeline_options(training).session_options().groupNormStridedChannelGrouping
        for name, training in strided.items()
    }
    assert {name.split("-")[0] for name, is_on in chosen.items() if is_on} == {
        "efficientnet",
        "resnext",
    }
    assert {name.split("-")[0] for name, is_on in chosen.items() if not is_on} == {"resnet"}


def pipeline_options(training):
    options = poptorch.Options()
    _choose(training, 1, options, keeps_states_off=False)
    return options


def test_a_larger_batch_repeats_the_inputs():
    """Twice the batch is the same model with twice as many rows."""
    training = example(
        whole(1), MeasuredOptimizer(kind="sgd"), lambda _: ("model", [torch.zeros(3, 2)])
    )
    model, (tensor,) = with_batch(training, 2).build(())
    assert (model, tuple(tensor.shape)) == ("model", (6, 2))


def test_a_need_says_whether_it_fits():
    """The verdict compares with what a tile has."""
    assert MemoryNeed("x", 1, 900, 1000).fits
    assert not MemoryNeed("x", 2, 1100, 1000).fits
    assert MemoryNeed("x", 2, 1100, 1000).share == pytest.approx(1.1)


def test_the_table_has_two_lines_for_each_program(monkeypatch):
    """A line at the public batch and one at twice that, with what is over."""
    needs = iter([MemoryNeed("a", 1, 900, 1000), MemoryNeed("a", 2, 1100, 1000, {"code": 1100})])
    name = "tremula.validate.workloads.models.memory_table.memory_need"
    monkeypatch.setattr(name, lambda _row, _factor: next(needs))
    header, first, second = memory_lines([SimpleNamespace(id="a")])
    assert "fits" in first
    assert "100 bytes over: 1 code" in second
    assert header.startswith("program")


def test_needs_are_kept_and_written_into_a_page(tmp_path, monkeypatch):
    """A kept need is not computed again; on a page, lines of other programs stay."""
    row, path, page = public_rows()[0], tmp_path / "needs.jsonl", tmp_path / "page.md"
    fits = MemoryNeed("a", 1, 900, 1000, {"code": 900})
    needs = iter([fits, MemoryNeed("a", 2, 1100, 1000, {"code": 1100})])
    name = "tremula.validate.workloads.models.memory_table.memory_need"
    monkeypatch.setattr(name, lambda _row, _factor: next(needs))
    assert KnownNeeds(path).of(row, 1) == fits
    again = KnownNeeds(path)
    assert again.of(row, 1) == fits
    again.of(row, 2)
    page.write_text(f"before\n{BEGIN}\n\n| b | 0.10 | 0.20 |\n\n{END}\nafter\n")
    for _ in range(2):
        write_memory_page(page, again.needs)
        text = page.read_text()
        assert text.startswith("before\n")
        assert text.endswith("after\n")
        assert "| a | 0.90 | 1.10: too much | 1 code | 1 code |\n| b | 0.10 | 0.20 |\n" in text
        assert text.count("| program |") == 1
    write_memory_page(page, [fits])
    assert "| a | 0.90 | not computed | 1 code |  |\n" in page.read_text()


@pytest.mark.slow
def test_a_tiny_program_is_compiled_for_its_memory():
    """From a model to the bytes of its fullest tile."""
    from tremula.validate.workloads.model_call import compiled_call
    from tremula.validate.workloads.models.pipeline import training_call

    training = example(whole(1), MeasuredOptimizer(kind="sgd"), lambda _: _vit(), replicas=1)
    executable = compiled_call(training_call(training), "bow").program().executable
    built = built_memory(executable, 1)
    contents = fullest_tile(training, built, np.zeros(1))
    memory = executable.analysis.memory
    assert memory.excluding_gaps.max() <= sum(contents.values()) < 1.2 * memory.excluding_gaps.max()
    assert contents["gradients"] > 0, "gradients are summed over micro-batches"
