"""Trains a small EfficientNet, exports it, and runs the file."""

import tempfile
from pathlib import Path

import torch

import poptorch
from tremula.demo.classifiers import WithLoss
from tremula.frontends.onnx import import_model
from tremula.frontends.onnx.compiled import compile_model
from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.models.datasets.shapes import ShapeImages
from tremula.garden.models.onnx_exports import exported
from tremula.garden.models.vision_zoo import efficientnet

N_BATCH, N_ITERATIONS, N_TEST = 16, 8, 64


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_images, n_epochs, width = (1024, 6, 8) if settings.tiny else (10000, 20, 32)
    network = efficientnet(width, n_classes=10)
    options = poptorch.Options().deviceIterations(N_ITERATIONS)
    data = poptorch.DataLoader(
        options, ShapeImages(n_images, seed=1), batch_size=N_BATCH, shuffle=True, drop_last=True
    )
    optimizer = poptorch.optim.Adam(network.parameters(), lr=1e-2)
    training = poptorch.trainingModel(WithLoss(network), options, optimizer)
    losses = []
    for epoch in range(n_epochs):
        losses += [float(training(images, labels)[1]) for images, labels in data]
        settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}")
    training.detachFromDevice()
    test = ShapeImages(N_TEST, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "efficientnet.onnx")
        file = exported(network, {"images": test.images}, ["scores"], path)
        model = compile_model(import_model(path), file.inputs)
        settings.show(f"exported: {path.stat().st_size:,} bytes")
    (scores,) = model(test.images)
    with torch.no_grad():
        off = float((scores - network(test.images)).abs().max())
    accuracy = float((scores.argmax(1) == test.labels).float().mean())
    settings.show(f"accuracy of the file: {accuracy:.1%}; scores differ by {off:.1g}")
    report = model.program.report()
    return Findings(
        results={"accuracy": accuracy, "difference_of_scores": off},
        modelled=modelled_report(report, settings, n_items=N_TEST, unit="images/s"),
        curves={"loss": losses},
    )
