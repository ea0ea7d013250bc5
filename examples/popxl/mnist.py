"""MNIST with explicit graphs: forward, gradient and Adam are graphs that the main graph calls.

python mnist.py
python mnist.py --images 60000 --epochs 5
"""
# Arguments when run as a test: --images 2000 --epochs 2

import argparse

import numpy as np

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import Linear
from popxl_addons.optimizers import AdamOptimizerStep
from tremula.garden.models.datasets.mnist import load_mnist

BATCH = 100


class Net(addons.Module):
    def __init__(self):
        super().__init__()
        self.hidden = Linear(128)
        self.scores = Linear(10)

    def build(self, images):
        return self.scores(ops.tanh(self.hidden(images)))


def training_program():
    """A step: its Ir, streams of images, labels and losses, and the net's variables."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence(True):
        images = popxl.h2d_stream((BATCH, 784), popxl.float32, "images")
        labels = popxl.h2d_stream((BATCH,), popxl.int32, "labels")
        losses = popxl.d2h_stream((), popxl.float32, "loss")
        x, y = ops.host_load(images), ops.host_load(labels)
        factories, forward = Net().create_graph(x)
        gradient = addons.autodiff(forward, grads_required=forward.args.tensors)
        net = factories.init("net")
        call = forward.bind(net).call_with_info(x)
        loss, dscores = addons.ops.cross_entropy_with_grad(call.outputs[0], y)
        info = gradient.grad_graph_info
        grads = gradient.call(dscores, args=info.inputs_dict(call))
        adam = AdamOptimizerStep(cache=True)
        for name, variable in net.to_dict().items():
            grad = grads[[e.fwd_tensor for e in info.outputs].index(forward.args.get(name))]
            state, step = adam.create_graph(
                variable, grad, lr=3e-3, weight_decay=0.0, first_order_dtype=popxl.float32
            )
            step.bind(state.init(f"adam.{name}")).call(variable, grad)
        ops.host_store(losses, loss)
    return ir, (images, labels, losses), net


parser = argparse.ArgumentParser()
parser.add_argument("--images", type=int, default=6000)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
pixels, digits = (part[: args.images] for part in load_mnist(subset=args.images <= 6000))
train_x = pixels.reshape(-1, 784).astype(np.float32) / 255
train_y = digits.astype(np.int32)
ir, (images, labels, losses), net = training_program()
with popxl.Session(ir, "cpu") as session:
    for epoch in range(args.epochs):
        epoch_losses = []
        for i in range(0, len(train_x) - BATCH + 1, BATCH):
            part = slice(i, i + BATCH)
            epoch_losses.append(session.run({images: train_x[part], labels: train_y[part]})[losses])
        print(f"epoch {epoch}: loss {np.mean(epoch_losses):.3f}")
    w = {name: session.get_tensor_data(t) for name, t in net.to_dict().items()}
hidden = np.tanh(train_x @ w["hidden.weight"] + w["hidden.bias"])
right = (hidden @ w["scores.weight"] + w["scores.bias"]).argmax(1) == train_y
print(f"right: {right.mean():.0%}, at least 85 %: {right.mean() > 0.85}")
