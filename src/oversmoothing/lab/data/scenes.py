"""Generated scenes of five shapes with masks, and single shapes cut out of them; no download."""

import colorsys
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from oversmoothing.checks import at_least, require
from oversmoothing.lab.data import voc
from oversmoothing.lab.data.image_set import (
    ImageSet,
    InMemory,
    LabelledImages,
    short_hash,
    write_mask,
)
from oversmoothing.lab.store.files import replacing, write_atomically, writing

CLASSES = ("disc", "square", "triangle", "ellipse", "star")
VERSION = 1  # increase it when the code changes the scenes of the same arguments
MASKS = "SegmentationClassAug"
PALE = 0.7  # of easy scenes' backgrounds: 0 keeps their colours, 1 makes them grey
LEAST_SEEN = 0.5  # share of a thing that must stay visible
CROPS_VERSION = 1  # the same for crops
SCENE = (96, 96)  # that a crop is taken from
MARGIN = 0.1  # on every side, in units of the thing's longer side


def load(
    cache: str = "outputs/cache",
    name: str = "scenes",
    num_train: int = 120,
    num_val: int = 40,
    size: Sequence[int] = (128, 160),
    seed: int = 0,
    easy: bool = False,
) -> ImageSet:
    """Opens the scenes. They are drawn once and kept in VOC's layout in a folder of ``cache``.

    A scene holds one to three things of the classes disc, square, triangle, ellipse and star. Each
    class has its own texture; place, size, angle and both colours are random, and later things
    cover parts of earlier ones. Scenes are upright and wide in turn. The same arguments give the
    same scenes.

    Args:
        cache: folder; made when missing.
        name: of the data set.
        num_train: number of training scenes.
        num_val: number of validation scenes.
        size: height and width of every second scene; the others have them swapped.
        seed: of the scenes; independent of the seeds of networks.
        easy: gives every class its own hue, and pale backgrounds. A small network then learns the
            classes from scratch in a minute or two; without it, it does not.

    Raises:
        InputError: an argument out of its range, or a folder that cannot be written.
    """
    large = len(size) == 2 and min(size) >= 32
    require(
        "data",
        **at_least(1, num_train=num_train, num_val=num_val),
        size=(list(size), large, "[height, width], 32 or more each"),
        **at_least(0, seed=seed),
    )
    parts = [VERSION, num_train, num_val, list(size), seed, *(["easy"] if easy else [])]
    key, root = short_hash(parts), Path(cache) / "scenes"
    with writing(root / key, "paths.cache"):
        root.mkdir(parents=True, exist_ok=True)
        try:
            if not (root / key).is_dir():
                with replacing(root / key) as base:  # no process sees an incomplete set
                    _draw(base, num_train, num_val, size, seed, easy)
        except OSError:
            if not (root / key).is_dir():  # otherwise another process has just written it
                raise
    scenes = voc.load(str(root), key, name, "train", classes=list(CLASSES), cache=cache)
    return dataclasses.replace(scenes, checksum=key)  # the key also depends on the size


def load_crops(
    cache: str = "outputs/cache",
    name: str = "scene_crops",
    num_train: int = 2000,
    num_val: int = 500,
    size: int = 32,
    seed: int = 0,
    easy: bool = False,
) -> LabelledImages:
    """Opens the crops. They are drawn once and kept in a file of ``cache``.

    Each crop shows the largest thing of its scene (see ``load``) with a margin; parts of
    other things may be visible. The classes are disc, square, triangle, ellipse and star. The same
    arguments give the same crops.

    Args:
        cache: folder; made when missing.
        name: of the data set.
        num_train: number of training crops.
        num_val: number of validation crops.
        size: S, side in pixels.
        seed: of the scenes; independent of the seeds of networks.
        easy: gives every class its own hue, so that the colour alone reveals the class.

    Raises:
        InputError: an argument out of its range, or a folder that cannot be written.
    """
    numbers = at_least(1, num_train=num_train, num_val=num_val)
    require("data", **numbers, **at_least(8, size=size), **at_least(0, seed=seed))
    key = short_hash([CROPS_VERSION, VERSION, num_train, num_val, size, seed, easy])
    counts = {"train": num_train, "val": num_val}
    crops = _crops(Path(cache) / "scene_crops" / f"{key}.npz", counts, size, seed, easy)
    ids = [f"{part}_{i:05}" for part, count in counts.items() for i in range(count)]
    held = InMemory(ids, *map(torch.from_numpy, crops))
    return LabelledImages(
        name=name,
        classes=CLASSES,
        train=tuple(ids[:num_train]),
        val=tuple(ids[num_train:]),
        pil_image=held.pil_image,
        target=held.target,
        checksum=key,
    )


