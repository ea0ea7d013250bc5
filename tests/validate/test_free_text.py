"""Files whose parameters are in words."""

import pytest

from tremula.base.errors import FileLoadError
from tremula.validate import read_rows
from tremula.validate import rows as rows_module
from tremula.validate.free_text import read_words, sizes_in
from tremula.validate.workloads.models import bert_training, image_training
from tremula.validate.workloads.models.row_facts import accumulation_of, framework_of
from tremula.validate.workloads.table import NoWorkload, chip_of, find_workload


def row_in_words(workload, details):
    """A row of a training program on Bow."""
    record = {
        "id": "x", "chip": "Bow", "workload": workload, "family": "whole model training",
        "parameters": details, "metric": "throughput", "unit": "items/s", "value": "1",
    }  # fmt: skip
    return rows_module._row_in_words(record)


HEAD = "id,source,chip,workload,family,parameters,metric,unit,value\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("N=16; 1472 tiles; 1.85 GHz", {"n": "16", "tiles": "1472", "ghz": "1.85"}),
        ("1472 tiles x 6 workers x 7500 floats", {"tiles": "1472", "workers": "6"}),
        ("Bow Pod16; SDK 3.1; PopART", {"pod": "16", "sdk": "3.1", "popart": ""}),
        ("IPU-POD 64; 16.32", {"pod": "64", "precision": "16.32"}),
        ("micro-batch 20 per IPU; fp16", {"micro_batch": "20 per IPU", "dtype": "fp16"}),
        ("grid 342^3; float", {"grid": "342^3", "dtype": "float"}),
        ("half4 codelet (in the repo); real data", {"codelet": "half4", "data": "real"}),
        ("exchange 637, copies before 5741", {"exchange": "637", "copies_before": "5741"}),
        ("1,281,167 images; 12 to 24 calls", {"images": "1,281,167", "calls": "12 to 24"}),
        ("100 iterations with halo exchange", {"iterations": "100"}),
        ("", {}),
    ],
)
def test_pieces_of_a_text(text, expected):
    """Names may stand before or after their numbers; the rest are words without a value."""
    words = read_words(text)
    assert {name: words.get(name) for name in expected} == expected


def test_sizes():
    """Both ways of writing sizes, and none."""
    assert sizes_in("499x302") == (499, 302)
    assert sizes_in("342^3 points") == (342, 342, 342)
    assert sizes_in("large") == ()


def test_rows_in_words(tmp_path):
    """Chips, sizes and counts come from the words of a row, singular or plural."""
    path = tmp_path / "rows.csv"
    path.write_text(
        HEAD
        + 'a,s,C600 (ipu21),"blur (500x1000 per IPU), 100 iterations",stencil,4 IPU;8 tiles,t,s,2\n'
        + "b,s,Mk2 (chip not stated),BERT,whole model training,Pod64; batch 1e3,t,s,2\n"
        + 'c,s,Bow,"decoding, sharded over 8 chips",LLM decoding,,t,ms,2 to 3\n'
    )
    blur, bert, decoding = read_rows(path)
    assert (blur.n_ipus, bert.n_ipus, decoding.n_ipus) == (4, 64, 8)
    assert blur.sizes("per_ipu") == (500, 1000)
    assert (blur.number("iterations"), blur.number("tile"), bert.number("batch")) == (100, 8, 1000)
    assert [chip_of(row) for row in (blur, bert, decoding)] == ["c600", "gc200", "bow"]
    assert blur.stated_family == "stencil"
    assert decoding.value is None
    assert not blur.has("steps")
    with pytest.raises(FileLoadError, match="row 'a' has no parameter 'grid'"):
        blur.sizes("grid")


SAME_TRAINING = [
    "Bow Pod16; SDK 3.1; PopART; global batch 54784; 16.16",
    "16.16; global batch 54,784; PopART; SDK 3.1; Bow Pod16",
    "PopART (SDK 3.1), Bow-POD16, GBS 54784, FP16.16",
    "system=IPU-POD16; framework=PopART; global_batch_size=54784; precision=FP16.16; sdk=3.1",
    "bow pod 16 | popart | Global batch size: 54784 | precision: 16.16 | SDK 3.1",
    "16 Bow IPUs, PopART, global-batch=54.784k, numerics 16.16, Poplar SDK 3.1",
    "4x Bow-2000; SDK 3.1; popart; effective batch 54784 packs; fp16.16",
    "4 replicas on BowPod16; PopART SDK 3.1; GB 54784; mixed precision 16.16",
    "num_ipus=16; PopART; total batch 54784; precision FP16.16",
]


@pytest.mark.parametrize("text", SAME_TRAINING)
def test_wordings_of_a_training_row(text):
    """Order, spelling, units and signs of a row's words do not change what it says."""
    row = row_in_words("BERT-Large pretraining ph1 SL128 packed", text)
    program = bert_training._program_of(row)
    assert (row.n_ipus, framework_of(row), program.is_packed) == (16, "popart", True)
    assert row.number("global_batch") == 54784
    assert row.text("precision") == "16.16"
    assert accumulation_of(row, program.micro_batch, 4) == 1712


