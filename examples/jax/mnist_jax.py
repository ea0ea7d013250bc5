"""MNIST in pure JAX: a training step as one program, here and on the tiles of an IPU.

python mnist_jax.py
python mnist_jax.py --images 60000 --epochs 5
"""
# Arguments when run as a test: --images 2000 --epochs 2

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import tremula
import tremula.jax
from tremula.garden.models.datasets.mnist import load_mnist

SIZES = (784, 128, 10)
BATCH = 100


def new_weights(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    return [
        (jax.random.normal(k, (n_in, n_out)) * n_in**-0.5, jnp.zeros(n_out))
        for k, n_in, n_out in zip(keys, SIZES, SIZES[1:], strict=False)
    ]


def scores(weights, images):
    *hidden, (last, bias) = weights
    for w, b in hidden:
        images = jnp.tanh(images @ w + b)
    return jax.nn.log_softmax(images @ last + bias)


def loss(weights, images, labels):
    picked = jnp.take_along_axis(scores(weights, images), labels[:, None], axis=1)
    return -picked.mean()


@tremula.jax.jit
def step(weights, images, labels):
    value, gradients = jax.value_and_grad(loss)(weights, images, labels)
    return jax.tree_util.tree_map(lambda w, g: w - 0.2 * g, weights, gradients), value


@tremula.jax.jit
def n_right(weights, images, labels):
    return (scores(weights, images).argmax(1) == labels).sum()


def as_floats(images):
    return images.reshape(-1, 784).astype(np.float32) / 255


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=4000, help="how many to train with")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    images, labels = (part[: args.images] for part in load_mnist(subset=True))
    images, labels = as_floats(images), labels.astype(np.int32)
    weights = new_weights(jax.random.key(0))
    for epoch in range(args.epochs):
        began = time.perf_counter()
        for i in range(0, len(images) - BATCH + 1, BATCH):
            weights, value = step(weights, images[i : i + BATCH], labels[i : i + BATCH])
        seconds = time.perf_counter() - began
        print(f"epoch {epoch + 1}: loss {float(value):.3f}, {len(images) / seconds:,.0f} images/s")

    test_images, test_labels = load_mnist(train=False, subset=True)
    right = n_right(weights, as_floats(test_images), test_labels.astype(np.int32))
    print(f"{100 * int(right) / len(test_labels):.1f} % of {len(test_labels):,} test images")

    report = step.report(weights, images[:BATCH], labels[:BATCH])
    seconds = report.total_cycles / tremula.chip("bow").clock_hz
    print(f"a step on a Bow: {report.total_cycles:,} cycles, {BATCH / seconds:,.0f} images/s")


if __name__ == "__main__":
    main()
