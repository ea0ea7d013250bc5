"""What compiling takes: whole tile programs in fresh processes; layers with shared code or not."""

import json
from dataclasses import dataclass

from tremula.bench.measure import peak_rss_of

GIB = 2**30
_SCRIPT = """
import json, time, torch, poptorch
from tremula.bench.poptorch.models import LanguageModel, WithLoss, mnist_cnn, sharded
from tremula.garden.resnet import resnet50
torch.manual_seed(0)
options = poptorch.Options().useIpuModel(False)
words = (torch.randint(0, 50257, (1, 128)),)
{make}
wrapped.compile(*batch)
began = time.perf_counter()
wrapped._compiled.core.tiles.timing(has_run=False)
print(json.dumps(time.perf_counter() - began))
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


@dataclass(frozen=True)
class Compiled:
    """What compiling one program took."""

    seconds: float
    n_bytes: int


def compiled(make: str) -> Compiled:
    """Build and compile a tile program, up to the cycles of a call, in a process of its own."""
    used = peak_rss_of(_SCRIPT.format(make=make))
    return Compiled(json.loads(used.output.strip().splitlines()[-1]), used.peak_bytes)


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
    options._Popart.set("enableOutlining", is_outlined)
    wrapped = poptorch.inferenceModel(model, options)
    wrapped.compile(torch.zeros(1, 128, 256, dtype=torch.float16))
    assert wrapped._compiled is not None, "it was compiled"
    tiles = wrapped._compiled.core.tiles
    cycles = tiles.timing(has_run=False).total_cycles
    memory = tiles.program().executable.analysis.memory
    states = ("Vertex Instances", "Copy Descriptors", "VectorList Descriptors", "Vertex Field Data")
    code = sum(float(memory.category(name).mean()) for name in (*CODE_CATEGORIES, *states))
    return Shared(code, cycles)
