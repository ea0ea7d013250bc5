"""Execution strategies: how blocks become stages on chips, and how deep a pipeline may be."""

import re
from pathlib import Path

import pytest
import torch

import poptorch
from tremula.frontends.poptorch.block_places import BlockPlacer
from tremula.frontends.poptorch.executor.placement import (
    check_inference_accumulation,
    check_pipeline_depth,
)

Stage, Phase = poptorch.Stage, poptorch.Phase


def placed(strategy, blocks):
    """The chips, pipeline stages, phases and orders of blocks that a model opens, as lists."""
    placer = BlockPlacer(strategy)
    places = [placer.place(name, ipu) for name, ipu in blocks]
    columns = ("chip", "stage", "phase", "order")
    return {column: [getattr(place, column) for place in places] for column in columns}


def test_forms_of_arguments():
    """Stages are given as ids, lists of ids or Stage objects, and found by block."""
    for strategy in (poptorch.PipelinedExecution, poptorch.ShardedExecution):
        made = strategy("a", ["b", "c"], Stage("d").ipu(7))
        assert made.stage("c").blocks == ["b", "c"]
        assert made.stage("d").chosen_ipu == 7
        assert made.auto is None
        assert strategy().auto is poptorch.AutoStage.SameAsIpu
        auto = poptorch.AutoStage.AutoIncrement
        assert strategy(auto).auto is auto


def test_rejected_arguments():
    """A block in two stages, unknown blocks and mixed forms are rejected."""
    with pytest.raises(AssertionError, match="'a' has already been assigned to a stage"):
        poptorch.PipelinedExecution("a", Stage("b", "a"))
    with pytest.raises(AssertionError, match="Unknown block 'embeding': did you mean 'embedding'"):
        poptorch.PipelinedExecution("embedding").stage("embeding")
    with pytest.raises(AssertionError, match="must be the only argument"):
        poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu, "a")
    with pytest.raises(AssertionError, match="at least one block"):
        Stage()
    with pytest.raises(AssertionError, match="named by text"):
        Stage(1)


def test_phases():
    """A phase holds stages that run together; its chips are given one for each."""
    serial = poptorch.SerialPhasedExecution
    made = serial("a", Stage("b"), [Stage("c"), Stage("d")], Phase("e", "f"))
    assert [len(phase.stages) for phase in made.phases] == [1, 1, 2, 1]
    assert made.phase(3).stage(0).blocks == ["e", "f"]
    made.phase(2).ipus(4, 5)
    assert made.stage("d").chosen_ipu == 5
    with pytest.raises(AssertionError, match="2 stages, but 1 IPUs"):
        made.phase(2).ipus(4)
    with pytest.raises(AssertionError, match="no automatic mode"):
        serial(poptorch.AutoStage.SameAsIpu)
    with pytest.raises(AssertionError, match="at least one phase"):
        poptorch.ParallelPhasedExecution()
    listed = poptorch.ParallelPhasedExecution([Phase("a"), Phase("b")])
    assert len(listed.phases) == 2


def test_settings_of_phases():
    """Liveness and the backward phase reach the options."""
    liveness = poptorch.Liveness.OffChipAfterFwdNoOverlap
    made = poptorch.SerialPhasedExecution("a").setTensorsLiveness(liveness)
    assert made.useSeparateBackwardPhase(True) is made
    assert made.backend_options() == {
        "execution_mode": 2,
        "separate_backward_phase": True,
        "serial_phases_execution": True,
        "tensors_liveness": 2,
    }
    made = poptorch.ParallelPhasedExecution("a").sendTensorsOffChipAfterFwd(True)
    assert made.backend_options()["tensors_liveness"] == 1
    with pytest.raises(AssertionError, match=r"poptorch\.Liveness"):
        poptorch.SerialPhasedExecution("a").setTensorsLiveness(2)


def test_same_as_ipu():
    """The stage of a block is its chip; where the chip changes, a pipeline has a new stage."""
    blocks = [("a", 0), ("0", 1), ("1", 1), ("2", 2), ("3", 1)]
    places = placed(poptorch.PipelinedExecution(), blocks)
    assert places["chip"] == [0, 1, 1, 2, 1]
    assert places["stage"] == [0, 1, 1, 2, 3]
    assert places["order"] == [None] * 5  # of automatic stages, any may read from any
    assert placed(poptorch.PipelinedExecution(), [*blocks, ("0", 1)])["stage"][-1] == 1  # as before
    with pytest.raises(AssertionError, match="SameAsIpu was selected but no IPU ID"):
        placed(poptorch.PipelinedExecution(), [("a", None)])


def test_auto_increment():
    """New blocks get the next stage, from 1 on, and its chip unless they name one."""
    auto = poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
    blocks = [("0", 0), ("1", 1), ("2", 2), ("3", 1), ("1", 1), ("4", None), ("1", None)]
    assert placed(auto, blocks)["chip"] == [0, 1, 2, 1, 1, 5, 2]
    assert placed(auto, [("a", None), ("b", None)])["chip"] == [1, 2]


