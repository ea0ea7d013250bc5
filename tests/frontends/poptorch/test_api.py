"""The names scripts use: all there, with PopTorch's parameters and defaults."""

import inspect

import pytest

import popdist
import popdist.poptorch
import poptorch

# As a script may call them: names of parameters in order, defaults where there are some.
SIGNATURES = {
    "trainingModel": "model options=None optimizer=None",
    "inferenceModel": "model options=None",
    "load": "filename edit_opts_fn=None",
    "ipuHardwareIsAvailable": "num_ipus=1",
    "setLogLevel": "level",
    "identity_loss": "x reduction",
    "ipu_print_tensor": "tensor title='' print_gradient=True summarise_threshold=1000 edge_items=3"
    " max_line_width=80 digits=4 float_format='auto' separator=', ' open_bracket='('"
    " close_bracket=')'",
    "for_loop": "count body inputs",
    "cond": "condition then_body then_inps else_body else_inps",
    "serializedMatMul": "lhs rhs mode factor=0 keep_precision=False",
    "set_available_memory": "tensor available_memory_proportion",
    "ctc_beam_search_decoder": "probs lengths blank=0 beam_width=100 top_paths=1",
    "fps": "src ptr ratio=0.5 random_start=False",
    "nearest": "x y batch_x=None batch_y=None",
    "custom_op": "inputs name domain domain_version example_outputs attributes=None",
    "CPU": "layer_to_call ID",
    "Block": "user_id=None ipu_id=None",
    "BeginBlock": "layer_to_call user_id=None ipu_id=None",
    "BlockFunction": "user_id=None ipu_id=None",
    "removeBlocks": "module",
    "AsynchronousDataAccessor": "dataset buffer_size=3 miss_sleep_time_in_ms=0.1"
    " load_indefinitely=True early_preload=False"
    " sharing_strategy=<SharingStrategy.ForkServer: 3> rebatched_size=None",
}
METHODS_OF_A_MODEL = """
    attachToDevice compilationTime compile compileAndExport copyNamedBuffersToDevice
    copyWeightsToDevice copyWeightsToHost copyWeightsToHostIfNeeded cycleCount destroy
    detachFromDevice getAnchoredTensor getComputeLatency getHostIpuLatency getIpuHostLatency
    getLatency getPerfCounters getTensorNames isAttachedToDevice isCompiled loadExecutable
    load_state_dict model options rng_state save setOptimizer
""".split()
FUNCTIONS_OF_POPDIST = """
    execute_on_instances getInstanceIndex getNumInstances getNumIpusPerReplica getNumLocalReplicas
    getNumTotalReplicas init isPopdistEnvSet
""".split()


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    """Positional and keyword calls of scripts fit, and what they leave out is the same."""
    parameters = inspect.signature(getattr(poptorch, name)).parameters.values()
    shown = [
        p.name if p.default is p.empty else f"{p.name}={p.default!r}"
        for p in parameters
        if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    assert " ".join(shown) == SIGNATURES[name]


def test_every_public_name_is_there():
    """What `from poptorch import *` promises can be imported."""
    for name in poptorch.__all__:
        assert getattr(poptorch, name) is not None


def test_methods():
    """A model, and popdist, have every method and function that public scripts call."""
    assert [n for n in METHODS_OF_A_MODEL if not hasattr(poptorch.PoplarExecutor, n)] == []
    assert [n for n in FUNCTIONS_OF_POPDIST if not hasattr(popdist, n)] == []
    assert issubclass(popdist.poptorch.Options, poptorch.Options)