def scene(
    height: int, width: int, random: np.random.Generator, easy: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Draws one scene and its mask. Shapes: -> (H, W, 3) uint8, (H, W) uint8."""
    image, mask = _background(height, width, random), np.zeros((height, width), dtype=np.uint8)
    if easy:
        image += PALE * (image.mean(axis=-1, keepdims=True) - image)
    owner, areas = np.zeros((height, width), dtype=int), [0]
    rows, columns = np.mgrid[:height, :width]
    wanted = random.integers(1, 4)
    while len(areas) <= wanted:
        label = random.integers(1, len(CLASSES) + 1)
        u, v = _placed(rows, columns, random)
        inside = outline(CLASSES[label - 1], u, v)
        after = np.where(inside, len(areas), owner)
        areas.append(int(inside.sum()))
        seen = np.bincount(after.ravel(), minlength=len(areas))
        if (seen[1:] < LEAST_SEEN * np.array(areas[1:])).any() or not areas[-1]:
            areas.pop()  # it hides too much or is hidden itself; another one is drawn
            continue
        owner, mask[inside] = after, label
        two = colours(CLASSES[label - 1] if easy else None, random)
        painted = np.where(texture(CLASSES[label - 1], u, v)[..., None], *two)
        image[inside] = painted[inside]
    image += random.normal(0, 4, image.shape)
    return image.clip(0, 255).astype(np.uint8), mask


def _background(height: int, width: int, random: np.random.Generator) -> np.ndarray:
    """Draws soft blobs: enlarged noise of low resolution. Shapes: -> (H, W, 3)."""
    few = random.integers(2, 6, 2)
    noise = random.integers(0, 256, (*few, 3), dtype=np.uint8)
    large = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
    return np.array(large, dtype=float)


def _placed(
    rows: np.ndarray, columns: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws place, size and angle of a thing; returns pixel coordinates relative to it, (H, W)."""
    height, width = rows.shape
    radius = random.uniform(0.16, 0.36) * min(height, width)
    y = random.uniform(0.6 * radius, height - 0.6 * radius)
    x = random.uniform(0.6 * radius, width - 0.6 * radius)
    angle = random.uniform(0, 2 * np.pi)
    across, down = (columns - x) / radius, (rows - y) / radius
    turned = np.cos(angle) * across + np.sin(angle) * down
    return turned, np.cos(angle) * down - np.sin(angle) * across


def _draw(
    base: Path, num_train: int, num_val: int, size: Sequence[int], seed: int, easy: bool
) -> None:
    """Draws the scenes into a new folder."""
    lists = base / "ImageSets" / "Segmentation"
    for path in (lists, base / "JPEGImages", base / MASKS):
        path.mkdir(parents=True)
    for part, stream, count in (("train", 0, num_train), ("val", 1, num_val)):
        ids = [f"{part}_{i:05}" for i in range(count)]
        (lists / f"{part}.txt").write_text("".join(f"{id}\n" for id in ids), "utf-8")
        for i, id in enumerate(ids):
            shape = size if i % 2 else tuple(reversed(size))
            image, mask = scene(*shape, np.random.default_rng([seed, stream, i]), easy)
            Image.fromarray(image).save(base / "JPEGImages" / f"{id}.jpg", quality=95)
            write_mask(base / MASKS / f"{id}.png", mask)


def outline(kind: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Whether points are inside a shape of radius 1. Shapes: u, v (H, W) -> (H, W), bool."""
    radius, angle = np.hypot(u, v), np.arctan2(v, u)
    if kind == "disc":
        return radius < 1
    if kind == "square":
        return np.maximum(abs(u), abs(v)) < 0.85
    if kind == "triangle":
        return (v > -0.6) & (np.sqrt(3) * abs(u) + v < 1.2)
    if kind == "ellipse":
        return u**2 + (v / 0.55) ** 2 < 1
    return radius < 0.72 + 0.28 * np.cos(5 * angle)


def texture(kind: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Whether points have the second colour. Shapes: u, v (H, W) -> (H, W), bool."""
    if kind == "disc":  # stripes
        return np.sin(4.5 * np.pi * u) > 0
    if kind == "square":  # checks
        return (np.sin(3.5 * np.pi * u) > 0) ^ (np.sin(3.5 * np.pi * v) > 0)
    if kind == "triangle":  # dots
        return np.cos(5 * np.pi * u) + np.cos(5 * np.pi * v) > 0.8
    if kind == "ellipse":  # rings
        return np.sin(5 * np.pi * np.hypot(u, v / 0.55)) > 0
    return np.sin(4 * np.pi * (v + 0.12 * np.sin(3 * np.pi * u))) > 0  # waves


def colours(kind: str | None, random: np.random.Generator) -> np.ndarray:
    """Draws two shades of a kind's hue, or for None two different colours. Shapes: -> (2, 3)."""
    if kind is not None:
        hue = CLASSES.index(kind) / len(CLASSES) + random.uniform(-0.05, 0.05)
        shades = (random.uniform(0.8, 1), random.uniform(0.2, 0.45))
        rgb = [colorsys.hsv_to_rgb(hue % 1, random.uniform(0.6, 1), shade) for shade in shades]
        return 255 * np.array(rgb)
    while True:
        two = random.uniform(0, 255, (2, 3))
        if abs(two[0] - two[1]).sum() > 240:
            return two


def _crops(
    path: Path, counts: dict[str, int], size: int, seed: int, easy: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns pixels (n, 3, S, S) and classes (n,); draws them if their file is unreadable."""
    try:
        with np.load(path) as arrays:
            return arrays["pixels"], arrays["targets"]
    except Exception:  # missing or damaged
        pass
    drawn = [
        crop(size, np.random.default_rng([seed, stream, i]), easy)
        for stream, count in enumerate(counts.values())
        for i in range(count)
    ]
    pixels, targets = (np.stack(column) for column in zip(*drawn))
    arrays = {"pixels": pixels, "targets": targets}
    write_atomically(path, lambda file: np.savez(file, **arrays), "paths.cache")
    return pixels, targets


def crop(size: int, random: np.random.Generator, easy: bool = False) -> tuple[np.ndarray, int]:
    """Cuts a square around the largest thing of a new scene: (3, S, S) uint8, and its class."""
    from scipy import ndimage  # takes a second

    image, mask = scene(*SCENE, random, easy)
    largest, label = 0, 0
    for value in np.unique(mask[mask > 0]):
        parts, _ = ndimage.label(mask == value)
        areas = np.bincount(parts.ravel())[1:]
        if areas.max() > largest:
            largest, label = areas.max(), int(value)
            rows, columns = ndimage.find_objects(parts)[areas.argmax()]
    side = max(rows.stop - rows.start, columns.stop - columns.start) * (1 + 2 * MARGIN)
    y, x = (rows.start + rows.stop) / 2, (columns.start + columns.stop) / 2
    # keep the square inside the scene: make it smaller, or move it
    side = min(side, *SCENE)
    top = min(max(y - side / 2, 0), SCENE[0] - side)
    left = min(max(x - side / 2, 0), SCENE[1] - side)
    box = (left, top, left + side, top + side)
    picture = Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC, box=box)
    return np.array(picture).transpose(2, 0, 1), label - 1
