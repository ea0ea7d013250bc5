"""Parts of GPU programs: streams, random masks, memory formats, transfers, choice of a backend."""

import copy
import gc
import threading

import pytest
import torch
from torch import Tensor, nn

import poptorch
from tests.ir.steps import captured, training_step
from tremula.ir.host.compile_isolation import isolate_compiling_thread
from tremula.ir.host.passes.memory_format import image_format, relax_strides
from tremula.ir.host.passes.random_masks import can_draw_first, draw_first, draws, without_draws
from tremula.ir.host.programs import cuda_graph, fastest
from tremula.ir.host.programs.cuda_graph import as_one_tensor
from tremula.ir.host.programs.program import DeviceState
from tremula.ir.host.programs.streams import stream_of_nodes
from tremula.ir.host.transfer.inputs import PinnedStaging, announce, follower
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.settings import configured
from tremula.ir.step import CapturedStep

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Dropping(nn.Module):
    """Two layers that drop some of their values."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 16), nn.Dropout(0.3), nn.Tanh(), nn.Linear(16, 4), nn.Dropout(0.2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.net(x), torch.zeros_like(x[:, :4]))


def dropping() -> tuple[Dropping, CapturedStep, list[Tensor]]:
    torch.manual_seed(0)
    model, x = Dropping(), torch.randn(6, 8)
    step = apply(training_step(model, x), HOST_PASSES, "host")
    return model, step, [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]


def test_masks_drawn_first_are_drawn_in_the_same_order():
    """Moved to the front, and as inputs of the rest, masks are those of the step as it was."""
    _, step, arguments = dropping()
    torch.manual_seed(5)
    expected = step.module().forward(*arguments)
    assert can_draw_first(step)
    first = draw_first(step, CPU)
    torch.manual_seed(5)
    torch.testing.assert_close(first.module().forward(*arguments), expected, rtol=0, atol=0)
    rest, drawing = without_draws(first)
    assert not draws(rest)
    torch.manual_seed(5)
    result = rest.module().forward(*arguments, *drawing())
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


def test_a_step_that_draws_normal_numbers_keeps_its_order():
    """Only masks depend on nothing but a shape."""
    step = apply(captured(lambda x: x + torch.randn_like(x), torch.ones(4)), HOST_PASSES, "host")
    assert not can_draw_first(step)


def test_a_choice_without_a_comparison_says_why(monkeypatch: pytest.MonkeyPatch):
    """Where Inductor's program could not be compared, ATen's is chosen at once, with a reason."""
    monkeypatch.setattr(cuda_graph, "fits_on_streams", lambda _step, _device: False)
    monkeypatch.setattr(cuda_graph, "InputPrefetcher", lambda _device: None)
    step = captured(lambda x: x + torch.randn_like(x), torch.ones(4))
    program = fastest.FastestProgram(step, device=CPU)
    assert program.backend == "cuda-graph"
    assert "random numbers" in program.reason
    undecided = fastest.FastestProgram(captured(torch.tanh, torch.ones(4)), device=CPU)
    assert (undecided.backend, undecided.reason) == ("", "")
    undecided._choose(undecided, "results differ")
    assert (undecided.backend, undecided.reason) == ("cuda-graph", "results differ")


def test_auto_goes_on_if_the_other_program_fails(monkeypatch: pytest.MonkeyPatch):
    """The call is computed by ATen's program from the state before, and the reason is known."""
    monkeypatch.setattr(cuda_graph, "fits_on_streams", lambda _step, _device: False)
    monkeypatch.setattr(cuda_graph, "InputPrefetcher", lambda _device: None)
    program = fastest.FastestProgram(captured(torch.tanh, torch.ones(4)), device=CPU)
    state = DeviceState([torch.ones(3)], [], [], [], [])
    ran: list[tuple[object, list[float]]] = []

    def fails(_rival: object, state: DeviceState, _inputs: object) -> list:
        state.parameters[0].zero_()
        raise AssertionError("\nExpect the tensor to be 16 bytes aligned.")

    def run_by(by: object, state: DeviceState, _inputs: object, _give: object) -> None:
        ran.append((by, state.parameters[0].tolist()))

    monkeypatch.setattr(program, "_run_rival", fails)
    monkeypatch.setattr(program, "_run_by", run_by)
    program._run_both(None, state, [], lambda _number, _outputs: None)  # pyright: ignore[reportArgumentType]
    assert ran == [(program, [1.0, 1.0, 1.0])]
    assert program.backend == "cuda-graph"
    assert program.reason.endswith("AssertionError: Expect the tensor to be 16 bytes aligned.")


