"""What compiling takes: whole tile programs in fresh processes; layers with shared code or not."""

import json
from dataclasses import dataclass

from benchmarks.measure import peak_rss_of

GIB = 2**30
_SCRIPT = """
import json, time, torch, poptorch
from benchmarks.poptorch.models import LanguageModel, sharded
from tremula.demo.classifiers import WithLoss, mnist_cnn
from tremula.garden.models.resnet import resnet50
torch.manual_seed(0)
options = poptorch.Options().useIpuModel(False)
options.Popart.set("engineOptions", {{"debug.allowOutOfMemory": "true"}})
words = (torch.randint(0, 50257, (1, 128)),)
{make}
wrapped.compile(*batch)
began, cpu_began = time.perf_counter(), time.process_time()
tiles = wrapped.tile_program()
tiles.timing(has_run=False)
memory = tiles.program().executable.analysis.memory
share = int(memory.including_gaps.max()) / int(memory.available_bytes)
times = [time.perf_counter() - began, time.process_time() - cpu_began]
print(json.dumps([*times, share]))
"""
MNIST = """
model, batch = WithLoss(mnist_cnn()), (torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))
wrapped = poptorch.trainingModel(model, options)
"""
GPT2 = """
model, batch = sharded(LanguageModel(12, 768, 12).eval(), layers_per_ipu=4), words
options.setExecutionStrategy(poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu))
wrapped = poptorch.inferenceModel(model, options)
"""
RESNET = """
model, batch = resnet50().eval(), (torch.randn(4, 3, 224, 224),)
wrapped = poptorch.inferenceModel(model, options)
"""
WIDE_VOCABULARY = """
model, batch = LanguageModel(2, 256, 4), words
wrapped = poptorch.trainingModel(model, options, torch.optim.AdamW(model.parameters()))
"""
HALF_GPT2 = """
model, batch = LanguageModel(12, 768, 12).half().eval(), words
wrapped = poptorch.inferenceModel(model, options)
"""
# In float. The table of words, its gradient and its states are 428 KB of each of the first chip's
# tiles, which have 638: its states, and only those, are off the chip.
GPT2_TRAINING = """
model, batch = sharded(LanguageModel(12, 768, 12), layers_per_ipu=4), words
options.setExecutionStrategy(poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu))
options.TensorLocations.setOptimizerLocation(
    poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(10_000_000)
)
wrapped = poptorch.trainingModel(model, options, torch.optim.AdamW(model.parameters()))
"""
# As in Graphcore's public configuration: four chips with 3, 7, 7 and 7 layers, a checkpoint behind
# each, sums, gradients and first moments in half, states off the chip; sequences of 384.
_BERT_LARGE = """
from tremula.garden.models.large_transformers import BertForQuestions, place
class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertForQuestions()
    def forward(self, ids, is_word, kinds, begin, end):
        scores = self.bert(ids, is_word, kinds)
        losses = [torch.nn.functional.cross_entropy(s, at) for s, at in zip(scores, (begin, end))]
        return poptorch.identity_loss(sum(losses), "none")
model = Trained().half()
place(model.bert, (3, 7, 7, 7))
options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu))
options.Training.gradientAccumulation(64)
options.replicationFactor(n_replicas)
options.Precision.setPartialsType(torch.half)
shares = {f"IPU{i}": share for i, share in enumerate((0.1, 0.15, 0.15, 0.15))}
options.setAvailableMemoryProportion(shares)
options.TensorLocations.setOptimizerLocation(
    poptorch.TensorLocationSettings().useOnChipStorage(False)
)
n_samples = 64 * n_replicas
ids, at = (torch.zeros(n_samples, *n, dtype=torch.int32) for n in ((384,), ()))
batch = ids, ids, ids, at, at
types = {"accum_type": torch.half, "first_order_momentum_accum_type": torch.half}
optimizer = poptorch.optim.AdamW(model.parameters(), **types)
wrapped = poptorch.trainingModel(model, options, optimizer)
"""
BERT_LARGE = "n_replicas = 1" + _BERT_LARGE
BERT_LARGE_ON_A_POD64 = "n_replicas = 16" + _BERT_LARGE
# 1.3 billion parameters over 16 chips, tensor parallel, phase by phase: weights, gradients, states
# and activations are in streaming memory, and each of 24 layers is a call of one graph.
_PHASED_SCRIPT = """
import json, time, warnings
from benchmarks.popxl.gpt3 import CONFIGURATIONS
from tremula.garden.models.gpt3.config import load_config
from tremula.garden.models.gpt3.costing import compile_gpt
warnings.simplefilter("ignore")  # whether it fits is a figure
began, cpu_began = time.perf_counter(), time.process_time()
made = compile_gpt(load_config(CONFIGURATIONS / "{configuration}.toml"))
memory = made.cost.largest.report.memory
share = int(memory.including_gaps.max()) / int(memory.available_bytes)
times = [time.perf_counter() - began, time.process_time() - cpu_began]
print(json.dumps([*times, share]))
"""
GPT_1_3B_PHASED = _PHASED_SCRIPT.format(configuration="1.3b_pod16")


