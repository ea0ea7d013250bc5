"""Whole models that were measured: small builds of them, read for the whole program."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.sampling import WIDE
from tests.validate.tiny_published import TINY, trained
from tremula.garden.models.published.bert import BertForPreTraining, PreTraining
from tremula.garden.models.published.encoder import EncoderSize
from tremula.validate import rows as rows_module
from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.model_call import COPIED_BYTES_PER_S, ModelCall
from tremula.validate.workloads.models import (
    bert_facts,
    bert_training,
    image_training,
    pipeline,
)
from tremula.validate.workloads.models.pipeline import (
    MeasuredOptimizer,
    Reduced,
    Training,
    equal_layers,
    time_training,
    whole,
)
from tremula.validate.workloads.models.row_facts import accumulation_of, best_of, framework_of
from tremula.validate.workloads.models.timeline import ChipTimeline, Join, Local, RepeatedEvents
from tremula.validate.workloads.table import find_workload


def row_in_words(workload, details, chip="Bow", unit="items/s", family="whole model training"):
    record = {
        "id": "x", "chip": chip, "workload": workload, "family": family, "parameters": details,
        "metric": "throughput", "unit": unit, "value": "1",
    }  # fmt: skip
    return rows_module._row_in_words(record)


# -- the host --------------------------------------------------------------------------------------


def test_inputs_pass_through_one_thread_of_each_host_process():
    """Bytes of all micro-batches of a call count, shared by processes; other frameworks' do not."""
    training = Training(
        build=lambda _: pytest.fail("not built"), of=whole(1), accumulation=10, replicas=4,
        optimizer=MeasuredOptimizer(kind="sgd"), proportions=(0.6,), updates_per_call=2,
        n_host_processes=1,
    )  # fmt: skip
    seconds = training.copying_seconds(1_000_000)
    assert seconds == pytest.approx(80e6 / COPIED_BYTES_PER_S)
    assert replace(training, n_host_processes=4).copying_seconds(1_000_000) == seconds / 4
    assert replace(training, n_host_processes=0).copying_seconds(1_000_000) == 0


def test_made_up_data_is_not_copied():
    """A call's inputs are copied unless the device makes them up."""
    images = torch.zeros(3, 5, dtype=torch.half)
    call = ModelCall(model=torch.nn.Identity(), micro_batch=(images,), device_iterations=7)
    assert call.copying_s == pytest.approx(7 * 30 / COPIED_BYTES_PER_S)
    assert replace(call, uses_made_up_data=True).copying_s == 0


# -- timelines -------------------------------------------------------------------------------------


def test_chips_wait_for_each_other_at_joins():
    """Between joins the slowest chip counts; a loop repeats that."""
    body = (Local(np.array([3.0, 5.0])), Join(np.array([1.0, 1.0])))
    assert ChipTimeline((RepeatedEvents(10, body),), 2, 1.0).cycles == 60
    assert ChipTimeline((Local(np.array([3.0, 5.0])),), 2, 1.0).local_cycles == 5


def test_a_loop_within_a_layer_is_not_the_pipeline():
    """The loop that hands values on is the pipeline's, however long an LSTM's is."""
    words = RepeatedEvents(500, (Local(np.array([1.0])),))
    turn = RepeatedEvents(8, (Local(np.array([9.0])), Join(np.array([1.0]), "pipeline/shift")))
    filling, loop, update = pipeline._parts((words, turn, Local(np.array([2.0]))))
    assert (filling, loop, len(update)) == ((words,), turn, 1)
    _, loop, _ = pipeline._parts((words, RepeatedEvents(4, (Local(np.array([1000.0])),))))
    assert loop.count == 4


def test_equal_layers_of_a_chip_add_up():
    """A chip with n layers takes n times the built layer, and what the ends take besides."""
    of = equal_layers((3, 7, 7))
    timeline = ChipTimeline((Local(np.array([100.0, 10.0, 11.0])),), 3, 1.0)
    mapped = of.applied(timeline)
    assert mapped.events[0].cycles.tolist() == [130.0, 70.0, 70.0]
    of = equal_layers((2, 3, 4), has_last=True)
    timeline = ChipTimeline((Local(np.array([100.0, 10.0, 11.0, 7.0])),), 4, 1.0)
    assert of.applied(timeline).events[0].cycles.tolist() == [120.0, 30.0, 47.0]


