"""Writes the segmentation of a whole split in the format of VOC's evaluation server."""

import io
import zipfile
from pathlib import Path
from typing import Literal

from tqdm import tqdm

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import ImageSet, class_names, with_palette
from oversmoothing.lab.data.loading import evaluation_items
from oversmoothing.lab.store.files import write_atomically, writing
from oversmoothing.lab.tasks.overlap import Confusion
from oversmoothing.lab.tasks.wsss.crf import dense_crf
from oversmoothing.lab.tasks.wsss.network import Network, segmented
from oversmoothing.lab.tasks.wsss.settings import Evaluation

COMPETITION = "comp6"  # allows any training data, such as ImageNet; comp5 allows only VOC
EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal predictions give equal files


def export(
    network: Network,
    data: ImageSet,
    evaluation: Evaluation,
    folder: Path,
    split: Literal["test", "val"] = "test",
) -> tuple[Path, float | None]:
    """Writes the submission of all images of ``data.val``; limits of the evaluation are ignored.

    The file ``comp6_<split>.zip`` holds PNGs with VOC's palette,
    ``results/VOC2012/Segmentation/comp6_<split>_cls/<ID>.png``.

    Args:
        network: in evaluation mode, with a trained decoder.
        data: VOC; the mIoU is measured only if every image has a mask.
        evaluation: scales, fusion and CRF.
        folder: for the zip; made when missing.
        split: name of the split for the server.

    Returns:
        Path of the zip, and its mIoU in percent; None unless every image has a mask.

    Raises:
        InputError: classes are not VOC's, an image is damaged, or the disk is full.
    """
    if data.classes != class_names("voc"):
        raise InputError(
            f"data {data.name}: VOC's server takes only VOC's 20 classes; choose a run on VOC"
        )
    path = Path(folder) / f"{COMPETITION}_{split}.zip"
    with writing(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
    count = Confusion(1 + len(data.classes)) if set(data.val) <= set(data.mask_files) else None
    inside, buffer = f"results/VOC2012/Segmentation/{COMPETITION}_{split}_cls", io.BytesIO()
    items = evaluation_items(data, data.val, evaluation.workers, masks=False)
    bar = {"leave": False, "disable": None, "dynamic_ncols": True}  # None: only on a terminal
    with zipfile.ZipFile(buffer, "w") as archive:
        for item in tqdm(items, "multi-scale", len(data.val), **bar):
            found = segmented(network, item["image"], evaluation)
            if evaluation.crf:
                found = dense_crf(item["image"], found, evaluation.crf)
            labels, image = found.max(0).indices.byte().cpu(), io.BytesIO()
            with_palette(labels.numpy()).save(image, "PNG")
            entry = zipfile.ZipInfo(f"{inside}/{item['name']}.png", EPOCH)
            archive.writestr(entry, image.getvalue())
            if count:
                count.update(labels, data.mask(item["name"]), item["name"])
    write_atomically(path, lambda file: file.write(buffer.getbuffer()))
    return path, count.miou() if count else None
