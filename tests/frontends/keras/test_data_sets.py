"""`tf.data`: order, groups and functions in any sequence; records and summaries in files."""

import numpy as np
import pytest

from tremula.base.errors import FileLoadError
from tremula.frontends.keras.tensorflow.records import fields, masked_checksum, read_records
from tremula.keras import KerasError, as_tensorflow


@pytest.fixture(scope="module")
def tf():
    return as_tensorflow()


def values(dataset):
    return [np.asarray(each).tolist() for each in dataset]


def test_order_and_groups_in_any_sequence(tf):
    """Each method works on the result of every other."""
    numbers = tf.data.Dataset.range(6)
    assert values(numbers.map(lambda i: i * 2).batch(4)) == [[0, 2, 4, 6], [8, 10]]
    assert values(numbers.repeat().map(lambda i: i + 1).batch(4, drop_remainder=True).take(2)) == [
        [1, 2, 3, 4],
        [5, 6, 1, 2],
    ]
    assert values(numbers.batch(2).batch(2)) == [[[0, 1], [2, 3]], [[4, 5]]]
    assert values(numbers.batch(4).unbatch().skip(4)) == [4, 5]
    assert values(numbers.shard(2, 1)) == [1, 3, 5]
    assert values(numbers.filter(lambda i: i % 2 == 0)) == [0, 2, 4]
    assert values(numbers.take(2).concatenate(numbers.skip(5))) == [0, 1, 5]
    pairs = tf.data.Dataset.zip((numbers, numbers.map(lambda i: i * i)))
    assert [(int(a), int(b)) for a, b in pairs.take(3)] == [(0, 0), (1, 1), (2, 4)]
    assert [(int(i), int(e)) for i, e in numbers.skip(4).enumerate()] == [(0, 4), (1, 5)]
    inner = numbers.take(3).interleave(
        lambda i: tf.data.Dataset.from_tensors(i).repeat(2), cycle_length=2
    )
    assert values(inner) == [0, 1, 0, 1, 2, 2]
    assert int(numbers.reduce(0, lambda total, i: total + i)) == 15
    assert (len(numbers.batch(4)), numbers.repeat().cardinality().numpy()) == (2, -1)


def test_elements_have_structures(tf):
    """Dictionaries, tuples, text and ragged rows; functions get what an element is made of."""
    rows = tf.data.Dataset.from_tensor_slices(
        {"x": np.zeros((4, 2), np.float32), "y": [1, 2, 3, 4]}
    )
    element = next(iter(rows.map(lambda e: {**e, "z": e["x"] + 1})))
    assert (tuple(element["z"].shape), int(element["y"])) == ((2,), 1)
    assert rows.element_spec["x"] == tf.TensorSpec((2,), tf.float32)
    ragged = tf.data.Dataset.from_generator(
        lambda: ([i] * i for i in range(1, 4)), output_signature=tf.TensorSpec((None,), tf.int32)
    )
    assert values(ragged.padded_batch(3)) == [[[1, 0, 0], [2, 2, 0], [3, 3, 3]]]
    spec = {"b": tf.TensorSpec((2,), tf.float32), "a": tf.TensorSpec((), tf.int32)}
    yielded = {"a": 1, "b": [2, 3]}  # names, not their order, say which part is which
    pairs = tf.data.Dataset.from_generator(
        lambda: [(yielded, 4)], output_signature=(spec, tf.TensorSpec((), tf.int32))
    )
    assert values(pairs.map(lambda parts, _: parts["b"])) == [[2, 3]]
    with pytest.raises(ValueError, match=r"\['a', 'b'\]; its types are \['b'\]"):
        next(iter(tf.data.Dataset.from_generator(lambda: [yielded], {"b": tf.float32})))
    names = tf.data.Dataset.from_tensor_slices(["a", "bc"])
    assert list(names.as_numpy_iterator()) == [b"a", b"bc"]
    with pytest.raises(KerasError, match=r"different shapes[\s\S]*padded_batch"):
        list(ragged.batch(2))
    with pytest.raises(ValueError, match=r"its shape is \(2,\)"):
        list(
            tf.data.Dataset.from_generator(
                lambda: [[1]], output_signature=tf.TensorSpec((2,), tf.int32)
            )
        )
    with pytest.raises(AttributeError, match=r"no 'shufle' here.*shuffle"):
        _ = rows.shufle


