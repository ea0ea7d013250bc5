"""What Inductor compiled is stored: a later process computes the same without a compiler."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx

from tests.ir.host.programs.test_equal_layers import Layered
from tests.ir.steps import captured, training_step
from tests.logs import Logged
from tests.scripts import run_code
from tremula.ir.host.compiled import keys, store
from tremula.ir.host.compiled.functions import (
    CannotStoreError,
    CompiledFunction,
    FunctionRecord,
    stored_text,
)
from tremula.ir.host.compiled.programs import (
    FunctionCall,
    ProgramRecord,
    constant_of,
    mask_of,
    store_program,
    stored_program,
)
from tremula.ir.host.programs.equal_layers import PartedGraph, equal_parts
from tremula.ir.host.programs.known_choices import program_key
from tremula.ir.host.transfer.outputs import OutputHook
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.repetition import Repetition
from tremula.ir.step import OUTPUT

CPU = torch.device("cpu")
PRODUCT = """
def call(args):
    x, y = args
    args.clear()
    out = empty_strided_cpu((2, 2), (2, 1), torch.float32)
    extern_kernels.mm(x, y, out=out)
    return (out, reinterpret_tensor(out, (2, 2), (1, 2), 0))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    return tmp_path


def product() -> FunctionRecord:
    return FunctionRecord(PRODUCT, {}, 1, ())


SCRIPT = """
import logging, sys, warnings
import torch
from torch import nn
from tests.ir.steps import captured
from tremula.ir.host.programs.inductor import InductorProgram
from tremula.ir.passes import HOST_PASSES, apply

warnings.simplefilter("ignore")  # Inductor imports deprecated modules
logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("tremula.gpu").setLevel(logging.INFO)
for scale in map(float, sys.argv[1:]):
    step = captured(lambda x: torch.tanh(x) * scale + x.mm(x), torch.ones(4, 4))
    program = InductorProgram(step, device=torch.device("cpu"))
    result = program.micro(torch.arange(16.0).reshape(4, 4) / 10)[0]
    print("RESULT", result.flatten().tolist())
    print("COMPILED", "torch._inductor.compile_fx" in sys.modules)
"""


def run(folder: Path, *scales: float) -> list[str]:
    """Lines that the script prints; Inductor's own cache keeps its compiled headers."""
    code, printed = run_code(
        SCRIPT,
        folder,
        *map(str, scales),
        TREMULA_CACHE_DIR=str(folder),
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )
    assert code == 0, printed
    return printed.splitlines()


@pytest.mark.slow
def test_a_second_process_computes_the_same_without_inductor(cache: Path):
    """Equal results, no import of Inductor; another number is compiled; a damaged one is, again."""
    first = run(cache, 2.0)
    assert first[-1] == "COMPILED True"
    second = run(cache, 2.0, 3.0)
    assert [line for line in second if "COMPILED" in line] == ["COMPILED False", "COMPILED True"]
    results = [line for line in second if "RESULT" in line]
    assert results[0] == first[-2]
    assert results[1] != first[-2]
    for library in (cache / "compiled").glob("*.so"):
        library.write_bytes(library.read_bytes()[:-100])
    third = run(cache, 2.0)
    assert third[-2:] == [first[-2], "COMPILED True"]
    assert sum("compiled again" in line for line in third) == 1


def test_functions_are_read_back_as_they_were_written():
    """A function from the store computes what its text says, also in two threads at a time."""
    store.store_function("a" * 32, product())
    record = store.stored_function("a" * 32)
    assert record == product()
    function = CompiledFunction(record, store.binary_path, CPU)
    x = torch.arange(4.0).reshape(2, 2)
    assert len(function([x, x])) == 1
    torch.testing.assert_close(function([x, x])[0], x @ x)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b"\xff", b'{"check": "0", "content": "1"}']
)
def test_a_damaged_record_is_one_line_in_the_log(content: bytes, logged: Logged):
    """It counts as missing and is removed, whatever is in the file."""
    store.store_function("b" * 32, product())
    path = store.folder() / f"{'b' * 32}.json"
    path.write_bytes(content)
    with logged.at_level(logging.INFO, "tremula.gpu"):
        assert store.stored_function("b" * 32) is None
        assert store.stored_function("b" * 32) is None
    assert len(logged.records) == 1
    assert not path.exists()


