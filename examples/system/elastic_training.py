"""Training that survives the loss of an instance: all start again, from the last checkpoint.

    poprun --num-instances 2 --max-restarts 1 --only-output-from-instance 0 elastic_training.py

Without poprun it trains alone. The first start fails on purpose after the third epoch.
"""

import os
import tempfile
from pathlib import Path

import torch

import popdist.poptorch
import poptorch

N_EPOCHS = 5
KEPT = Path(os.environ.get("CHECKPOINT") or Path(tempfile.gettempdir(), f"kept-{os.getppid()}.pt"))


def main():
    torch.manual_seed(0)
    is_several = popdist.isPopdistEnvSet()
    if is_several:
        popdist.init()
    options = popdist.poptorch.Options() if is_several else poptorch.Options()
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    wrapped = WithLoss(model)
    begin = 0
    if KEPT.exists():
        checkpoint = torch.load(KEPT, weights_only=True)
        wrapped.load_state_dict(checkpoint["weights"])
        begin = checkpoint["epoch"]
    optimizer = poptorch.optim.SGD(wrapped.parameters(), lr=0.1)
    training = poptorch.trainingModel(wrapped, options, optimizer)
    x = torch.randn(32, 2)
    y = (x[:, :1] * x[:, 1:]).tanh()
    mine = slice(popdist.getInstanceIndex(), None, popdist.getNumInstances())
    for epoch in range(begin, N_EPOCHS):
        for _ in range(10):
            _, loss = training(x[mine].contiguous(), y[mine].contiguous())
        print(f"epoch {epoch + 1}: loss {loss.mean():.4f}", flush=True)
        if popdist.getInstanceIndex() == 0:
            training.copyWeightsToHost()
            torch.save({"weights": wrapped.state_dict(), "epoch": epoch + 1}, KEPT)
        if is_several:
            popdist.synchronize()
        if epoch == 2 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            os._exit(1)
    if popdist.getInstanceIndex() == 0:
        KEPT.unlink(missing_ok=True)


class WithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        out = self.model(x)
        return out, torch.nn.functional.mse_loss(out, y)


if __name__ == "__main__":
    main()