@pytest.mark.parametrize(
    ("workload", "text", "expected"),
    [
        ("BERT-Large pretraining ph2 SL384", "Pod16; PopART", ("popart", 384, False)),
        ("BERT Large pre-training, unpacked", "seq 384, PopART", ("popart", 384, False)),
        ("BERT-Large pretraining (phase 2), packed", "PopTorch", ("poptorch", 512, True)),
        ("BERT-Base pretraining", "seq_len=512; PyTorch", ("popart", 512, False)),
        ("BERT-Base pretraining", "sequence length 384; TensorFlow 2", ("tf2", 384, False)),
        ("BERT-Large pretraining", "TensorFlow1; SL128; without packing", ("tf1", 128, False)),
    ],
)
def test_wordings_of_lengths_and_frameworks(workload, text, expected):
    """Length, packing and framework choose the program, however they are written."""
    program = bert_training._program_of(row_in_words(workload, text))
    assert (program.framework, program.n_words, program.is_packed) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 card; batch 45; fp8", {"batch": 45, "dtype": "fp8"}),
        ("C600 card, BS=45, FP8", {"batch": 45, "dtype": "fp8"}),
        ("batch size 45 (FP8); PopRT", {"batch": 45, "dtype": "fp8"}),
        ("bs45; dtype: FP8", {"batch": 45, "dtype": "fp8"}),
        ("max len 264; topk 1; batch: 8", {"max_length": 264, "batch": 8}),
        ("max_length=1k; input tokens 32; bs 1", {"max_length": 1000, "input": 32, "batch": 1}),
        ("prompt 512; maximum length 1024", {"input": 512, "max_length": 1024}),
        ("mb 20; GA 10; gradient accumulation 12", {"micro_batch": 20,
                                                    "gradient_accumulation": 10}),
        ("micro-batch size 20 per IPU; grad accum=192", {"micro_batch": 20,
                                                         "gradient_accumulation": 192}),
        ("499 x 302 image; Half4 codelet", {"image": (499, 302), "codelet": "half4"}),
        ("image=499×302; codelet: half4", {"image": (499, 302), "codelet": "half4"}),
        ("grid size 342x342x342, FLOAT", {"grid": (342,) * 3, "dtype": "float"}),
        ("7.5k floats x 6 workers", {"floats": 7500, "workers": 6}),
        ("bytes per tile 1.5 MiB", {"bytes_per_tile": 1572864}),
        ("Data: Synthetic; replication factor 4", {"data": "synthetic", "replicas": 4}),
        ("real data\nbatch=16\ndevice iters 50", {"data": "real", "batch": 16,
                                                  "device_iterations": 50}),
    ],
)  # fmt: skip
def test_other_wordings_of_parameters(text, expected):
    """Short names, units, capitals and line ends say the same as the words of published rows."""
    row = row_in_words("x", text)
    read = {int: row.number, str: row.text, tuple: row.sizes}
    assert {name: read[type(value)](name) for name, value in expected.items()} == expected


@pytest.mark.parametrize(
    ("text", "n_ipus"),
    [("IPUs: 64", 64), ("64 GC200 chips", 64), ("POD64 (16 replicas)", 64), ("IPU-POD_64", 64),
     ("2x IPU-M2000", 8), ("Bow 2000", 4), ("500x1000 per IPU", 1),
     ("16 images per IPU; 2 IPU", 2)],
)  # fmt: skip
def test_numbers_of_chips(text, n_ipus):
    """Pods, machines and counts of chips, but not what is stated per chip."""
    assert row_in_words("x", text).n_ipus == n_ipus


def test_what_a_row_leaves_out_is_that_of_the_configuration():
    """Batches come from the public configurations where a row states none."""
    bert = row_in_words("BERT-Large pretraining SL128 packed", "Bow Pod16; PopART")
    program = bert_training._program_of(bert)
    assert bert_training._rows_of_update(program) == pytest.approx(54784, rel=1e-3)
    resnet = row_in_words("ResNet-50 v1.5 training", "Bow Pod16; SDK 3.0; TensorFlow 1")
    assert image_training._resnet_training(resnet, "bow").accumulation == 10
    for sdk, is_old in (("SDK 2.4", True), ("sdk=2.5.1", False), ("before SDK 2.5", True)):
        row = row_in_words("ResNet-50 v1.5 training", f"Bow Pod16; TF1; {sdk}")
        assert image_training._resnet_program(row, "bow").is_old == is_old


@pytest.mark.parametrize(
    ("workload", "reason"),
    [("GraphSAGE training", "never published"), ("Stable Diffusion training", "not written yet"),
     ("my own stencil", "no tile program")],
)  # fmt: skip
def test_rows_that_cannot_be_built_say_why(workload, reason):
    """A row without a workload has its reason, whatever its parameters."""
    with pytest.raises(NoWorkload, match=reason):
        find_workload(row_in_words(workload, "bs=16; Bow Pod16"))