@dataclass(frozen=True)
class Compiled:
    """What compiling one program took, and how full its fullest tile is (1: it just fits)."""

    seconds: float
    cpu_seconds: float
    memory_share: float
    n_bytes: int


def compiled(make: str, n_times: int = 1) -> Compiled:
    """Build and compile a tile program, up to the cycles of a call, in a separate process.

    Of several times, each in a fresh process, the fastest counts: whatever else a machine does
    only adds, a fifth from one time to the next.
    """
    script = _SCRIPT.format(make=make)
    return min((compiled_script(script) for _ in range(n_times)), key=lambda done: done.seconds)


def compiled_script(script: str) -> Compiled:
    """What a script takes that prints seconds, CPU seconds and the share of memory, as JSON."""
    used = peak_rss_of(script)
    seconds, cpu_seconds, memory_share = json.loads(used.output.strip().splitlines()[-1])
    return Compiled(seconds, cpu_seconds, memory_share, used.peak_bytes)


# A training step of GPT with layers that are all alike, twice in one process: few and many layers.
_LAYERS_SCRIPT = """
import json, time, warnings, torch, poptorch
from benchmarks.poptorch.models import LanguageModel
warnings.simplefilter("ignore")  # whether it fits is not asked
torch.set_num_threads(1)
words = torch.randint(0, 50257, (1, 128))
def took(n_layers):
    options = poptorch.Options().useIpuModel(False).showCompilationProgressBar(False)
    options.Popart.set("engineOptions", {"debug.allowOutOfMemory": "true"})
    model = LanguageModel(n_layers, 256, 4)
    wrapped = poptorch.trainingModel(model, options, torch.optim.AdamW(model.parameters()))
    began = time.process_time()
    wrapped.compile(words)
    captured = time.process_time()
    wrapped.tile_program().timing(has_run=False)
    return captured - began, time.process_time() - captured
took(1)  # loads what a first program loads
print(json.dumps([took(n) for n in (FEW, MANY)]))
"""
FEW_LAYERS, MANY_LAYERS = 4, 32


@dataclass(frozen=True)
class EqualLayers:
    """CPU seconds of capturing and of compiling a GPT: all of it, and of each further layer."""

    capture: float
    compile: float
    capture_of_layer: float
    compile_of_layer: float
    n_bytes: int


def equal_layers() -> EqualLayers:
    """A training step of 32 equal layers with 50,257 words, against one of 4."""
    script = _LAYERS_SCRIPT.replace("FEW", str(FEW_LAYERS)).replace("MANY", str(MANY_LAYERS))
    used = peak_rss_of(script)
    few, many = json.loads(used.output.strip().splitlines()[-1])
    of_layer = [(b - a) / (MANY_LAYERS - FEW_LAYERS) for a, b in zip(few, many, strict=True)]
    return EqualLayers(*many, *of_layer, used.peak_bytes)


@dataclass(frozen=True)
class Shared:
    """A model's program: code and state of vertices on an average tile, and cycles of a call."""

    n_code_bytes: float
    cycles: int


def encoder(n_layers: int, is_outlined: bool) -> Shared:
    """Inference of equal encoder layers, 256 wide, 128 tokens, in half."""
    import torch
    from torch import nn

    import poptorch
    from tremula.compiler.passes.memory import CODE_CATEGORIES

    torch.manual_seed(0)
    sizes = {"dim_feedforward": 1024, "activation": "gelu", "batch_first": True}
    layers = (nn.TransformerEncoderLayer(256, 4, **sizes) for _ in range(n_layers))
    model = nn.Sequential(*layers).half().eval()
    options = poptorch.Options().useIpuModel(False)
    options.Popart.set("enableOutlining", is_outlined)
    wrapped = poptorch.inferenceModel(model, options)
    wrapped.compile(torch.zeros(1, 128, 256, dtype=torch.float16))
    assert wrapped._compiled is not None, "it was compiled"
    tiles = wrapped.tile_program()
    cycles = tiles.timing(has_run=False).total_cycles
    memory = tiles.program().executable.analysis.memory
    states = ("Vertex Instances", "Copy Descriptors", "VectorList Descriptors", "Vertex Field Data")
    code = sum(float(memory.category(name).mean()) for name in (*CODE_CATEGORIES, *states))
    return Shared(code, cycles)
