"""Collectives within groups of replicas on tiles, against NumPy over the replicas' values."""

import numpy as np
import torch

import tremula.ir.ops.shards  # noqa: F401  registers tremula::group_all_reduce
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.types import tile_shape, tile_type
from tremula.ir.run.session import connect
from tremula.ir.run.tile_run import capture_function
from tremula.poplar.target import IPUModel
from tremula.runtime.engine import Engine

SIZE, STRIDE, N_REPLICAS = 2, 2, 4  # groups (0, 2) and (1, 3)


def run_on_replicas(function, values: np.ndarray) -> list[np.ndarray]:
    """Row r of the values goes to replica r; every result has a row for each replica."""
    step = capture_function(function, [torch.from_numpy(values[0])])
    device = IPUModel("bow", N_REPLICAS, tiles_per_ipu=4).create_device()
    built = build_tile_program(step, device.target, Schedule(n_replicas=N_REPLICAS))
    engine = Engine(built.graph, [built.program]).load(device)
    results = []
    for _, node in zip(built.outputs, step.results(), strict=True):
        fake = node.meta["val"]
        results.append(np.zeros((N_REPLICAS, *tile_shape(fake)), tile_type(fake.dtype).dtype))
    for r in range(N_REPLICAS):
        connect(engine, built.inputs[0], values[r], r)
        for (_, handle), rows in zip(built.outputs, results, strict=True):
            connect(engine, handle, rows[r], r)
    engine.run()
    return results


def test_collectives_within_groups():
    """Each gives its replica what NumPy finds over the group; padded parts end in zeros."""
    values = np.arange(N_REPLICAS * 6, dtype=np.float32).reshape(N_REPLICAS, 2, 3)
    ops = torch.ops.tremula

    def all_of_them(x):
        return (
            ops.group_all_reduce(x, "ADD", SIZE, STRIDE),
            ops.group_all_reduce(x, "MAX", SIZE, STRIDE),
            ops.group_all_gather(x, SIZE, STRIDE),
            ops.group_reduce_scatter(x, "MEAN", SIZE, STRIDE),
            ops.group_shard(x, 4, 1),
            ops.group_gathered(ops.group_shard(x, SIZE, STRIDE), [2, 3], SIZE, STRIDE),
        )

    total, largest, rows, scattered, part, whole = run_on_replicas(all_of_them, values)
    for r in range(N_REPLICAS):
        group = values[r % 2 :: 2]
        member = r // 2
        np.testing.assert_array_equal(total[r], group.sum(0))
        np.testing.assert_array_equal(largest[r], group.max(0))
        np.testing.assert_array_equal(rows[r], group)
        np.testing.assert_array_equal(scattered[r], group.mean(0).reshape(2, 3)[member])
        padded = np.concatenate([values[r].ravel(), np.zeros(2, np.float32)])
        np.testing.assert_array_equal(part[r], padded.reshape(4, 2)[r])
        # Its own part, and the other member's: of the tensors of two replicas.
        expected = np.stack([group[0][0], group[1][1]])
        np.testing.assert_array_equal(whole[r], expected)
