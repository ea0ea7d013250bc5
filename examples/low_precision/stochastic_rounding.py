"""Weights in half, trained on tiles: by stochastic rounding they converge, to nearest they do not.

    python examples/low_precision/stochastic_rounding.py [--plot FILE.svg]

Gradient descent fits a linear model. Late in training an update is less than half the distance of
two halves: rounded to nearest it changes nothing, and the loss stays where it is. Rounded by chance
it moves the weight as often as it should, so that on average the weight goes where a float would.
"""

import argparse
from pathlib import Path

import numpy as np

import tremula as tr
from tremula.garden.models.science.plots import PlotSeries, plot_svg
from tremula.poplibs import poplin, popops

N_SAMPLES, N_WEIGHTS, RATE = 128, 16, 5e-3
N_RUNS, STEPS_PER_RUN = 60, 40


def program(graph: tr.Graph, weight_type: tr.Type) -> tuple[tr.Sequence, dict[str, tr.Tensor]]:
    """One step: errors of the model, their mean square, the gradient, the update in place."""
    step = tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [N_SAMPLES, N_WEIGHTS], "x", mapping="linear")
    y = graph.add_variable(tr.FLOAT, [N_SAMPLES, 1], "y", mapping="linear")
    w = graph.add_variable(weight_type, [N_WEIGHTS, 1], "w", mapping="linear")
    wide = popops.cast(graph, w, tr.FLOAT, step) if weight_type != tr.FLOAT else w
    error = popops.sub(graph, poplin.mat_mul(graph, x, wide, step), y, step)
    loss = popops.reduce(graph, error, [0, 1], "SQUARE_ADD", step)
    gradient = poplin.mat_mul(graph, x.transpose(), error, step)
    popops.scaled_add_to(graph, w, gradient, -RATE / N_SAMPLES, step)
    return step, {"x": x, "y": y, "w": w, "loss": loss}


def train(weight_type: tr.Type, is_stochastic: bool, seed: int = 1) -> list[float]:
    """The mean squared error after every STEPS_PER_RUN steps."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())
    step, tensors = program(graph, weight_type)
    start = tr.Sequence()
    tr.set_stochastic_rounding(graph, start, is_stochastic)
    for name, tensor in tensors.items():
        graph.create_host_read(name, tensor)
        graph.create_host_write(name, tensor)
    programs = [start, tr.Repeat(STEPS_PER_RUN, step)]
    engine = tr.Engine(graph, programs, {"tremula.seed": str(seed)}).load()
    random = np.random.default_rng(0)
    x = random.standard_normal((N_SAMPLES, N_WEIGHTS)).astype(np.float32)
    engine.write_tensor("x", x)
    engine.write_tensor("y", x @ random.uniform(1, 2, (N_WEIGHTS, 1)).astype(np.float32))
    engine.write_tensor("w", np.zeros((N_WEIGHTS, 1), weight_type.dtype))
    engine.run(0)
    losses = []
    for _ in range(N_RUNS):
        engine.run(1)
        losses.append(float(np.asarray(engine.read_tensor("loss")).item()) / N_SAMPLES)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, help="write the losses here, as SVG")
    args = parser.parse_args()
    curves = {
        "float": train(tr.FLOAT, False),
        "half, to nearest": train(tr.HALF, False),
        "half, by chance": train(tr.HALF, True),
    }
    for name, losses in curves.items():
        print(f"{name:<18} {losses[0]:.4f} → {losses[len(losses) // 2]:.6f} → {losses[-1]:.6f}")
    nearest, chance = (curves[f"half, {how}"] for how in ("to nearest", "by chance"))
    print("rounded to nearest it stalls:", nearest[-1] == nearest[-10])
    print("by chance it gets closer:", chance[-1] < nearest[-1] / 10)
    print("the same seed, the same losses:", chance == train(tr.HALF, True))
    if args.plot:
        steps = [STEPS_PER_RUN * (k + 1) for k in range(N_RUNS)]
        series = [PlotSeries(name, steps, losses) for name, losses in curves.items()]
        picture = plot_svg(series, x_name="step", y_name="mean squared error", log_y=True)
        args.plot.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
