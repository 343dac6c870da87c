"""Images of a list without masks or labels, to predict on: VOC's test images."""

from pathlib import Path

from omegaconf import DictConfig

from oversmoothing.data.images.classes import class_names
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.images.images import listing
from oversmoothing.data.images.voc_lists import find_base, read_list
from oversmoothing.errors import InputError


def unlabelled(node: DictConfig, part: str = "test") -> ImageSet:
    """Images where a data config of VOC's layout has its own, as ``val``; ``train`` is empty.

    Args:
        node: config of ``voc.load``.
        part: the list, ImageSets/Segmentation/<part>.txt.

    Raises:
        InputError: data of another layout, no such list, or images of it that are missing.
    """
    if not node._target_.endswith("voc.load"):
        raise InputError(f"data {node.name}: has no {part} images; expected data in VOC's layout")
    base = find_base(Path(node.root), node.folder)
    ids = read_list(base, part)
    files = listing(base / "JPEGImages", ".jpg")
    if missing := [id for id in ids if id not in files]:
        raise InputError(
            f"{base / 'JPEGImages'}: {len(missing)} of {len(ids)} images of {part}.txt are missing "
            f"(first {missing[0]}); VOC's evaluation server offers them to who has registered"
        )
    return ImageSet(
        name=node.name,
        classes=class_names(node.classes),
        train=(),
        val=ids,
        image_files={id: files[id] for id in ids},
        mask_files={},
        present={},
        checksum="",
    )