def test_writers_do_not_disturb_each_other():
    """While several threads write a record, readers see a whole one or none."""
    seen: list[FunctionRecord | None] = []

    def write_and_read() -> None:
        for _ in range(20):
            store.store_function("c" * 32, product())
            seen.append(store.stored_function("c" * 32))

    threads = [threading.Thread(target=write_and_read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [product()] * 80


def test_nothing_is_stored_where_caches_are_off(monkeypatch: pytest.MonkeyPatch):
    """PyTorch's variable against caches holds here, too."""
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    store.store_function("d" * 32, product())
    assert store.stored_function("d" * 32) is None
    assert not store.folder().exists()


def test_a_text_that_needs_other_names_is_not_stored():
    """What a later process would not have is found before it is written."""
    assert stored_text("import os\n" + PRODUCT, {}).startswith("def call(args):")
    for line in ("seed = inductor_seeds(1)", "y = extern_kernels.of_a_plugin(args)"):
        with pytest.raises(CannotStoreError, match=r"inductor_seeds|of_a_plugin"):
            stored_text(f"def call(args):\n    {line}\n    return args\n", {})


class Stored:
    """A part whose function is in the store: its graph, printed as Python."""

    def __init__(self, module: fx.GraphModule, n_results: int):
        self.module = module
        code = "\n".join(f"    {line}" for line in module.code.strip().splitlines())
        text = f"def call(args):\n{code}\n    return forward(None, *args)\n"
        self.key = keys.digest([text, str(n_results)])
        store.store_function(self.key, FunctionRecord(text, {}, n_results, ()))

    def prepare(self, args: Sequence[Tensor]) -> None: ...

    def __call__(self, *args: Tensor) -> list[Tensor]:
        return list(self.module(*args))


def test_a_stored_step_calls_its_functions_in_order():
    """A step of equal layers, read back, gives the results of the step itself."""
    torch.manual_seed(0)
    model, x = Layered([16] * 4), torch.randn(4, 8)
    step = apply(training_step(model, x), HOST_PASSES, "host")
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    graph = PartedGraph(step, equal_parts(step), Stored)
    expected = graph(*arguments)
    record = graph.record(())
    assert record is not None
    assert len(record.calls) > len({call.function for call in record.calls})
    store_program("e" * 32, record)
    program = stored_program("e" * 32, CPU)
    assert program is not None
    hook, seen = OutputHook(), []
    hook.listener = seen.append
    positions = [position for position, _ in step.results_of_kind(OUTPUT)]
    program.give_outputs(hook, positions)
    results = program(*arguments)
    torch.testing.assert_close(results, expected, rtol=0, atol=0)
    assert seen == [tuple(results[position] for position in positions)]


def test_masks_and_constants_of_a_stored_step():
    """Masks are drawn as PyTorch draws them, constants have their values."""
    store.store_function("a" * 32, product())
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    masks = (mask_of(x, 0.5), mask_of(x, 0.25))
    calls = (
        FunctionCall("a" * 32, (0, 1), (4,)),
        FunctionCall("a" * 32, (4, 2), (5,)),
        FunctionCall("a" * 32, (5, 3), (6,)),
    )
    store_program("f" * 32, ProgramRecord(1, masks, (constant_of(x),), calls, (6,)))
    program = stored_program("f" * 32, CPU)
    assert program is not None
    torch.manual_seed(3)
    (result,) = program(x)
    torch.manual_seed(3)
    first, second = (torch.bernoulli(torch.empty(2, 2), p) for p in (0.5, 0.25))
    torch.testing.assert_close(result, x @ first @ second @ x)


def test_a_program_without_one_of_its_functions_is_compiled_again(logged: Logged):
    """`tremula cache prune` may remove any file."""
    store.store_function("a" * 32, product())
    store_program("f" * 32, ProgramRecord(2, (), (), (FunctionCall("a" * 32, (0, 1), (2,)),), (2,)))
    (store.folder() / f"{'a' * 32}.json").unlink()
    with logged.at_level(logging.INFO, "tremula.gpu"):
        assert stored_program("f" * 32, CPU) is None
    assert [r.getMessage() for r in logged.records if "compiled again" in r.getMessage()]
    assert stored_program("f" * 32, CPU) is None


def test_a_program_is_known_by_values_versions_and_settings(monkeypatch: pytest.MonkeyPatch):
    """Another constant, shape, version or variable of Inductor is another program."""

    def key(values: list[float], n: int = 2) -> str:
        step = captured(lambda x: x * torch.tensor(values), torch.ones(n, 2))
        return program_key(step, CPU, Repetition())

    first = key([1.0, 2.0])
    assert key([1.0, 2.0]) == first
    others = [key([1.0, 3.0]), key([1.0, 2.0], n=3)]
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    others.append(key([1.0, 2.0]))
    monkeypatch.delenv("TORCHINDUCTOR_MAX_AUTOTUNE")
    monkeypatch.setattr(keys, "_versions", lambda: ("another",))
    others.append(key([1.0, 2.0]))
    assert len({first, *others}) == 5