def test_shuffled_order(tf):
    """Another order in each iteration unless it is fixed; from a buffer of a size."""
    numbers = tf.data.Dataset.range(50)
    changing = numbers.shuffle(50, seed=1)
    assert values(changing) != values(changing)
    fixed = numbers.shuffle(50, seed=1, reshuffle_each_iteration=False)
    assert values(fixed) == values(fixed)
    assert sorted(values(fixed)) == list(range(50))
    near = values(numbers.shuffle(3, seed=2))
    assert all(value <= place + 2 for place, value in enumerate(near))
    computed = []
    cached = numbers.take(3).map(lambda i: (computed.append(1), i)[1]).cache()
    assert values(cached) == values(cached) == [0, 1, 2]
    assert len(computed) == 3


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_records(tf, tmp_path, compression):
    """Examples are written and read as TensorFlow frames and encodes them."""
    path = tmp_path / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for i in range(3):
            features = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i + 0.5])),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[-i])),
                "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"t" * i])),
                "some": tf.train.Feature(int64_list=tf.train.Int64List(value=range(i))),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    specs = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
        "text": tf.io.FixedLenFeature([], tf.string),
        "some": tf.io.VarLenFeature(tf.int64),
        "no": tf.io.FixedLenFeature([], tf.int64, default_value=7),
    }
    records = tf.data.TFRecordDataset([str(path)], compression_type=compression)
    rows = list(records.map(lambda r: tf.io.parse_single_example(r, specs)).as_numpy_iterator())
    assert [row["x"].tolist() for row in rows] == [[0, 0.5], [1, 1.5], [2, 2.5]]
    assert len(list(tf.data.TFRecordDataset(path, compression_type=compression))) == len(rows)
    assert [int(row["y"]) for row in rows] == [0, -1, -2]
    assert [row["text"] for row in rows] == [b"", b"t", b"tt"]
    assert tf.sparse.to_dense(rows[2]["some"]).tolist() == [0, 1]
    assert int(rows[0]["no"]) == 7
    with pytest.raises(ValueError, match="its shape"):
        tf.io.parse_single_example(
            next(records.as_numpy_iterator()), {"x": tf.io.FixedLenFeature([3], tf.float32)}
        )


def test_checksums_of_records(tmp_path, tf):
    """CRC-32C of the standard's example, masked by TensorFlow's rule; a cut file is rejected."""
    crc = 0xE3069283
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_checksum(b"123456789") == masked
    path = tmp_path / "one.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"foo")
    assert list(read_records(path)) == [b"foo"]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FileLoadError, match="not a file of TensorFlow's records"):
        list(read_records(path))
    with pytest.raises(TypeError, match="SerializeToString"), tf.io.TFRecordWriter(path) as writer:
        writer.write("text")


def test_summaries_are_events(tf, tmp_path):
    """Scalars and images are events that TensorBoard reads: steps, tags and values."""
    writer = tf.summary.create_file_writer(str(tmp_path / "logs"))
    with writer.as_default():
        tf.summary.scalar("loss", 0.5, step=3)
        tf.summary.image("kernel", np.zeros((1, 2, 2, 1)), step=3)
        with tf.summary.record_if(False):
            tf.summary.scalar("loss", 0.1, step=4)
    (path,) = (tmp_path / "logs").iterdir()
    events = [dict(fields(record)) for record in read_records(path)]
    assert events[0][3] == b"brain.Event:2"
    assert [event.get(2) for event in events[1:]] == [3, 3]
    value = dict(fields(dict(fields(events[1][5]))[1]))
    assert value[1] == b"loss"
    assert np.frombuffer(value[2], "<f4") == [0.5]
    with pytest.raises(ValueError, match="needs step"), writer.as_default():
        tf.summary.scalar("loss", 1.0)
    writer.close()
