"""TensorFlow's functions compute what NumPy does, with TensorFlow's types and arguments."""

import numpy as np
import pytest
import torch

from tremula.base.errors import PoplarError
from tremula.keras import as_tensorflow

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def tf():
    return as_tensorflow()


def close(own, other, **tolerance):
    np.testing.assert_allclose(np.asarray(own), other, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def test_types(tf):
    """Types are those of Keras, PyTorch and NumPy at once; Python's numbers are 32 bits wide."""
    assert tf.float32 == torch.float32 == tf.as_dtype(np.float32)
    assert tf.constant(1.0).dtype == tf.float32 != tf.float16
    assert tf.constant([1, 2]).dtype == tf.int32
    assert tf.constant(np.zeros(2)).dtype == tf.float64
    assert (tf.int32.max, tf.float16.size, tf.uint8.is_integer) == (2**31 - 1, 2, True)
    assert isinstance(tf.float32, tf.DType)
    with pytest.raises(TypeError, match="no type 'float33'"):
        tf.as_dtype("float33")
    variable = tf.Variable([1.0, 2.0], name="v")
    variable.assign_add([1.0, 1.0])
    close(variable.numpy(), [2, 3])
    assert isinstance(variable, tf.Variable)
    shape = tf.TensorShape([2, None, 3])
    assert (shape.as_list(), shape.rank, shape.num_elements()) == ([2, None, 3], 3, None)


def test_arrays(tf):
    """Making, cutting, joining and looking up."""
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    close(tf.constant(2.0, shape=[2, 3]), np.full((2, 3), 2.0))
    close(tf.concat([x, x], axis=1), np.concatenate([x, x], 1))
    close(tf.split(x, [1, -1], axis=1)[1], x[:, 1:])
    close(tf.gather(x, [2, 0]), x[[2, 0]])
    close(tf.gather(x, [[0, 3], [1, 1], [2, 0]], batch_dims=1), np.take_along_axis(
        x, np.array([[0, 3], [1, 1], [2, 0]]), 1))  # fmt: skip
    close(tf.gather_nd(x, [[0, 1], [2, 3]]), [1, 11])
    close(
        tf.pad(x, [[1, 0], [0, 2]], constant_values=7),
        np.pad(x, [(1, 0), (0, 2)], constant_values=7),
    )
    for mode in ("reflect", "symmetric"):  # of any rank, along any axis
        images, widths = x.reshape(3, 2, 2), [(1, 2), (1, 0), (0, 0)]
        close(tf.pad(images, widths, mode=mode.upper()), np.pad(images, widths, mode=mode))
    with pytest.raises(PoplarError, match="by at most 2"):
        tf.pad(x, [[3, 0], [0, 0]], mode="REFLECT")
    close(tf.slice(x, [1, 0], [-1, 2]), x[1:, :2])
    close(tf.one_hot([1, 5], 3, on_value=2.0, off_value=-1.0), [[-1, 2, -1], [-1, -1, -1]])
    close(tf.where([True, False], 1.0, 2.0), [1, 2])
    close(tf.transpose(x), x.T)
    close(tf.range(3) * 2, [0, 2, 4])
    assert [int(i) for i in tf.range(1, 4)] == [1, 2, 3]
    assert tuple(tf.shape(x)) == (3, 4)
    close(x - tf.reduce_min(x), x)
    close(tf.tensor_scatter_nd_update(x, [[0, 0]], [9.0])[0, 0], 9)
    with pytest.raises(TypeError, match="3 values do not fill"):
        tf.constant([1, 2, 3], shape=(2, 2))
    with pytest.raises(ValueError, match="do not add up to 4"):
        tf.split(x, [1, 1], axis=1)


def test_keras_backend(tf):
    """Means and deviations of `tf.keras.backend` take tensors and booleans."""
    backend, x = tf.keras.backend, RNG.normal(size=(3, 4)).astype(np.float32)
    close(backend.mean(tf.constant(x), axis=-1, keepdims=True), x.mean(-1, keepdims=True))
    close(backend.std(tf.constant(x), axis=0), x.std(0))
    close(backend.var(tf.constant(x)), x.var())
    close(backend.mean(tf.constant(x) > 0), (x > 0).mean())
    assert backend.dtype(tf.constant(x)) == "float32"


def test_maths(tf):
    """Reductions, norms, segments and sorting."""
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    close(tf.reduce_mean(input_tensor=x, axis=[0, 1]), x.mean())
    assert int(tf.reduce_mean([1, 2, 4])) == 2
    assert tf.reduce_sum([1, 2]).dtype == tf.int32
    close(tf.math.reduce_std(x, axis=1, keepdims=True), x.std(1, keepdims=True))
    close(tf.clip_by_value(x, -0.5, 0.5), x.clip(-0.5, 0.5))
    close(tf.norm(x), np.linalg.norm(x))
    close(tf.clip_by_global_norm([x, x], 1.0)[0][1], x / np.linalg.norm([x, x]), rtol=1e-4)
    close(tf.matmul(x, x, transpose_b=True), x @ x.T)
    close(tf.math.unsorted_segment_sum([1.0, 2, 3], [2, 0, 2], 3), [2, 0, 4])
    close(tf.math.divide_no_nan([1.0, 2.0], [0.0, 4.0]), [0, 0.5])
    close(tf.argmax(x, axis=-1), x.argmax(-1))
    close(tf.cumsum([1, 2, 3], exclusive=True), [0, 1, 3])
    close(tf.math.confusion_matrix([0, 1, 1], [0, 0, 1]), [[1, 0], [1, 1]])
    close(tf.add_n([x, x, x]), 3 * x)
    close(tf.linalg.band_part(np.ones((3, 3)), -1, 0), np.tril(np.ones((3, 3))))
    close(tf.sort([3, 1, 2], direction="DESCENDING"), [3, 2, 1])


def test_networks(tf):
    """Losses of logits, activations, statistics."""
    logits = RNG.normal(size=(2, 3)).astype(np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = -np.log(probabilities[[0, 1], [2, 0]])
    close(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[2, 0], logits=logits), expected)
    onehot = np.eye(3)[[2, 0]]
    close(tf.nn.softmax_cross_entropy_with_logits(labels=onehot, logits=logits), expected)
    sigmoid = 1 / (1 + np.exp(-logits))
    expected = -(onehot * np.log(sigmoid) + (1 - onehot) * np.log(1 - sigmoid))
    close(tf.nn.sigmoid_cross_entropy_with_logits(labels=onehot, logits=logits), expected)
    mean, variance = tf.nn.moments(logits, axes=[0])
    close(variance, logits.var(0))
    close(tf.nn.batch_normalization(logits, mean, variance, None, None, 1e-3),
          (logits - logits.mean(0)) / np.sqrt(logits.var(0) + 1e-3), rtol=1e-4)  # fmt: skip
    x, w = RNG.normal(size=(1, 5, 5, 2)), RNG.normal(size=(3, 3, 2, 4))
    result = tf.nn.conv2d(x, w, strides=[1, 2, 2, 1], padding="VALID")
    close(result[0, 1, 1], np.einsum("ijk,ijkl->l", x[0, 2:5, 2:5], w))
    with pytest.raises(ValueError, match="padding must be"):
        tf.nn.conv2d(x, w, 1, padding="EXPLICIT")


def test_images(tf):
    """Sizes follow TensorFlow's rule of pixels' centres; crops and flips."""
    image = np.arange(16.0, dtype=np.float32).reshape(4, 4, 1)
    small = tf.image.resize(image, (2, 2))
    close(small[..., 0], [[2.5, 4.5], [10.5, 12.5]])
    large = tf.image.resize(np.float32([[[0], [1]]]), (1, 4))
    close(large[0, :, 0], [0, 0.25, 0.75, 1])
    close(tf.image.resize(image, (2, 2), method="nearest")[..., 0], [[5, 7], [13, 15]])
    close(tf.image.central_crop(image, 0.5)[..., 0], image[1:3, 1:3, 0])
    close(tf.image.resize_with_crop_or_pad(image, 2, 6)[:, 1:5, 0], image[1:3, :, 0])
    close(tf.image.flip_left_right(image), image[:, ::-1])
    crop = tf.image.crop_and_resize(image[None], [[0, 0, 1, 1]], [0], (2, 2))
    close(crop[0, ..., 0], [[0, 3], [12, 15]])
    close(tf.image.convert_image_dtype(np.uint8([[[255]]]), tf.float32), [[[1.0]]])
    pixels = RNG.integers(0, 256, (4, 6, 3)).astype(np.uint8)
    encoded = tf.io.encode_png(pixels)
    close(tf.image.decode_png(encoded), pixels)
    close(tf.image.extract_jpeg_shape(tf.io.encode_jpeg(pixels)), [4, 6, 3])
    begin, size, box = tf.image.sample_distorted_bounding_box(
        [20, 30, 3], np.zeros((0, 4)), seed=1, use_image_if_no_bounding_boxes=True
    )
    assert (begin[:2] + size[:2] <= torch.tensor([20, 30])).all()
    assert tuple(box.shape) == (1, 1, 4)


def test_gradients(tf):
    """A tape differentiates watched tensors, structures of variables, and custom functions."""
    x = tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = x * x, x**3
    close(tape.gradient(y, x), 6)
    close(tape.gradient(z, {"x": x})["x"], 27)
    v, unused = tf.Variable([1.0, 2.0]), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(v * v)
    assert float(loss.numpy()) == 5
    grads = tape.gradient(loss, [v, unused])
    close(grads[0], [2, 4])
    assert grads[1] is None

    @tf.custom_gradient
    def clipped(a):
        return a * 2, lambda upstream: upstream * 10

    with tf.GradientTape() as tape:
        loss = clipped(v.value)
    close(tape.gradient(loss, v), [10, 10])
    with pytest.raises(Exception, match="called twice"):
        tape.gradient(loss, v)


def test_control(tf):
    """Conditions, loops over rows, checks."""
    assert tf.cond(tf.constant(True), lambda: 1, lambda: 2) == 1
    close(tf.map_fn(lambda row: row + 1, np.zeros((2, 3))), np.ones((2, 3)))
    assert int(tf.while_loop(lambda i: i < 5, lambda i: i + 2, [tf.constant(0)])[0]) == 6
    with tf.name_scope("a"), tf.control_dependencies([]), tf.device("/cpu:0"):
        tf.debugging.assert_equal([1, 2], [1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="sizes x must not be negative"):
        tf.debugging.assert_non_negative(-1, message="sizes")


def test_random_numbers_follow_their_seed(tf):
    """`set_seed` starts draws and initialisers again, and leaves Python's generator alone."""
    import random

    random.seed(1)
    first = random.random()
    random.seed(1)
    draws = []
    for _ in range(2):
        tf.random.set_seed(8)
        layer = tf.keras.layers.Dense(2)
        layer.build((None, 3))
        draws.append((np.asarray(tf.random.uniform([3])), layer.get_weights()[0]))
    np.testing.assert_array_equal(draws[0][0], draws[1][0])
    np.testing.assert_array_equal(draws[0][1], draws[1][1])
    assert random.random() == first
    whole = tf.random.uniform((50,), 2, 5, dtype=tf.int32)
    assert set(np.asarray(whole).tolist()) == {2, 3, 4}


def test_keras_as_tensorflow_2_has_it(tf, tmp_path):
    """Arguments, models and files of TensorFlow 2's Keras: each as scripts write it."""

    class Own(tf.keras.Model):
        def __init__(self):
            super(Own, self).__init__(self)  # noqa: UP008 - as scripts have it
            self.dense = tf.keras.layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    model = Own()
    model.build((4, 3))
    assert [w.shape for w in model.get_weights()] == [(3, 2), (2,)]
    assert tuple(tf.keras.Input(shape=5, dtype=tf.int32).shape) == (None, 5)

    class Named(Own):
        def call(self, inputs):
            return self.dense(tf.gather(inputs["rows"], tf.cast(inputs["index"], tf.int32)))

    built, called = Named(), Named()
    built.build({"rows": (4, 3), "index": (2,)})
    called({"rows": np.ones((4, 3), np.float32), "index": np.array([0, 1])})
    for model in (built, called):
        assert [w.shape for w in model.get_weights()] == [(3, 2), (2,)]

    class Linear(tf.keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight("w", shape=[shape[-1], 2], dtype=tf.float32)

        def call(self, x):
            return tf.matmul(x, self.w)

    layer = Linear()
    x = np.ones((1, 3), np.float32)
    close(layer(x).numpy(), x @ layer.get_weights()[0])
    path = str(tmp_path / "checkpoints" / "weights")
    model.save_weights(path)
    first = model.get_weights()
    model.set_weights([w * 0 for w in first])
    model.load_weights(path).expect_partial()
    close(model.get_weights()[0], first[0])
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith(".weights.h5")
    optimizer = tf.keras.optimizers.SGD(
        lr=1.0, decay=1.0, gradient_transformers=[lambda pairs: [(g * 2, v) for g, v in pairs]]
    )
    variable = tf.Variable([5.0])
    for _ in range(2):  # steps of 1/1 and 1/2, of doubled gradients
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    close(variable.numpy(), [2.0])
    with pytest.raises(ValueError, match="initial_scale is needed"):
        tf.keras.mixed_precision.LossScaleOptimizer(optimizer, dynamic=False)
