"""The figures of large models and many chips: compiling, links, replicas, processes, planner."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Suite

if TYPE_CHECKING:
    from benchmarks.scale.planned import Case

SUITE = Suite("scale")


@SUITE.measurement("compiling")
def compiling() -> Iterator[Figure]:
    """Tile programs built and compiled: the best of three times, each in a fresh process."""
    from benchmarks.scale import compiling as of

    yield from _compiled("mnist-training", of.MNIST, "<= 3", n_times=3)
    yield from _compiled("gpt2-small", of.GPT2, "<= 6", n_times=3)
    yield from _compiled("resnet50", of.RESNET, "<= 6", n_times=3)
    yield from _compiled("wide-vocabulary", of.WIDE_VOCABULARY, "<= 8", "<= 2", n_times=3)
    yield from _compiled("gpt2-small-half", of.HALF_GPT2, "<= 6", fits=True, n_times=3)


@SUITE.measurement("equal-layers")
def equal_layers() -> Iterator[Figure]:
    """A training step of GPT with 32 equal layers: CPU time, and what a further layer adds."""
    from benchmarks.scale import compiling as of

    result = of.equal_layers()
    yield Figure.of("capture-gpt-32-layers", result.capture, "CPU s", "<= 4")
    yield Figure.of("compile-gpt-32-layers", result.compile, "CPU s", "<= 9")
    share = result.capture_of_layer * of.MANY_LAYERS / result.capture
    yield Figure.of("capture-share-of-layers", share, "of the whole", "<= 0.9")
    share = result.compile_of_layer * of.MANY_LAYERS / result.compile
    yield Figure.of("compile-share-of-layers", share, "of the whole", "<= 0.6")
    yield Figure.of("compile-memory-gpt-32-layers", result.n_bytes / of.GIB, "GiB", "<= 8")


@SUITE.measurement("large-models")
def large_models() -> Iterator[Figure]:
    """Models over 4 chips: GPT-2 small and BERT-Large."""
    from benchmarks.scale import compiling as of

    yield from _compiled("gpt2-small-training", of.GPT2_TRAINING, "<= 30", "<= 4", fits=True)
    yield from _compiled("bert-large-training", of.BERT_LARGE, "<= 90", "<= 10", fits=True)


@SUITE.measurement("bert-large-replicas")
def bert_large_replicas() -> Iterator[Figure]:
    """BERT-Large's training on a Pod64: CPU time of compiling 16 replicas, to that of one."""
    from benchmarks.scale import compiling as of

    one, all_of_them = (of.compiled(make) for make in (of.BERT_LARGE, of.BERT_LARGE_ON_A_POD64))
    ratio = all_of_them.cpu_seconds / one.cpu_seconds
    yield Figure.of("compile-bert-large-16-replicas", ratio, "× one replica", "<= 1.3")
    gib = all_of_them.n_bytes / of.GIB
    yield Figure.of("compile-memory-bert-large-16-replicas", gib, "GiB", "<= 10")
    share = all_of_them.memory_share
    yield Figure.of("fullest-tile-bert-large-16-replicas", share, "× memory", "<= 1")


@SUITE.measurement("gpt-1.3b")
def gpt_of_a_pod() -> Iterator[Figure]:
    """A GPT of 1.3 billion parameters over a Pod16, training phase by phase."""
    from benchmarks.scale.compiling import GIB, GPT_1_3B_PHASED, compiled_script

    result = compiled_script(GPT_1_3B_PHASED)
    yield Figure.of("compile-gpt-1.3b-training", result.cpu_seconds, "CPU s", "<= 180")
    yield Figure.of("compile-memory-gpt-1.3b-training", result.n_bytes / GIB, "GiB", "<= 12")
    yield Figure.of("fullest-tile-gpt-1.3b-training", result.memory_share, "× memory", "<= 1")


def _compiled(
    name: str,
    make: str,
    seconds: str,
    gib: str | None = None,
    *,
    fits: bool = False,
    n_times: int = 1,
) -> Iterator[Figure]:
    from benchmarks.scale.compiling import GIB, compiled

    result = compiled(make, n_times)
    yield Figure.of(f"compile-{name}", result.seconds, "s", seconds)
    if gib is not None:
        yield Figure.of(f"compile-memory-{name}", result.n_bytes / GIB, "GiB", gib)
    if fits:
        yield Figure.of(f"fullest-tile-{name}", result.memory_share, "× memory", "<= 1")


@SUITE.measurement("shared-code")
def shared_code() -> Iterator[Figure]:
    """Code memory and cycles of 24 encoder layers as one function, to those of layers in place."""
    from benchmarks.scale.compiling import encoder

    shared, plain = (encoder(24, is_outlined) for is_outlined in (True, False))
    code = shared.n_code_bytes / plain.n_code_bytes
    yield Figure.of("shared-code-memory", code, "× in place", "<= 0.15")
    yield Figure.of("shared-code-cycles", shared.cycles / plain.cycles, "× in place", "<= 1.1")


@SUITE.measurement("links")
def links() -> Iterator[Figure]:
    """Messages between chips against published measurements."""
    from tremula.validate import LINK_ROWS, PUBLISHED, Score, read_rows, validate

    rows = [*read_rows(PUBLISHED), *read_rows(LINK_ROWS)]
    score = Score.of(validate(rows, ["links between chips"]).checked)
    yield Figure.of("links-median-error", 100 * score.median, "%", "<= 10")


@SUITE.measurement("whole-models")
def whole_models() -> Iterator[Figure]:
    """Calls of whole models against published measurements."""
    from tremula.validate import PUBLISHED, Score, read_rows, validate
    from tremula.validate.workloads.model_call import FAMILY

    score = Score.of(validate(read_rows(PUBLISHED), [FAMILY]).checked)
    yield Figure.of("whole-models-median-error", 100 * score.median, "%", "<= 20")


@SUITE.measurement("hall")
def hall() -> Iterator[Figure]:
    """An all-reduce of 4 MB over 10,000 chips, compiled and costed."""
    from tremula.compiler.compile import compile_graph
    from tremula.poplar.graph import Graph
    from tremula.poplar.programs import Sequence
    from tremula.poplar.target import IPUModel
    from tremula.poplibs import gcl
    from tremula.runtime.forecast import forecast

    began, n = time.process_time(), 10_000
    graph = Graph(IPUModel("bow", n, tiles_per_ipu=64).create_device(), replication_factor=n)
    gradients = graph.add_variable("float", [1_000_000], "gradients", mapping="linear")
    sequence = Sequence()
    gcl.all_reduce_in_place(graph, gradients, sequence)
    forecast(compile_graph(graph, [sequence]))
    yield Figure.of("hall-all-reduce", time.process_time() - began, "s", "<= 10")


@SUITE.measurement("replicas")
def replicas() -> Iterator[Figure]:
    """Compile time of a pipeline of four chips, 16 times side by side, to that of one alone."""
    from benchmarks.scale.programs import gpt_task
    from tremula.explore import Candidate
    from tremula.explore.trial import compile_candidate

    cuts = tuple(f"layers.{i}" for i in (1, 2, 3))
    times_s = []
    for n_replicas in (1, 1, 16):  # the first loads what all of them need
        task = gpt_task(4 * n_replicas)
        began = time.process_time()
        compile_candidate(task, Candidate(cuts, n_replicas, accumulation=8))
        times_s.append(time.process_time() - began)
    yield Figure.of("compile-16-replicas", times_s[2] / times_s[1], "× one replica", "<= 1.3")


@SUITE.measurement("processes")
def processes() -> Iterator[Figure]:
    """Every weight after five steps in 2, 4 and 8 processes, against one process."""
    import torch

    from benchmarks.scale.programs import TRAINING

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(TRAINING, encoding="utf-8")
        subprocess.run([sys.executable, str(script)], check=True, capture_output=True)
        alone = torch.load(f"{script}.1.0", weights_only=True)
        for n in (2, 4, 8):
            launch = [sys.executable, "-m", "tremula", "launch", "--nproc", str(n), str(script)]
            subprocess.run(launch, check=True, capture_output=True)
            result = [torch.load(f"{script}.{n}.{i}", weights_only=True) for i in range(n)]
            furthest = max(
                float((weights[name] - alone[name]).abs().max())
                for weights in result
                for name in alone
            )
            yield Figure.of(f"weights-of-{n}-processes", furthest, "off", "<= 1e-6")


@SUITE.measurement("planner")
def planner() -> Iterator[Figure]:
    """Time of a sample as planned, to that of the best of all cuts into two stages or none."""
    from benchmarks.scale.programs import gpt_task
    from tremula.explore import Candidate, plan
    from tremula.explore.trial import try_candidate
    from tremula.explore.workers import results_of

    task = gpt_task(2, n_layers=3, n_tiles=32)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        result = plan(task, folder=folder, batch=8)
        yield Figure.of("planner-seconds", time.perf_counter() - began, "s", "<= 300")
    cuts = [cut for n in (0, 1) for cut in combinations(result.segments.names, n)]
    every = [
        Candidate(cut, 1, accumulation=8, recomputes=recomputes)
        for cut in cuts
        if cut
        for recomputes in (True, False)
    ]
    every += [Candidate((), 2, accumulation=4, merges_sums=merges) for merges in (False, True)]
    outcomes = [o for _, o in results_of(lambda c: try_candidate(task, c), every) if o.fits]
    best = max(outcome.samples_per_s for outcome in outcomes)
    yield Figure.of("planner-to-best", best / result.best.samples_per_s, "× best", "<= 1.05")


@SUITE.measurement("planner-gpt2")
def planner_gpt2() -> Iterator[Figure]:
    """GPT-2 small, training over four chips, against embedding and head on a separate chip."""
    from benchmarks.scale.planned import gpt2

    yield from _planned("gpt2", gpt2())


@SUITE.measurement("planner-resnet50")
def planner_resnet50() -> Iterator[Figure]:
    """ResNet-50, training over four chips, against four replicas."""
    from benchmarks.scale.planned import resnet50_over_chips

    yield from _planned("resnet50", resnet50_over_chips())


@SUITE.measurement("planner-bert-large")
def planner_bert_large() -> Iterator[Figure]:
    """BERT-Large, training over four chips, against 3, 7, 7 and 7 layers."""
    from benchmarks.scale.planned import bert_large

    yield from _planned("bert-large", bert_large())


def _planned(name: str, case: "Case") -> Iterator[Figure]:
    from benchmarks.scale.planned import planned

    result = planned(case)
    yield Figure.of(f"planner-{name}-to-public", result.time_to_public, "× public", "<= 1.05")
    yield Figure.of(f"planner-{name}-minutes", result.minutes, "minutes", "<= 5")
    yield Figure.of(f"planner-{name}-fullest-tile", result.memory_share, "× memory", "<= 1")
    any_public = result.time_to_any_public  # told, not demanded: it may not fit
    yield Figure.of(f"planner-{name}-to-any-public", any_public, "× public", "> 0")
