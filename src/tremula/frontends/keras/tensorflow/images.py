"""`tf.image`: sizes, crops, flips, colours and files of images, channels last."""

import io
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import keras
import numpy as np

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.arrays import Value, cast_, plain
from tremula.frontends.keras.tensorflow.randoms import uniform
from tremula.frontends.keras.tensorflow.types import as_dtype, ops


class ResizeMethod(StrEnum):
    """How elements between pixels are computed."""

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


def resize(
    images: Value,
    size: Sequence[int],
    method: ResizeMethod | str = ResizeMethod.BILINEAR,
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str = "",
) -> Value:
    """Images of another size; float32, except of the nearest pixels."""
    del name
    images = plain(images)
    height, width = (int(each) for each in size)
    own_height, own_width = int(images.shape[-3]), int(images.shape[-2])
    if preserve_aspect_ratio:
        scale = min(height / own_height, width / own_width)
        height, width = round(own_height * scale), round(own_width * scale)
    kind = ResizeMethod(method)
    if kind is ResizeMethod.NEAREST_NEIGHBOR:
        rows = _taken(images, _nearest(own_height, height), -3)
        return _taken(rows, _nearest(own_width, width), -2)
    images = ops.cast(images, "float32")
    if kind is ResizeMethod.BILINEAR and not antialias:
        return _bilinear(_bilinear(images, height, -3), width, -2)
    if kind not in (ResizeMethod.BILINEAR, ResizeMethod.BICUBIC):
        raise keras_error(
            f"tf.image.resize(method={kind.value!r}) is not supported.",
            hint="use bilinear, nearest or bicubic",
        )
    return ops.image.resize(
        images, (height, width), interpolation=kind.value, antialias=antialias,
        data_format="channels_last",
    )  # fmt: skip


def _nearest(own: int, size: int) -> np.ndarray:
    """The pixel below the centre of each new one."""
    centres = (np.arange(size) + 0.5) * own / size
    return np.clip(np.floor(centres), 0, own - 1).astype(np.int64)


def _bilinear(images: Value, size: int, axis: int) -> Value:
    """Means of the two pixels around the centre of each new one, by their distance."""
    own = int(images.shape[axis])
    if own == size:
        return images
    centres = (np.arange(size) + 0.5) * own / size - 0.5
    low = np.floor(centres)
    weight = (centres - low).astype(np.float32).reshape([-1] + [1] * (-axis - 1))
    below = _taken(images, np.clip(low, 0, own - 1).astype(np.int64), axis)
    above = _taken(images, np.clip(low + 1, 0, own - 1).astype(np.int64), axis)
    return below + (above - below) * ops.convert_to_tensor(weight)


def _taken(images: Value, index: np.ndarray, axis: int) -> Value:
    return ops.take(images, index, axis=axis)


# -- parts -----------------------------------------------------------------------------------------


def central_crop(image: Value, central_fraction: float) -> Value:
    """The middle of images, this share of their height and width."""
    if not 0 < central_fraction <= 1:
        raise ValueError(f"central_fraction must be within (0, 1]; got {central_fraction!r}.")
    image = plain(image)
    cuts = []
    for own in (int(image.shape[-3]), int(image.shape[-2])):
        start = int((own - own * central_fraction) / 2)
        cuts.append(slice(start, own - start))
    return image[(..., *cuts, slice(None))]


