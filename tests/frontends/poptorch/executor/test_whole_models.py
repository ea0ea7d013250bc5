"""Small models of each kind people train: one step on tiles equals the same step on the host."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import poptorch
from tests.sampling import one_in
from tremula.garden.models.resnet import BasicBlock
from tremula.ir.run.session import TileSession
from tremula.ir.settings import configured


class LanguageModel(nn.Module):
    """GPT-2 or BERT of transformers, without dropout."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        if kind == "gpt2":
            config = transformers.GPT2Config(
                vocab_size=40, n_positions=16, n_layer=1, n_embd=16, n_head=2, bos_token_id=0,
                eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            )  # fmt: skip
            self.body, self.head = transformers.GPT2Model(config), nn.Linear(16, 40)
        else:
            config = transformers.BertConfig(
                vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                intermediate_size=32, max_position_embeddings=16, hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )  # fmt: skip
            self.body, self.head = transformers.BertModel(config), nn.Linear(16, 40)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.body(input_ids=ids, return_dict=False)[0]
        return F.cross_entropy(self.head(hidden).flatten(0, 1), ids.flatten())


class GraphNet(nn.Module):
    """A graph isomorphism network: neighbours are gathered, summed and pooled by graph."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
        self.out = nn.Linear(6, 1)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor, target: Tensor) -> Tensor:
        messages = x.index_select(0, edges[0])
        gathered = torch.zeros_like(x).index_add(0, edges[1], messages)
        x = self.inner(x + gathered)
        pooled = torch.zeros(3, 6).scatter_add(0, graph[:, None].expand(-1, 6), x)
        return F.mse_loss(self.out(pooled)[:, 0], target)


class Images(nn.Module):
    """A residual block and an upsampling one: batch norm, strides, transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down = BasicBlock(2, 4, 2)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        low = F.interpolate(self.down(x), scale_factor=2.0, mode="nearest")
        return F.l1_loss(self.up(F.avg_pool2d(low, 2)), x)


class Triples(nn.Module):
    """A knowledge-graph scorer with sampled negatives: embeddings, norms, log-sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.entities, self.relations = nn.Embedding(12, 8), nn.Embedding(3, 8)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        moved = self.entities(head) + self.relations(relation)
        return -torch.linalg.vector_norm(moved - self.entities(tail), ord=2, dim=-1)

    def forward(self, triples: Tensor, wrong: Tensor) -> Tensor:
        head, relation, tail = triples.unbind(1)
        right = F.logsigmoid(self.score(head, relation, tail)).mean()
        others = F.logsigmoid(-self.score(head, relation, wrong)).mean()
        return poptorch.identity_loss(-right - others, "sum")


class Speech(nn.Module):
    """Frames by a strided convolution, group norm, GELU and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Conv1d(1, 8, 5, stride=3)
        self.norm = nn.GroupNorm(2, 8)
        self.rnn = nn.GRU(8, 6, batch_first=True)
        self.out = nn.Linear(6, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        frames = F.gelu(self.norm(self.frames(x)))
        states, _ = self.rnn(frames.transpose(1, 2))
        return F.cross_entropy(self.out(states[:, -1]), labels)


def _graph() -> tuple[Tensor, ...]:
    return (
        torch.randn(10, 6),
        torch.randint(0, 10, (2, 20)),
        torch.arange(10) % 3,
        torch.randn(3),
    )


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "gpt2": (lambda: LanguageModel("gpt2"), lambda: (torch.randint(0, 40, (2, 8)),)),
    "bert": (lambda: LanguageModel("bert"), lambda: (torch.randint(0, 40, (2, 8)),)),
    "graph": (GraphNet, _graph),
    "images": (Images, lambda: (torch.randn(2, 2, 8, 8),)),
    "triples": (
        Triples,
        lambda: (torch.randint(0, 3, (5, 3)), torch.randint(0, 12, (5,))),
    ),
    "speech": (Speech, lambda: (torch.randn(2, 1, 32), torch.randint(0, 4, (2,)))),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", one_in(2, reversed(CASES)))
def test_a_training_step_on_tiles_equals_the_host(kind: str):
    """Loss, every weight and every buffer agree after two steps of gradient descent."""
    make, batch = CASES[kind]
    torch.manual_seed(0)
    start, inputs = make(), batch()
    result = []
    for tiles in ("lazy", "run"):
        model = copy.deepcopy(start)
        with configured(tiles=tiles, device="cpu"):
            step = poptorch.trainingModel(
                model, poptorch.Options(), torch.optim.SGD(model.parameters(), lr=0.05)
            )
            losses = [step(*inputs) for _ in range(2)]
        assert isinstance(step.compiled_program().session, TileSession) == (tiles == "run")
        step.copyWeightsToHost()
        result.append((losses, dict(model.state_dict())))
    (host_losses, host), (tile_losses, on_tiles) = result
    torch.testing.assert_close(tile_losses, host_losses, rtol=1e-4, atol=1e-5)
    for name, value in host.items():
        torch.testing.assert_close(
            on_tiles[name],
            value,
            rtol=1e-3,
            atol=1e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )
