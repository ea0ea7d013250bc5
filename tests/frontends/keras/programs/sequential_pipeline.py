"""A pipeline of nested models over four chips: two stages, two replicas, evaluated."""

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

BATCH, ACCUMULATED, REPLICAS, STEPS = 2, 4, 2, 16


def data_set(n_columns=6):
    rng = np.random.default_rng(10)
    x = rng.normal(size=(BATCH * STEPS, n_columns)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)


def block(units, name):
    inputs = tf.keras.Input((units,))
    x = tf.keras.layers.Dense(units, activation="tanh")(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.add([x, inputs]), name=name)


def make_model():
    tf.keras.utils.set_random_seed(15)
    model = tf.keras.Sequential()
    model.add(tf.keras.Input((6,)))
    model.add(tf.keras.layers.Dense(8, name="stem"))
    model.add(block(8, "block_0"))
    model.add(block(8, "block_1"))
    model.add(tf.keras.layers.Dense(2, name="head"))
    return model


def assign(model):
    """The second block and the head are the second stage."""
    stages = model.get_pipeline_stage_assignment()
    for assignment in stages:
        nested = getattr(assignment, "nested_model", None)
        name = assignment.layer.name if nested is None else nested.name
        stage = int(name in ("block_1", "head"))
        if nested is None:
            assignment.pipeline_stage = stage
            continue
        for inner in assignment.pipeline_stage_assignments:
            inner.pipeline_stage = stage
    model.set_pipeline_stage_assignment(stages)


LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def main():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2 * REPLICAS
    config.ipu_model.tiles_per_ipu = 4
    config.optimizations.maximum_cross_replica_sum_buffer_size = 1 << 20
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make_model()
        assign(model)
        model.print_pipeline_stage_assignment_summary()
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=ACCUMULATED,
            pipeline_schedule=ipu.ops.pipelining_ops.PipelineSchedule.Interleaved,
            gradient_accumulation_reduction_method=(
                ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN
            ),
        )
        model.compile(
            optimizer=tf.keras.optimizers.SGD(0.2, momentum=0.5),
            loss=LOSS,
            metrics=["sparse_categorical_accuracy"],
            steps_per_execution=STEPS // REPLICAS,
        )
        model.fit(data_set(), epochs=2, verbose=0)
        result = model.evaluate(data_set(), verbose=0, return_dict=True)

    reference, optimizer = make_model(), tf.keras.optimizers.SGD(0.2, momentum=0.5)
    for _ in range(2):
        batches = list(data_set())
        for i in range(0, STEPS, ACCUMULATED * REPLICAS):
            group = batches[i : i + ACCUMULATED * REPLICAS]
            with tf.GradientTape() as tape:
                loss = tf.add_n([LOSS(y, reference(x)) for x, y in group]) / len(group)
            gradients = tape.gradient(loss, reference.trainable_variables)
            optimizer.apply_gradients(zip(gradients, reference.trainable_variables))
    for own, other in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=1e-5)
    losses = [float(LOSS(y, reference(x))) for x, y in data_set()]
    np.testing.assert_allclose(result["loss"], np.mean(losses), atol=1e-4)


if __name__ == "__main__":
    main()