def crop_to_bounding_box(
    image: Value, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> Value:
    """A part of images."""
    image = plain(image)
    bottom, right = offset_height + target_height, offset_width + target_width
    if min(offset_height, offset_width) < 0 or (
        bottom > image.shape[-3] or right > image.shape[-2]
    ):
        raise ValueError(
            f"rows {offset_height} to {bottom} and columns {offset_width} to {right} are not inside"
            f" an image of {image.shape[-3]} × {image.shape[-2]}."
        )
    return image[..., offset_height:bottom, offset_width:right, :]


def pad_to_bounding_box(
    image: Value, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> Value:
    """Images inside larger ones of zeros."""
    image = plain(image)
    below = target_height - offset_height - int(image.shape[-3])
    behind = target_width - offset_width - int(image.shape[-2])
    if min(offset_height, offset_width, below, behind) < 0:
        raise ValueError("pad_to_bounding_box: the image is larger than the target.")
    widths = [(offset_height, below), (offset_width, behind), (0, 0)]
    return ops.pad(image, [(0, 0)] * (len(image.shape) - 3) + widths)


def resize_with_crop_or_pad(image: Value, target_height: int, target_width: int) -> Value:
    """The middle of images, or images in the middle of zeros."""
    image = plain(image)
    own = (int(image.shape[-3]), int(image.shape[-2]))
    target = (int(target_height), int(target_width))
    cut = [max(0, o - t) // 2 for o, t in zip(own, target, strict=True)]
    common = [min(o, t) for o, t in zip(own, target, strict=True)]
    image = crop_to_bounding_box(image, cut[0], cut[1], common[0], common[1])
    added = [(t - c) // 2 for t, c in zip(target, common, strict=True)]
    return pad_to_bounding_box(image, added[0], added[1], *target)


def crop_and_resize(
    image: Value,
    boxes: Value,
    box_indices: Value,
    crop_size: Sequence[int],
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    name: str = "",
) -> Value:
    """Parts of images in normalised coordinates, each resized; corners are pixels' centres."""
    del name
    if method not in ("bilinear", "nearest"):
        raise ValueError(f"method must be 'bilinear' or 'nearest'; got {method!r}.")
    images = np.asarray(ops.convert_to_numpy(plain(image)), np.float32)
    rows = [[float(each) for each in box] for box in boxes]
    parts = [
        _sampled(images[int(i)], row, crop_size, method, extrapolation_value)
        for row, i in zip(rows, box_indices, strict=True)
    ]
    return ops.convert_to_tensor(np.stack(parts))


def _sampled(
    image: np.ndarray, box: Sequence[float], crop_size: Sequence[int], method: str, outside: float
) -> np.ndarray:
    top, left, bottom, right = box
    axes = []
    for own, low, high, n in zip(
        image.shape[:2], (top, left), (bottom, right), crop_size, strict=True
    ):
        last = own - 1
        step = (high - low) * last / (n - 1) if n > 1 else 0.0
        first = low * last if n > 1 else 0.5 * (low + high) * last
        axes.append(first + step * np.arange(n))
    y, x = np.meshgrid(*axes, indexing="ij")
    is_inside = (y >= 0) & (y <= image.shape[0] - 1) & (x >= 0) & (x <= image.shape[1] - 1)
    y, x = y.clip(0, image.shape[0] - 1), x.clip(0, image.shape[1] - 1)
    if method == "nearest":
        result = image[np.rint(y).astype(int), np.rint(x).astype(int)]
    else:
        y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
        y1, x1 = np.ceil(y).astype(int), np.ceil(x).astype(int)
        wy, wx = (y - y0)[..., None], (x - x0)[..., None]
        above = image[y0, x0] * (1 - wx) + image[y0, x1] * wx
        below = image[y1, x0] * (1 - wx) + image[y1, x1] * wx
        result = above * (1 - wy) + below * wy
    return np.where(is_inside[..., None], result, outside).astype(np.float32)


def random_crop(
    value: Value, size: Sequence[int], seed: int | None = None, name: str = ""
) -> Value:
    """A block of this size at a random place; a size of -1 is the whole axis."""
    del name
    value = plain(value)
    limits = [1 if n == -1 else own - n + 1 for own, n in zip(value.shape, size, strict=True)]
    if min(limits) < 1:
        raise ValueError(f"random_crop of {tuple(size)} from a tensor of {tuple(value.shape)}.")
    starts = [int(uniform((), 0, limit, "int32", seed)) for limit in limits]
    pairs = zip(starts, size, strict=True)
    return value[tuple(slice(s, None if n == -1 else s + n) for s, n in pairs)]


def sample_distorted_bounding_box(
    image_size: Sequence[int],
    bounding_boxes: Value,
    seed: int = 0,
    min_object_covered: float = 0.1,
    aspect_ratio_range: Sequence[float] = (0.75, 1.33),
    area_range: Sequence[float] = (0.05, 1.0),
    max_attempts: int = 100,
    use_image_if_no_bounding_boxes: bool = False,
    name: str = "",
) -> tuple[Value, Value, Value]:
    """A random part of an image that covers some of a box: begin, size and the part as a box."""
    del name
    height, width = int(image_size[0]), int(image_size[1])
    boxes = np.asarray(ops.convert_to_numpy(plain(bounding_boxes)), float).reshape(-1, 4)
    if not len(boxes):
        if not use_image_if_no_bounding_boxes:
            raise ValueError("sample_distorted_bounding_box: there is no bounding box.")
        boxes = np.array([[0.0, 0.0, 1.0, 1.0]])
    rng = np.random.default_rng(seed or None)
    top, left, rows, columns = 0, 0, height, width
    for _ in range(max_attempts):
        ratio = rng.uniform(aspect_ratio_range[0], aspect_ratio_range[1])
        area = rng.uniform(area_range[0], area_range[1]) * height * width
        h, w = round((area / ratio) ** 0.5), round((area * ratio) ** 0.5)
        if not (0 < h <= height and 0 < w <= width):
            continue
        y, x = int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1))
        part = np.array([y / height, x / width, (y + h) / height, (x + w) / width])
        if _covered(part, boxes) >= min_object_covered:
            top, left, rows, columns = y, x, h, w
            break
    part = [top / height, left / width, (top + rows) / height, (left + columns) / width]
    begin = ops.convert_to_tensor([top, left, 0], dtype="int32")
    size = ops.convert_to_tensor([rows, columns, -1], dtype="int32")
    return begin, size, ops.convert_to_tensor([[part]], dtype="float32")


def _covered(part: np.ndarray, boxes: np.ndarray) -> float:
    """The largest share of a box that lies inside a part."""
    low, high = np.maximum(part[:2], boxes[:, :2]), np.minimum(part[2:], boxes[:, 2:])
    common = np.clip(high - low, 0, None).prod(1)
    area = np.clip(boxes[:, 2:] - boxes[:, :2], 1e-12, None).prod(1)
    return float((common / area).max())


# -- flips and colours -----------------------------------------------------------------------------


def flip_left_right(image: Value) -> Value:
    return ops.flip(plain(image), axis=-2)


def flip_up_down(image: Value) -> Value:
    return ops.flip(plain(image), axis=-3)


def rot90(image: Value, k: int = 1, name: str = "") -> Value:
    """Images turned by quarters, against the clock."""
    del name
    return ops.rot90(plain(image), k, axes=(-3, -2))


def _at_random(function: Callable[[Value], Value], image: Value, seed: int | None) -> Value:
    return function(image) if float(uniform((), seed=seed)) < 0.5 else plain(image)


def random_flip_left_right(image: Value, seed: int | None = None) -> Value:
    return _at_random(flip_left_right, image, seed)


def random_flip_up_down(image: Value, seed: int | None = None) -> Value:
    return _at_random(flip_up_down, image, seed)


def adjust_brightness(image: Value, delta: float) -> Value:
    """Every channel plus a number."""
    return plain(image) + delta


def random_brightness(image: Value, max_delta: float, seed: int | None = None) -> Value:
    return adjust_brightness(image, float(uniform((), -max_delta, max_delta, seed=seed)))


def adjust_contrast(images: Value, contrast_factor: float) -> Value:
    """Distances from each channel's mean, scaled."""
    images = ops.cast(plain(images), "float32")
    mean = ops.mean(images, axis=(-3, -2), keepdims=True)
    return (images - mean) * contrast_factor + mean


def random_contrast(image: Value, lower: float, upper: float, seed: int | None = None) -> Value:
    return adjust_contrast(image, float(uniform((), lower, upper, seed=seed)))


def rgb_to_grayscale(images: Value, name: str = "") -> Value:
    """The brightness of colours."""
    del name
    images = plain(images)
    weights = ops.convert_to_tensor([0.2989, 0.5870, 0.1140], dtype="float32")
    gray = ops.sum(ops.cast(images, "float32") * weights, axis=-1, keepdims=True)
    return cast_(gray, as_dtype(images.dtype))


def grayscale_to_rgb(images: Value, name: str = "") -> Value:
    del name
    return ops.repeat(plain(images), 3, axis=-1)


def adjust_saturation(image: Value, saturation_factor: float) -> Value:
    """Colours, further from grey by a factor; of values between 0 and 1."""
    gray = rgb_to_grayscale(image)
    image = plain(image)
    return ops.clip(gray + (image - gray) * saturation_factor, 0.0, 1.0)


def random_saturation(image: Value, lower: float, upper: float, seed: int | None = None) -> Value:
    return adjust_saturation(image, float(uniform((), lower, upper, seed=seed)))


def per_image_standardization(image: Value) -> Value:
    """Images with the mean 0 and the deviation 1, of each."""
    image = ops.cast(plain(image), "float32")
    axes = (-3, -2, -1)
    n_elements = float(np.prod(image.shape[-3:]))
    mean = ops.mean(image, axis=axes, keepdims=True)
    deviation = ops.std(image, axis=axes, keepdims=True)
    return (image - mean) / ops.maximum(deviation, n_elements**-0.5)


def convert_image_dtype(
    image: Value, dtype: object, saturate: bool = False, name: str = ""
) -> Value:
    """Images in another type: whole numbers span their range, others 0 to 1."""
    del name
    image, kind = plain(image), as_dtype(dtype)
    own = as_dtype(image.dtype)
    if own == kind:
        return image
    if own.is_floating and kind.is_floating:
        return cast_(image, kind)
    if own.is_integer and kind.is_floating:
        return cast_(image, kind) * (1.0 / own.max)
    if own.is_floating:
        scaled = image * (kind.max + 0.5)
        return cast_(ops.clip(scaled, kind.min, kind.max) if saturate else scaled, kind)
    raise keras_error(f"tf.image.convert_image_dtype from {own!r} to {kind!r} is not supported.")


# -- files -----------------------------------------------------------------------------------------


def decode_image(
    contents: object,  # bytes, or an array of one
    channels: int = 0,
    dtype: object = "uint8",
    name: str = "",
    expand_animations: bool = True,
) -> Value:
    """The pixels of a JPEG, PNG, BMP or GIF file."""
    del name, expand_animations
    image = _opened(contents)
    modes = {1: "L", 3: "RGB", 4: "RGBA"}
    if channels not in (0, *modes):
        raise ValueError(f"channels must be 0, 1, 3 or 4; got {channels!r}.")
    if channels:
        image = image.convert(modes[channels])
    elif image.mode not in modes.values():
        image = image.convert("RGB")
    pixels = np.array(image)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    return convert_image_dtype(ops.convert_to_tensor(pixels), dtype)


def decode_jpeg(contents: object, channels: int = 0, **details: object) -> Value:
    """The pixels of a JPEG file; how exactly it is decoded is PIL's choice."""
    del details
    return decode_image(contents, channels)


def decode_png(
    contents: object, channels: int = 0, dtype: object = "uint8", name: str = ""
) -> Value:
    return decode_image(contents, channels, dtype, name)


def decode_and_crop_jpeg(
    contents: object,
    crop_window: Sequence[int],
    channels: int = 0,
    **details: object,
) -> Value:
    """A part of a JPEG file: rows and columns from `[y, x, height, width]`."""
    y, x, height, width = (int(each) for each in crop_window)
    return crop_to_bounding_box(decode_jpeg(contents, channels, **details), y, x, height, width)


def extract_jpeg_shape(contents: object, output_type: object = "int32", name: str = "") -> Value:
    """Height, width and channels of a JPEG file."""
    del name
    image = _opened(contents)
    sizes = [image.height, image.width, len(image.getbands())]
    return ops.convert_to_tensor(sizes, dtype=str(as_dtype(output_type)))


def encode_jpeg(image: Value, format: str = "", quality: int = 95, **details: object) -> bytes:
    """The bytes of a JPEG file."""
    del format, details
    return _encoded(image, "JPEG", quality=quality)


def encode_png(image: Value, compression: int = -1, name: str = "") -> bytes:
    """The bytes of a PNG file."""
    del compression, name
    return _encoded(image, "PNG")


def _opened(contents: Any) -> Any:
    data = contents.item() if isinstance(contents, np.ndarray) else contents
    if not isinstance(data, bytes):
        raise TypeError(f"an image is decoded from bytes; got {type(data).__name__}.")
    return _pil().open(io.BytesIO(data))


def _encoded(image: Value, kind: str, **options: int) -> bytes:
    pixels = np.asarray(keras.ops.convert_to_numpy(plain(image))).astype(np.uint8)
    pixels = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    stream = io.BytesIO()
    _pil().fromarray(pixels).save(stream, format=kind, **options)
    return stream.getvalue()


def _pil() -> Any:  # a module
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("reading and writing images needs Pillow: pip install pillow") from error
    return Image
