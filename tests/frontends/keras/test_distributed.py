"""Keras in several processes: PopDistStrategy, Horovod's names, the settings of a process."""

import numpy as np
import pytest

import horovod.tensorflow as hvd
import popdist.tensorflow
from tests.scripts import run_instances
from tremula.keras import KerasError, as_tensorflow, ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend

SCRIPT = """
import tremula.keras
tremula.keras.as_tensorflow()
import numpy as np
import popdist
import popdist.tensorflow
import tensorflow as tf
import horovod.tensorflow as hvd
from tensorflow.python import ipu
from tensorflow.python.ipu.distributed import popdist_strategy

rank, size = popdist.getInstanceIndex(), popdist.getNumInstances()
config = popdist.tensorflow.set_ipu_config(ipu.config.IPUConfig())
config.ipu_model.tiles_per_ipu = 4
config.configure_ipu_system()
rng = np.random.default_rng(1)
x, y = rng.random((16, 3), dtype=np.float32), rng.random((16, 1), dtype=np.float32)
rows = tf.data.Dataset.from_tensor_slices((x, y)).shard(size, rank).batch(2, drop_remainder=True)
strategy = popdist_strategy.PopDistStrategy()
with strategy.scope():
    assert strategy.num_replicas_in_sync == 2
    tf.random.set_seed(rank)  # every process begins with the weights of the first
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse", steps_per_execution=2)
    model.fit(rows, verbose=0, shuffle=False)
tf.random.set_seed(0)
alone = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
alone.compile(tf.keras.optimizers.SGD(0.1), "mse")
for i in range(0, 16, 4):
    alone.train_on_batch(x[i : i + 4], y[i : i + 4])
for own, other in zip(model.get_weights(), alone.get_weights()):
    np.testing.assert_allclose(own, other, atol=1e-5)
assert float(hvd.allreduce(float(rank), op=hvd.Sum)) == 1.0
assert ipu.distributed.allgather(tf.constant([rank])).tolist() == [0, 1]
assert float(strategy.reduce(tf.distribute.ReduceOp.MEAN, tf.constant(float(rank)))) == 0.5
"""


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path):
    """The weights of a process that sees all rows, from two that see half each."""
    for code, printed in run_instances(SCRIPT, tmp_path, 2, 2):
        assert code == 0, printed


def test_a_single_process():
    """Collectives give the value back; settings name one process."""
    config = popdist.tensorflow.set_ipu_config(ipu.config.IPUConfig(), ipus_per_replica=2)
    assert (config.auto_select_ipus, config.n_chips) == (2, 2)
    distribution = config.experimental.multi_replica_distribution
    assert (distribution.process_count, distribution.process_index) == (1, 0)
    hvd.init()
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    np.testing.assert_array_equal(hvd.allreduce(np.float32([1, 2])), [1, 2])
    variable = keras.Variable([1.0])
    hvd.broadcast_variables([variable], root_rank=0)
    np.testing.assert_array_equal(hvd.broadcast(variable, 0), [1])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.apply([keras.ops.ones(1)], [variable])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), [0.0])
    tf = as_tensorflow()
    strategy = tf.python.ipu.distributed.PopDistStrategy()
    assert strategy.num_replicas_in_sync == ipu.ipu_strategy.IPUStrategy().num_replicas_in_sync
    with pytest.raises(KerasError, match="takes an IPUConfig; got 3"):
        popdist.tensorflow.set_ipu_config(3)
    with pytest.raises(KerasError, match="reduce_op must be SUM or MEAN; got 'MAX'"):
        strategy.reduce("MAX", 1.0)
    hvd.shutdown()