@pytest.mark.slow
def test_a_small_build_says_what_the_whole_program_takes():
    """A pipeline of equal layers, built whole and from one layer, takes as long within 4 %."""

    def build(layers):
        size = EncoderSize(n_layers=sum(layers), width=32, n_heads=2, n_inner=64, n_words=64)
        model = BertForPreTraining(size, PreTraining(n_masks=4)).half().train()
        model.place(layers)
        sizes = (16, 16, 16, 16, 4, 1)
        return model, [torch.zeros(2, n, dtype=torch.int32) for n in sizes]

    def seconds(of):
        training = Training(
            build=build, of=of, accumulation=64, replicas=1, returns=True, n_tiles=8,
            optimizer=MeasuredOptimizer(kind="sgd", first_is_half=True), proportions=(0.6,),
        )  # fmt: skip
        return time_training(training, "bow").cycles

    layers = (0, 2, 2)
    everything = Reduced(layers, whole(3).parts, (0, 1, 2), whole(3).parameters)
    assert seconds(equal_layers(layers)) == pytest.approx(seconds(everything), rel=0.04)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "vit" else WIDE) for name in TINY]
)
def test_every_model_can_be_built_and_timed(name):
    """Every kind of published model becomes a tile program, in a tiny configuration."""
    assert trained(name) > 0


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "function"),
    [
        ("BERT-Large pretraining ph1 SL128 packed", "pre_training"),
        ("BERT-Base pretraining ph2 SL384", "pre_training"),
        ("BERT-Large fine-tuning SQuAD SL384", "squad"),
        ("BERT-Large MLPerf SL512 packed", "mlperf"),
        ("ResNet-50 v1.5 training", "resnet50"),
        ("ResNet-50 v1.5 MLPerf training epoch (1281167 images)", "resnet50"),
        ("ResNeXt-101 training", "resnext101"),
        ("EfficientNet-B4 (G16) training", "efficientnet_b4"),
        ("ViT pretraining ImageNet1k", "vit_pre_training"),
        ("ViT fine-tuning ImageNet1k", "vit_fine_tuning"),
        ("DINO training", "dino"),
        ("Swin-Tiny pretraining", "swin"),
        ("Swin-Large fine-tuning", "swin"),
        ("UNet (medical) training", "unet"),
        ("Mini DALL-E training", "mini_dalle"),
        ("RNN-T training", "rnnt"),
        ("ALBERT SQuAD inference", "albert"),
        ("BERT-base SQuAD inference", "bert_base"),
        ("RoBERTa SQuAD inference", "roberta"),
        ("DeBERTa SQuAD inference", "deberta"),
        ("CLIP inference", "clip"),
        ("RoFormer CAIL2019 inference", "roformer"),
        ("Swin-Large inference", "swin_inference"),
        ("VideoBERT inference", "video_bert"),
        ("Wide&Deep Criteo inference", "wide_and_deep"),
        ("GPT2-XL decoding, layers sharded over 8 chips", "gpt2_xl"),
        ("ChatGLM-6B decoding, layers sharded", "chatglm_6b"),
    ],
)
def test_rows_of_every_published_model_have_a_workload(workload, function):
    """A row that names one of the public models finds its program."""
    family = "inference" if "inference" in workload else "whole model training"
    row = row_in_words(workload, "Bow Pod16; PopART; global batch 512; 16.16", family=family)
    assert find_workload(row).predict.__name__ == function


def test_what_a_row_states_chooses_the_program():
    """Framework, length and packing choose among the programs of BERT; the batch fixes the rest."""
    row = row_in_words(
        "BERT-Large pretraining ph2 SL512 packed", "Bow Pod16; PopTorch; global batch 8192; 16.16"
    )
    program = bert_training._program_of(row)
    assert (program.framework, program.n_words, program.is_packed) == ("poptorch", 512, True)
    assert program.proportions == (0.10, 0.15)
    assert accumulation_of(row, program.micro_batch, 4) == 1024
    assert framework_of(row) == "poptorch"


def test_old_programs_of_resnet_differ():
    """Rows from before SDK 2.5 mean the programs of that time."""
    old = row_in_words("ResNet-50 v1.5 training", "Bow Pod16; pre-SDK 2.5; TF1; global batch 1920")
    new = row_in_words("ResNet-50 v1.5 training", "Bow Pod16; SDK 3.0; TF1; global batch 3520")
    batches = [image_training._resnet_program(row, "bow").micro_batch for row in (old, new)]
    assert batches == [20, 22]


def test_best_of_prefers_earlier_wishes():
    """What fits an earlier wish stays, also if a later one fits none of it."""
    assert best_of([1, 2, 3], lambda n: n > 1, lambda n: n > 5, lambda n: n == 3) == 3


def test_evaluations_of_mlperf_follow_its_rule():
    """The public examples of the rule: 175,000 sequences at 3072, 225,000 at 6912."""
    intervals = [bert_facts.mlperf_evaluation_interval(n) for n in (3072, 4608, 6144, 6912)]
    assert intervals == [175_000, 200_000, 200_000, 225_000]


def test_evaluation_takes_training_steps_or_a_quarter_of_them():
    """MLPerf v1.1 evaluated by whole steps of the training program, v2.0 forward only."""
    by_chip = {one.chip: one for one in bert_facts.MLPERF}
    assert by_chip["gc200"].evaluation_seconds(2.0, 1536.0) == 7 * 2.0
    assert by_chip["bow"].evaluation_seconds(2.0, 2500.0) == 2.0


def test_a_call_waits_for_its_loader():
    """What loading takes beyond the device's time is added; less than that is hidden."""
    training = Training(
        build=lambda _: TINY["vit"][0](), of=whole(1), accumulation=8, replicas=1, loading_s=0.5,
        optimizer=MeasuredOptimizer(kind="sgd"), proportions=(0.6,),
    )  # fmt: skip
    assert training.waiting_seconds(0.2) == pytest.approx(0.3)
    assert training.waiting_seconds(0.7) == 0.0


def test_a_model_without_a_public_program_has_a_reason():
    """BERT with a length that no public program has is not guessed."""
    row = row_in_words("BERT-Large pretraining SL256", "Bow Pod16; PopART; global batch 512")
    with pytest.raises(Exception, match="no public program"):
        bert_training.pre_training(row, "bow")


def test_measured_rows_are_rows():
    """The helper of these tests makes what files are read into."""
    assert isinstance(row_in_words("x", "1 IPU"), MeasuredRow)
