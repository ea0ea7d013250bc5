"""Places of blocks: what rules make of the chips, stages and phases that blocks were given."""

import pytest
import torch

from tremula.ir.capture.capture import capture
from tremula.ir.errors import UnsuitableModel
from tremula.ir.locations import Phases
from tremula.ir.placement import PlacementRules, ReadsFromLater, place_blocks
from tremula.ir.recording import active
from tremula.ir.step import BlockPlace


def step_of(*places, before=False, reads_back=False):
    """A chain of operations, one in each block; `reads_back`: the last block runs first."""

    class Model(torch.nn.Module):
        def forward(self, x):
            recording = active()
            assert recording is not None
            x = x * 2 if before else x
            order = reversed(list(enumerate(places))) if reads_back else enumerate(places)
            for number, place in order:
                recording.start_block(str(number), None, place)
                x = torch.sin(x)
            return x

    model = Model()
    return capture(model, lambda flat: ([model(*flat)], None), [torch.ones(2)])


def test_blocks_without_places_are_on_one_chip():
    """Where a front end gives no places, there are no chips to choose."""
    places = place_blocks(step_of(None, None), PlacementRules(waits_for_all=False))
    assert (places.chip_of_block, places.stage_of_block) == ((), ())
    assert not places.waits_for_all


def test_stages_are_numbered_without_gaps():
    """Stages keep their order; numbers that no block has are left out."""
    step = step_of(BlockPlace(0, 1), BlockPlace(1, 4), BlockPlace(0, 4), BlockPlace(2, 7))
    places = place_blocks(step, PlacementRules(stride=2))
    assert places.chip_of_block == (0, 1, 0, 2)
    assert places.stage_of_block == (0, 1, 1, 2)
    assert (places.n_stages, places.stride) == (3, 2)


def test_without_a_pipeline_there_are_no_stages():
    """One micro-batch at a time runs on the chips in turn."""
    places = place_blocks(step_of(BlockPlace(0, 0), BlockPlace(1, 1)), PlacementRules())
    assert places.chip_of_block == (0, 1)
    assert (places.stage_of_block, places.n_stages) == ((), 1)


def test_phases_come_from_blocks_and_their_rules_from_settings():
    """Where all blocks have a phase, they run phase by phase."""
    rules = PlacementRules(stride=1, phases=Phases(leaves_after_forward=True))
    places = place_blocks(step_of(BlockPlace(0, phase=0), BlockPlace(1, phase=1)), rules)
    assert places.phases == Phases((0, 1), leaves_after_forward=True)
    assert places.stage_of_block == ()


def test_a_block_reads_from_no_later_one():
    """The error says which blocks; blocks without an order may read from any."""
    ordered = [BlockPlace(n, n, order=n) for n in range(2)]
    place_blocks(step_of(*ordered), PlacementRules(stride=1))
    with pytest.raises(ReadsFromLater, match="Block '0' of stage 0 reads what block '1' of the la"):
        place_blocks(step_of(*ordered, reads_back=True), PlacementRules(stride=1))
    free = [BlockPlace(n, n) for n in range(2)]
    place_blocks(step_of(*free, reads_back=True), PlacementRules(stride=1))


def test_what_comes_before_the_first_block():
    """It is a stage on chip 0 if blocks cover everything and begin on another chip."""
    rules = PlacementRules(stride=1, covers_all=True)
    step = step_of(BlockPlace(1, 0), BlockPlace(2, 1), before=True)
    places = place_blocks(step, rules)
    assert places.chip_of_block == (1, 2, 0)
    assert places.stage_of_block == (1, 2, 0)
    plain = place_blocks(step_of(BlockPlace(1, 0), BlockPlace(2, 1)), rules)
    assert plain.chip_of_block == (1, 2)


def test_operations_outside_of_blocks_are_errors():
    """After the first block every operation needs one, if the rules say so."""

    class Model(torch.nn.Module):
        def forward(self, x):
            recording = active()
            assert recording is not None
            recording.begin_block("a", None, BlockPlace(0))
            x = torch.sin(x)
            recording.end_block()
            return torch.tanh(x)

    model = Model()
    step = capture(model, lambda flat: ([model(*flat)], None), [torch.ones(2)])
    place_blocks(step, PlacementRules())
    with pytest.raises(UnsuitableModel, match=r"No active Block, .* aten::tanh at"):
        place_blocks(step, PlacementRules(covers_all=True))
