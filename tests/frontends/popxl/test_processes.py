"""Replicas in several processes compute what they compute in one, to the bit."""

import io
import json
from contextlib import redirect_stdout

import numpy as np

from tests.scripts import run_instances

SCRIPT = """
import json, os, sys
import numpy as np
import popxl
from popxl import ops

together = "POPDIST_NUM_TOTAL_REPLICAS" in os.environ
ir = popxl.Ir("popdist" if together else 4)
rng = np.random.default_rng(1)
with ir.main_graph, popxl.in_sequence(True):
    x_stream = popxl.h2d_stream((3,), popxl.float32)
    x = ops.host_load(x_stream)
    far = popxl.variable(rng.normal(size=(2, 3)).astype(np.float32),
                         replica_grouping=ir.replica_grouping(2, 2))
    whole, shard = popxl.replica_sharded_variable(rng.normal(size=6).astype(np.float32))
    total = ops.collectives.replicated_all_reduce(x * far, "mean", ir.replica_grouping(2, 2))
    ops.scaled_add_(far, total, b=0.5)
    gathered = ops.collectives.replicated_all_gather(shard)
    part = ops.collectives.replica_sharded_slice(gathered * ops.sum(x))
    ops.var_updates.copy_var_update_(shard, part)
    y_stream = popxl.d2h_stream((3,), popxl.float32)
    ops.host_store(y_stream, total + ops.slice(gathered, 0, 3))
data = np.arange(12, dtype=np.float32).reshape(4, 3)
first = ir.replica_offset
own = data[first : first + ir.instance_replication_factor]
with popxl.Session(ir) as session:
    y = [session.run({x_stream: own})[y_stream].tolist() for _ in range(2)]
    held = [session.get_tensor_data(v).tolist() for v in (far, whole)]
print(json.dumps({"first": first, "y": y, "held": held}))
"""


def test_two_processes(tmp_path):
    """Four replicas over two processes: streams are each process's own, variables those of all."""
    both = run_instances(SCRIPT, tmp_path, n=2, n_replicas=4)
    for code, text in both:
        assert code == 0, text
    printed = io.StringIO()
    with redirect_stdout(printed):  # all replicas in this process
        exec(SCRIPT, {})
    expected = json.loads(printed.getvalue())
    result = [json.loads(text[text.index("{") :]) for _, text in both]
    assert [part["first"] for part in result] == [0, 2]
    np.testing.assert_array_equal(
        np.concatenate([part["y"] for part in result], axis=1), expected["y"]
    )
    assert all(part["held"] == expected["held"] for part in result)
