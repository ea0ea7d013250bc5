"""The models and scripts that figures of many chips are measured with."""

import torch
from torch import Tensor, nn

from tremula.explore import Task
from tremula.hardware import System, chip, single


class Layer(nn.Module):
    """A layer of a transformer, with one head."""

    def __init__(self, width: int):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.before(x)).chunk(3, -1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


class SmallGPT(nn.Module):
    """A language model of a few narrow layers, with its loss."""

    def __init__(self, n_layers: int = 4, width: int = 64, n_words: int = 256):
        super().__init__()
        self.words = nn.Embedding(n_words, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(n_layers)])
        self.head = nn.Linear(width, n_words)

    def forward(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        scores = self.head(x)
        return scores, nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def small_machine(n_chips: int, n_tiles: int = 128) -> System:
    return single(chip("bow").replace(name="Small Bow", n_tiles=n_tiles), n_chips)


def gpt_task(n_chips: int, n_layers: int = 4, n_tiles: int = 128) -> Task:
    """Training of the small GPT on one sequence of 32 words."""
    torch.manual_seed(0)
    model = SmallGPT(n_layers)
    ids = torch.zeros(1, 32, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Task(model, (ids, ids), small_machine(n_chips, n_tiles), optimizer=optimizer)


# Trains for five steps on eight replicas, in one process or split across several, and writes the
# weights beside itself.
TRAINING = """
import torch, poptorch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 3))
class WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, x, y):
        return torch.nn.functional.mse_loss(self.inner(x), y)
options = poptorch.Options()
n, mine = options.Distributed.numProcesses, options.Distributed.processId
options.replicationFactor(8 // n)
x, y = torch.randn(16, 6), torch.randn(16, 3)
share = slice(16 // n * mine, 16 // n * (mine + 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
step = poptorch.trainingModel(WithLoss(), options, optimizer)
for _ in range(5):
    step(x[share], y[share])
step.copyWeightsToHost()
torch.save(model.state_dict(), __file__ + f".{n}.{mine}")
"""