def test_explicit_stages():
    """A stage is on its own chip, else on that of the block, else on the chip of its number."""
    made = poptorch.PipelinedExecution(["a", "b"], Stage("c").ipu(5), "d")
    places = placed(made, [("a", None), ("b", None), ("c", None), ("d", 0)])
    assert places["order"] == [0, 0, 1, 2]
    assert places["chip"] == [0, 0, 5, 0]
    assert places["stage"] == [0, 0, 1, 2]
    with pytest.raises(AssertionError, match="requests IPU 1, but its stage is on IPU 5"):
        placed(made, [("c", 1)])
    with pytest.raises(AssertionError, match="Unknown block 'x'"):
        placed(made, [("x", None)])


def test_places_of_phases():
    """Serial phases share chips, parallel ones alternate between even and odd chips."""
    phases = [[Stage("a"), Stage("b")], [Stage("c"), Stage("d")]]
    blocks = [(name, None) for name in "abcd"]
    places = placed(poptorch.SerialPhasedExecution(*phases), blocks)
    assert places["phase"] == places["order"] == [0, 0, 1, 1]
    assert places["chip"] == [0, 1, 0, 1]
    assert placed(poptorch.ParallelPhasedExecution(*phases), blocks)["chip"] == [0, 2, 1, 3]


def test_without_blocks():
    """Without blocks all is on one chip."""
    model = poptorch.inferenceModel(torch.nn.Identity())
    model.compile(torch.ones(2))
    assert model.tile_program().schedule.n_stages == model.tile_program().schedule.n_chips == 1


class HalfInABlock(torch.nn.Module):
    def forward(self, x):
        x = x + 1  # before all blocks
        with poptorch.Block("a", ipu_id=0):
            x = x * 2
        return torch.tanh(x)


def test_operations_outside_of_blocks():
    """Behind a block, an operation needs another one; the error names it and its line."""
    text = r"No active Block, all the ops must belong to a Block: aten::tanh at \S*strategies.py"
    with pytest.raises(poptorch.Error, match=text):
        poptorch.inferenceModel(HalfInABlock())(torch.ones(2))


def test_pipeline_depth_in_training():
    """A training pipeline needs an accumulation of at least 2·stages − 1."""
    text = (
        "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the "
        "number of pipeline stages (7) when using poptorch.PipelinedExecution. Please note that a "
        "model with 4 pipeline stages in PopTorch will have an additional 3 stages when training."
    )
    opts = poptorch.Options()
    opts.Training.gradientAccumulation(6)
    with pytest.raises(poptorch.Error, match=re.escape(text)):
        check_pipeline_depth(opts, 4, training=True)
    opts.Training.gradientAccumulation(7)
    check_pipeline_depth(opts, 4, training=True)
    check_pipeline_depth(poptorch.Options(), 1, training=True)


class TwoStages(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            x = self.first(x)
        with poptorch.Block("second", ipu_id=1):
            return torch.nn.functional.mse_loss(self.second(x), x)  # the second stage


def test_a_pipeline_that_cannot_fill_says_where():
    """The error names the model's line with which the last stage begins."""
    opts = poptorch.Options()
    opts.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match=r"stages \(3\)[\s\S]*strategies\.py:(\d+)") as error:
        poptorch.trainingModel(TwoStages(), opts)(torch.ones(2, 2))
    line = int(re.search(r"strategies\.py:(\d+)", str(error.value))[1])
    assert "the second stage" in Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]


def test_pipeline_depth_in_inference():
    """An inference pipeline needs as many device iterations as stages; shards do not."""
    text = (
        "poptorch.Options().deviceIterations must be greater than or equal to the number of "
        "pipeline stages (4) when using poptorch.PipelinedExecution."
    )
    opts = poptorch.Options().deviceIterations(3)
    with pytest.raises(poptorch.Error, match=re.escape(text)):
        check_pipeline_depth(opts, 4, training=False)
    check_pipeline_depth(poptorch.Options().deviceIterations(4), 4, training=False)
    opts.setExecutionStrategy(poptorch.ShardedExecution())
    check_pipeline_depth(opts, 4, training=False)


def test_inference_does_not_accumulate():
    """Gradient accumulation is rejected for inference; a pipeline is told what to do instead."""
    opts = poptorch.Options()
    check_inference_accumulation(opts)
    opts.Training.gradientAccumulation(2)
    text = (
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its "
        "default value (1) when running a poptorch.inferenceModel()."
    )
    with pytest.raises(poptorch.Error, match=re.escape(text)) as caught:
        check_inference_accumulation(opts)
    assert "Use poptorch.Options().deviceIterations to process" in caught.value.message
    opts.setExecutionStrategy(poptorch.ShardedExecution())
    with pytest.raises(poptorch.Error, match=re.escape(text)) as caught:
        check_inference_accumulation(opts)
    assert caught.value.message == text
