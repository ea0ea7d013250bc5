"""`tremula demo`: train MNIST with PopTorch, test it, and model it on a Bow."""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tremula.base.errors import InvalidOption, RuntimeFailure
from tremula.base.storage.cache_dir import cache_dir
from tremula.commands import tile_demo
from tremula.commands.arguments import chip_name, output_folder, whole
from tremula.commands.progress import progress
from tremula.hardware import CHIPS

if TYPE_CHECKING:
    from tremula.demo.mnist import DigitImages

N_BATCH, N_ITERATIONS = 16, 50
N_TEST_BATCH = 500
N_SMALL, N_TEST = 3200, 1000  # digits that come with Tremula: 91 % in a few seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=whole(1), default=1, help="epochs (default: 1)")
    sets = parser.add_mutually_exclusive_group()
    ours = f"{N_SMALL + N_TEST:,} digits that come with Tremula (default)"
    sets.add_argument("--subset", action="store_true", help=ours)
    sets.add_argument("--full", action="store_true", help="all of MNIST; fetches 11 MB once")
    one_call = N_BATCH * N_ITERATIONS
    images = f"train with the first of them only, at least {one_call} (all)"
    parser.add_argument("--images", type=whole(one_call), help=images)
    parser.add_argument(
        "--report", type=output_folder, default=cache_dir() / "demo", help="folder for the report"
    )
    chips = f"one of: {', '.join(CHIPS)} (bow)"
    parser.add_argument("--chip", type=chip_name, default="bow", help=chips)
    tiles = parser.add_argument_group("instead of MNIST, a tile program without PyTorch")
    tiles.add_argument("--tiles", action="store_true", help="heat in a plate, a block per tile")
    tiles.add_argument("--size", type=whole(1), default=1024, help="side of the square grid")
    tiles.add_argument("--steps", type=whole(1), default=200, help="time steps to run")


def run(args: argparse.Namespace) -> int:
    if args.tiles:
        return tile_demo.run(args)
    try:
        import torch
    except ImportError:
        raise RuntimeFailure(
            "the demo needs PyTorch, which is not installed.",
            hint="pip install 'tremula[torch]'; or `tremula demo --tiles`, which does without",
        ) from None
    from tremula.frontends.poptorch.logging import shown_from
    from tremula.ir.settings import configured
    from tremula.vision.trace import recorder as trace

    torch.manual_seed(1)
    training, test = _data(args.full, args.images)
    trace.start(args.report)
    try:
        with shown_from("ERR"), configured(chip=args.chip), _one_thread():
            _train_and_test(args, training, test)
    finally:
        trace.stop()
    return 0


@contextmanager
def _one_thread() -> Iterator[None]:
    """Batches are so small that several threads would mostly wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _data(is_full: bool, n_images: int | None) -> "tuple[DigitImages, DigitImages]":
    """The digits that come with Tremula, or all of MNIST, if it can be fetched."""
    from tremula.demo.digits import demo_digits
    from tremula.demo.mnist import DigitImages, whole_mnist

    if not is_full and (n_images or 0) > N_SMALL:
        raise InvalidOption(
            f"--images {n_images}: {N_SMALL:,} digits come with Tremula.",
            hint="--full fetches all of MNIST, 60,000",
        )
    digits = whole_mnist if is_full else demo_digits
    try:
        training, test = digits(True), digits(False)
    except RuntimeFailure as failure:
        print(f"{failure}\nContinuing with the {N_SMALL + N_TEST:,} that come with Tremula.\n")
        training, test = demo_digits(True), demo_digits(False)
    return DigitImages(*(column[:n_images] for column in training)), DigitImages(*test)


def _train_and_test(args: argparse.Namespace, training: "DigitImages", test: "DigitImages") -> None:
    import torch

    import poptorch
    from tremula.demo.classifiers import WithLoss, mnist_cnn

    network = mnist_cnn()
    options = poptorch.Options().deviceIterations(N_ITERATIONS).logCycleCount(True).randomSeed(1)
    options.showCompilationProgressBar(False)  # the command shows its own
    data = poptorch.DataLoader(options, training, batch_size=N_BATCH, shuffle=True)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    model = poptorch.trainingModel(WithLoss(network), options, optimizer)
    seconds = _train(model, data, args.epochs)
    n_images = args.epochs * len(data) * (data.combinedBatchSize or 0)
    rate = n_images / seconds
    print(f"Trained on {n_images:,} images in {seconds:.1f} s, {rate:,.0f} per second")
    model.detachFromDevice()
    print(f"Accuracy on {len(test):,} test images: {_accuracy(network, test):.2%}")
    _tell_machine(model, data.combinedBatchSize or 0, args)


def _train(model: Any, data: Any, n_epochs: int) -> float:  # noqa: ANN401
    began = time.perf_counter()
    n_calls = n_epochs * len(data)
    done, loss = 0, float("nan")
    with progress("training") as report_share:
        for _ in range(n_epochs):
            for images, labels in data:
                _, loss = model(images, labels)
                done += 1
                report_share(done / n_calls)
    print(f"Loss of the last batch: {loss:.3f}")
    return time.perf_counter() - began


def _accuracy(network: Any, test: "DigitImages") -> float:  # noqa: ANN401
    import poptorch

    model = poptorch.inferenceModel(network.eval())
    loader = poptorch.DataLoader(poptorch.Options(), test, batch_size=N_TEST_BATCH)
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in loader)
    return right / len(test)


def _tell_machine(model: Any, n_images: int, args: argparse.Namespace) -> None:  # noqa: ANN401
    """Compile the step for tiles; say how long it takes there, and leave a report."""
    from tremula.hardware.known_chips import chip

    print(f"\nCompiling the same step for the tiles of a {args.chip} …", flush=True)
    with progress("compiling"):
        cycles = model.cycleCount()
    clock_hz = chip(args.chip).clock_hz
    rate = n_images * clock_hz / cycles
    print(f"Modelled: {cycles / N_ITERATIONS:,.0f} cycles per batch of {N_BATCH} images,")
    print(f"  {rate:,.0f} images per second in training on a {args.chip}")
    path = model.compiled_program().save_report(args.report, "training")
    tile_demo.tell_report(path)