def test_every_operation_has_a_stream_and_gradients_of_weights_have_their_own():
    """A stream for each launch; what nothing waits for does not delay what follows."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.mse_loss(self.model(x), x)

    step = apply(training_step(Loss(), torch.randn(6, 8)), HOST_PASSES, "host")
    streams = stream_of_nodes(step.graph)
    products = [n for n in step.graph.nodes if n.target is torch.ops.aten.mm.default]
    assert len({streams[node] for node in products}) > 1
    assert set(stream_of_nodes(step.graph, 1).values()) == {0}


def test_slices_of_one_tensor_are_one_transfer():
    """Contiguous micro-batches are one tensor without a copy; others are not."""
    whole = torch.arange(24.0).reshape(6, 4)
    together = as_one_tensor(list(whole.split(2)))
    assert together is not None
    assert torch.equal(together, whole.reshape(3, 2, 4))
    assert together.data_ptr() == whole.data_ptr()
    first, second, third = whole.split(2)
    assert as_one_tensor([first, third, second]) is None
    assert as_one_tensor([first, second.clone(), third]) is None
    assert as_one_tensor([whole.t()[:2], whole.t()[2:]]) is None


def test_images_have_channels_last_on_a_gpu_only():
    """Steps with convolutions of images; other steps and other devices stay as they are."""
    conv, x = nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8)
    step = apply(captured(conv, x), HOST_PASSES, "host")
    assert image_format(step, torch.device("cuda")) is torch.channels_last
    assert image_format(step, CPU) is torch.preserve_format
    dense = apply(captured(nn.Linear(3, 2), torch.randn(4, 3)), HOST_PASSES, "host")
    assert image_format(dense, torch.device("cuda")) is torch.preserve_format


def test_views_become_reshapes():
    """A channels-last tensor cannot be viewed as a list of rows, but reshaped."""
    conv, x = nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8)
    step = captured(lambda x, w: torch.conv2d(x, w).view(2, -1), x, conv.weight.detach())
    run = relax_strides(apply(step, HOST_PASSES, "host")).module().forward
    weight = conv.weight.detach().to(memory_format=torch.channels_last)
    (result,) = run(x.to(memory_format=torch.channels_last), weight)
    expected = torch.conv2d(x, conv.weight).reshape(2, -1)
    torch.testing.assert_close(result, expected.detach(), rtol=1e-5, atol=1e-5)


def test_two_programs_agree_within_rounding_only():
    """NaN agrees with NaN, and with nothing else."""
    a, nan = torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")])
    assert fastest.agree([[a, torch.arange(3)]], [[a * 1.001, torch.arange(3)]], 0.02)
    assert fastest.agree([[nan]], [[nan.clone()]], 0.02)
    assert not fastest.agree([[a]], [[a * 1.1]], 0.02)
    assert not fastest.agree([[a]], [[nan]], 0.02)
    assert not fastest.agree([[nan]], [[a]], 0.02)
    noise = 1e-4 * torch.randn(2, 5)  # small beside the others: all of it may be rounding
    assert fastest.agree([[a, noise]], [[a, -noise]], 0.02)
    assert not fastest.agree([[a], [noise]], [[a], [-noise]], 0.02)
    # A limit for each kind, as the model's own sensitivity to rounding gives it.
    limits = fastest.differences([[a], [noise], []], [[a * 1.01], [-noise], []])
    torch.testing.assert_close(limits, torch.tensor([0.01, 2.0, 0.0]), rtol=1e-4, atol=1e-6)
    assert fastest.agree([[a], [noise], []], [[a * 1.009], [-noise], []], limits)
    assert not fastest.agree([[a], [noise], []], [[a * 1.02], [-noise], []], limits)


def test_programs_may_differ_by_what_another_rounding_changes():
    """A model whose gradients are mostly rounding allows more, but never anything at all."""
    weights, gradients = torch.ones(3), torch.tensor([1.0, -2.0])
    calm = [[weights], [gradients]], [[weights * 1.001], [gradients * 1.002]]
    assert fastest.largest_errors(*calm, 0.02).tolist() == pytest.approx([0.02, 0.02])
    noisy = [[weights], [gradients]], [[weights], [gradients * 1.2]]
    assert fastest.largest_errors(*noisy, 0.02).tolist() == pytest.approx([0.02, 0.4])
    unrelated = [[weights], [gradients]], [[weights], [gradients.flip(0)]]
    assert fastest.largest_errors(*unrelated, 0.02)[1] < 1


def test_what_follows_a_tensor_is_known_while_both_live():
    """By its address: slices match, too; other shapes and types, and dead tensors, do not."""
    first, second = torch.arange(6.0), torch.arange(6.0) + 6
    assert follower(first) is None
    announce([(first, second)])
    result = follower(first.view(2, 3))
    assert result is not None
    assert torch.equal(result, second.view(2, 3))
    assert follower(first[:4]) is None
    announce([(first, second.int())])
    assert follower(first) is None
    announce([(first, second)])
    del second, result
    gc.collect()
    assert follower(first) is None


@needs_gpu
def test_the_inputs_of_the_next_call_are_fetched_while_one_runs():
    """An announced batch is not transferred again unless it changed; results do not change."""

    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    batches = [torch.full((4, 3), float(i)).pin_memory() for i in range(4)]
    options = poptorch.Options().deviceIterations(2)
    with configured(host="cuda-graph", device="cuda"):
        model = poptorch.inferenceModel(Twice(), options)
        for number, batch in enumerate(batches):
            announce(zip(batches[number : number + 1], batches[number + 1 :], strict=False))
            if number == 3:
                batch.add_(1)  # after it was fetched
            assert torch.equal(model(batch), 2 * batch)
    assert model.compiled_program().session.program._prefetcher.n_taken == 2


def test_a_thread_that_compiles_does_not_set_generators_back():
    """Numbers that another thread draws meanwhile are not drawn twice; PyTorch is restored."""
    before = torch.random.set_rng_state
    drawn, may_end = threading.Event(), threading.Event()

    def compile_meanwhile() -> None:
        with isolate_compiling_thread():
            saved = torch.random.get_rng_state()
            drawn.set()
            may_end.wait()
            torch.random.set_rng_state(saved)

    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    thread = threading.Thread(target=compile_meanwhile)
    thread.start()
    drawn.wait()
    result = [torch.rand(2)]
    torch.random.set_rng_state(torch.random.get_rng_state())  # others may
    may_end.set()
    thread.join()
    result.append(torch.rand(2))
    torch.testing.assert_close(torch.cat(result), expected, rtol=0, atol=0)
    assert torch.random.set_rng_state is before


@needs_gpu
@pytest.mark.filterwarnings("default")  # importing Inductor warns
def test_auto_settles_on_a_backend_without_changing_results(monkeypatch: pytest.MonkeyPatch):
    """Losses of a model with dropout do not depend on whether it is compiled meanwhile.

    The next model with the same step begins with what was chosen.
    """
    torch.manual_seed(0)
    start, x = Dropping(), torch.randn(64, 8)

    known: dict[str, str] = {}
    chosen: dict[str, str] = {}

    def trained(patience_s: float, n_calls: int = 0) -> list[float]:
        monkeypatch.setattr(fastest, "_PATIENCE_S", patience_s)
        monkeypatch.setattr(fastest, "known_choice", known.get)
        monkeypatch.setattr(fastest, "remember_choice", chosen.__setitem__)
        monkeypatch.setattr(fastest, "stored_program", lambda _key, _device: None)
        model = copy.deepcopy(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        options = poptorch.Options().randomSeed(3)
        with configured(host="auto", device="cuda"):
            training = poptorch.trainingModel(model, options, optimizer)
            losses = [training(x).item()]
        program = training.compiled_program().session.program
        while len(losses) < n_calls or not (n_calls or program.backend):
            losses.append(training(x).item())
        assert bool(program.reason) == bool(program.backend)
        return losses + [training(x).item() for _ in range(5)]

    compiled = trained(0.0)
    plain = trained(float("inf"), len(compiled) - 5)
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-5)
    assert len(chosen) == 1
    for choice in ("cuda-graph", "inductor-cuda-graph"):
        known[next(iter(chosen))] = choice
        again = trained(0.0)
        assert len(again) == 6, "it is chosen before the first call"
        torch.testing.assert_close(again, compiled[:6], rtol=1e-3, atol=1e-5)


@needs_gpu
def test_inputs_travel_by_pieces():
    """Each call copies the values that the tensor has at that time."""
    staging = PinnedStaging()
    source = torch.arange(3_000_001, dtype=torch.float32)
    for turn in range(3):
        target = torch.empty(3_000_001, device="cuda")
        source += turn
        expected = source.clone()
        staging.copy(0, source, target)
        source.zero_()
        torch.testing.assert_close(target.cpu(), expected, rtol=0, atol=0)
        source.copy_(expected)


class Slow(nn.Module):
    """A model whose backward pass and update take long beside its loss: its input is large, too."""

    def __init__(self, n: int = 2048) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(n, n, bias=False) for _ in range(8)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layers(x)
        return y.mean(1), poptorch.identity_loss(y.square(), "mean")


def _losses(host: str, batches: list[Tensor], n_iterations: int) -> tuple[list[Tensor], Tensor]:
    """What calls return, and a weight after them."""
    torch.manual_seed(0)
    model = Slow()
    options = poptorch.Options().deviceIterations(n_iterations)
    options.outputMode(poptorch.OutputMode.All)
    with configured(host=host, device="cuda"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        training = poptorch.trainingModel(model, options, optimizer)
        losses = [loss for batch in batches for loss in training(batch)]
        training.copyWeightsToHost()
    return losses, model.layers[0].weight.detach().clone()


@needs_gpu
@pytest.mark.filterwarnings("default")  # importing Inductor warns
@pytest.mark.parametrize("host", ["cuda-graph", "inductor-cuda-graph", "auto"])
@pytest.mark.parametrize("n_iterations", [1, 3])
def test_outputs_that_leave_early_are_those_of_their_call(host: str, n_iterations: int):
    """Calls follow each other without waiting; results are those of one operation at a time."""
    torch.manual_seed(1)
    batches = [torch.randn(n_iterations * 256, 2048) for _ in range(6)]
    expected, weight = _losses("eager", batches, n_iterations)
    losses, trained = _losses(host, batches, n_iterations)
    torch.testing.assert_close(losses, expected, rtol=2e-3, atol=2e-4)
    torch.testing.assert_close(trained, weight, rtol=2e-3, atol=2e-4)
    assert len({float(loss.flatten()[0]) for loss in losses}) == len(losses)


@needs_gpu
def test_a_call_returns_before_the_update_is_complete():
    """The GPU is still busy then; what reads weights waits for it.

    Other processes may delay this one until the GPU is done, so one call of several counts.
    """

    def returns_early() -> bool:
        training(x)
        return not torch.cuda.current_stream().query()

    model = Slow(4096)
    with configured(host="cuda-graph", device="cuda"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
        x = torch.randn(2048, 4096)
        training(x)
        torch.cuda.synchronize()
        assert any(returns_early() for _ in range(20))
        _, loss = training(x)
        training.copyWeightsToHost()
    assert torch.cuda.current_stream().query()
    assert torch.isfinite(loss)
