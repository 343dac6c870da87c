"""Makes VOC 2012 with the masks of SBD from the two official archives.

SegmentationClassAug, the usual training set, has no official download. It is built here from its
description: it has VOC's own masks if they exist, and those of SBD (Hariharan et al., ICCV 2011)
for all other images. ``train_aug`` is VOC's training list plus SBD's images minus VOC's validation
list.
"""

import io
import shutil
import tarfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import yaml
from scipy.io import loadmat

from oversmoothing.errors import InputError
from oversmoothing.lab.data.fetch import Source, ensure
from oversmoothing.lab.data.image_set import listing, write_mask
from oversmoothing.lab.data.voc import bases, list_path, read_list, require_files
from oversmoothing.lab.store.files import replacing, write_text

PARTS = ("JPEGImages", "Annotations", "SegmentationClass", "ImageSets")
MASKS = "SegmentationClassAug"


def sources() -> list[Source]:
    """Returns the sources of VOC's archive and of SBD's."""
    path = resources.files("oversmoothing.lab.data").joinpath("voc_files.yaml")
    return [Source(**source) for source in yaml.safe_load(path.read_text("utf-8"))]


def prepare(root: Path, archives: Sequence[Source]) -> str:
    """Downloads, unpacks and merges the missing data under ``root``; returns a line of counts.

    Archives are kept in ``root/archives``; you may delete them afterwards. Each step writes to a
    temporary folder and renames it when it is complete: after an interruption, call this again.

    Args:
        root: will hold VOC2012 or VOCdevkit/VOC2012.
        archives: of VOC and of SBD.

    Raises:
        InputError: an archive cannot be downloaded, the disk is full, or images or masks are
            missing.
    """
    known = bases(root, "VOC2012")
    base = next((place for place in known if place.is_dir()), known[-1])
    try:
        if not list_path(base, "train_aug").exists():  # written last
            ensure(archives, root / "archives")
            voc, sbd = (root / "archives" / next(iter(source.files)) for source in archives)
            if not base.is_dir():
                _unpack(voc, base, root)
            _merge(sbd, base)
    except (OSError, tarfile.TarError) as error:
        raise InputError(
            f"{base}: cannot be made ({getattr(error, 'strerror', None) or error}); free the disk "
            "or choose another --root, then run the same command again"
        ) from error
    lists = {list_path(base, part): read_list(base, part) for part in ("train_aug", "val")}
    require_files(lists, base / "JPEGImages", ".jpg")
    require_files(lists, base / MASKS, ".png")
    counts = ", ".join(f"{len(ids)} {path.stem}" for path, ids in lists.items())
    return f"{counts} images with masks under {base}"


def _unpack(archive: Path, base: Path, root: Path) -> None:
    """Unpacks the folders of VOC's archive that segmentation needs."""
    inside = "VOCdevkit/VOC2012/"
    wanted = tuple(f"{inside}{part}/" for part in PARTS)
    base.parent.mkdir(exist_ok=True)
    with tarfile.open(archive) as tar, replacing(base) as folder:
        members = (member for member in tar if member.name.startswith(wanted))
        moved = (member.replace(name=member.name.removeprefix(inside)) for member in members)
        tar.extractall(folder, moved, filter="data")


def _merge(archive: Path, base: Path) -> None:
    """Makes SegmentationClassAug and the list ``train_aug``."""
    own = listing(base / "SegmentationClass", ".png")
    with replacing(base / MASKS) as masks:
        masks.mkdir()
        ids = _write_sbd(archive, masks, set(own))
        for path in own.values():
            shutil.copy(path, masks)
        shutil.rmtree(base / MASKS, ignore_errors=True)  # left by an interrupted call
    names = sorted(ids.union(read_list(base, "train")).difference(read_list(base, "val")))
    write_text(list_path(base, "train_aug"), "".join(f"{name}\n" for name in names))


def _write_sbd(archive: Path, folder: Path, known: set[str]) -> set[str]:
    """Writes SBD's class masks as PNG except those of ``known`` ids; returns all ids of SBD."""
    ids = set()
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(member.name)
            if path.parent.name != "cls" or path.suffix != ".mat":
                continue
            ids.add(path.stem)
            if path.stem not in known:
                content = loadmat(io.BytesIO(tar.extractfile(member).read()))
                mask = content["GTcls"]["Segmentation"][0, 0]
                write_mask(folder / f"{path.stem}.png", mask.astype(np.uint8))
    return ids
