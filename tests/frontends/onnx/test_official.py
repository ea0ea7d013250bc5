"""The official tests of ONNX backends: a sample, or all of them (`make test-onnx`)."""

import pytest

from tests.frontends.onnx.official import (
    MODEL_KINDS,
    failure_of,
    model_cases,
    node_cases,
    node_modules,
    real_cases,
)
from tremula.frontends.onnx.backend import CompiledBackend, OnnxBackend, TileBackend

# Operators of every family, with few or small cases.
SAMPLE = """ai_onnx_ml_label_encoder basic_rnn batchnorm bitcast bitshift col2im concat conv
    convtranspose cumsum deformconv depthtospace dft einsum gathernd gridsample gru if instancenorm
    layernormalization lstm matmul maxpool nonmaxsuppression onehot optionalhaselement pad
    qlinearconv quantizelinear reduce_log_sum_exp resize roialign scan scatternd sequence_map slice
    split stringsplit topk tree_ensemble upsample where""".split()
ON_TILES = "batchnorm conv gathernd if layernorm maxpool resize scan softmax split where".split()
# Drawn at random without a seed that means something, or decoded by a library that is not here.
RANDOM = ("bernoulli", "training_dropout")
# Sums of halves or of floats in another order, which the tolerance of the suite does not allow.
KNOWN = {
    "test_attention_4d_causal_fp16",
    "test_attention_4d_causal_fp16_expanded",
    "test_causal_conv_with_state_silu_fp16",
    "test_causal_conv_with_state_silu_fp16_expanded",
    "test_dft_axis",
    "test_dft_axis_opset19",
    "test_dft_inverse",  # with MKL's transforms
    "test_dft_inverse_opset19",
    "test_loop16_seq_none",  # gives a sequence where an array is expected
}


def is_known(name):
    return name in KNOWN or "image_decoder" in name or any(word in name for word in RANDOM)


def failures(cases, backend, atol=0.0):
    result = (failure_of(case, backend, atol) for case in cases if not is_known(case.name))
    return [text for text in result if text]


def modules_of(words):
    return [name for name in node_modules() if name in words]


@pytest.mark.slow
def test_a_sample_of_the_node_tests_passes():
    """Operators of all families compute what ONNX says, in all their versions and types."""
    cases = node_cases(modules_of(SAMPLE))
    assert len(cases) > 250
    assert failures(cases, OnnxBackend) == []


@pytest.mark.slow
def test_some_pass_compiled_and_on_tiles():
    """The captured step and the tile program give the same."""
    cases = [case for case in node_cases(modules_of(ON_TILES)) if case.fits_tiles]
    assert len(cases) > 40
    assert failures(cases[::2], CompiledBackend) == []
    assert failures(cases[::9], TileBackend, 1e-6) == []


def test_models_of_the_suite_pass():
    """Models that ship with data; of those converted from PyTorch a few."""
    cases = [case for kind in MODEL_KINDS for case in list(model_cases(kind))[::5]]
    assert failures(cases, OnnxBackend) == []


@pytest.mark.wide
def test_all_node_tests_pass():
    """All but those that are random, or differ in the last bits of halves."""
    cases = node_cases()
    assert len(cases) == 1884
    assert failures(cases, OnnxBackend) == []


@pytest.mark.wide
def test_all_models_pass():
    """Simple models, those converted from PyTorch, and well-known nets."""
    cases = [case for kind in MODEL_KINDS for case in model_cases(kind)] + list(real_cases())
    assert failures(cases, OnnxBackend) == []


@pytest.mark.wide
def test_most_node_tests_pass_on_tiles():
    """Of those whose values a tile can hold."""
    cases = [case for case in node_cases() if case.fits_tiles]
    failed = failures(cases, TileBackend, 1e-6)
    assert len(failed) <= 0.05 * len(cases), "\n".join(failed)
