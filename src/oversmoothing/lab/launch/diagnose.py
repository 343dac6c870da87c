"""Measures a model layer by layer: prints a table, and writes it and a figure.

oversmoothing diagnose timm:vit_base_patch16_224 --images photos
oversmoothing diagnose hf:bert-base-uncased --text sentences.txt --reference random
oversmoothing diagnose outputs/wsss-…                  # on the validation data of the run
"""

# Packages are imported where they are used: timm and transformers do not need those of experiments.

import re
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.diagnosis.diagnose import diagnose
from oversmoothing.errors import InputError, complain, described, install, meant
from oversmoothing.lab.data.loading import evenly_spaced
from oversmoothing.lab.launch.script import DEVICE, SEED, Parser, whole
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.store.files import FORBIDDEN, offline, require_writable, writing

IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
LONGEST = 512  # tokens of a text; longer ones are cut
SIDE = 448  # pixels of images that a run evaluates at their own size


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, its inputs, and a description of the inputs.

    Args:
        model: to measure.
        batches: inputs in a form that ``diagnose`` takes.
        described: description of the inputs.
    """

    model: nn.Module
    batches: Iterable[Any]
    described: str


def main() -> int:
    """Measures the model that the command line names. Raises InputError for bad input."""
    options = _options()
    folder = options.out or Path("outputs/diagnose") / re.sub(r"[^\w.-]+", "-", options.source)
    require_writable(folder)
    subject = find(options)
    report = diagnose(
        subject.model,
        batches=subject.batches,
        layers=options.layers,
        metrics=options.metrics,
        layout=options.layout,
        prefix=options.prefix,
        reference=options.reference,
        seed=options.seed or 0,
    )
    print(f"{options.source}, {subject.described}\n{report}\n")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    report.to_csv(folder / "layers.csv")
    print(folder / "layers.csv")
    try:
        report.plot(folder / "layers.png")
        print(folder / "layers.png")
    except InputError as error:  # the table is there without matplotlib
        complain(str(error))
    return 0


def _options() -> Namespace:
    parser = Parser(__doc__)
    parser.add_argument("source", help="timm:NAME, hf:NAME_OR_FOLDER, or the folder of a run")
    parser.add_argument("--images", type=Path, help="folder of images")
    parser.add_argument("--text", type=Path, help="file with one text per line")
    parser.add_argument("--weights", help="file for timm's model, or none; default: published")
    parser.add_argument("--reference", choices=["random"], help="compare with random weights")
    parser.add_argument("--layers", nargs="+", help="names or globs; default: repeated blocks")
    parser.add_argument("--metrics", nargs="+", help="default: all that can be measured")
    parser.add_argument("--layout", help="BNC, NBC, BCN, BCHW or BHWC, where it is not clear")
    parser.add_argument(
        "--prefix", type=whole(0), help="number of leading tokens to leave out, such as CLS"
    )
    parser.add_argument(
        "--batch", type=whole(), default=16, help="samples in a forward pass; default: 16"
    )
    parser.add_argument("--limit", type=whole(), default=64, help="number of samples; default: 64")
    parser.add_argument("--seed", type=SEED, help="seed of the run, or of random weights")
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--out", type=Path, help="folder; default: outputs/diagnose/SOURCE")
    return parser.parse_args()


def find(options: Namespace) -> Subject:
    """Finds the model and the inputs that the options name.

    Raises:
        InputError: the model or its package is missing, or the inputs are, or an option is not for
            this kind of source.
    """
    source, (library, _, name) = options.source, options.source.partition(":")
    torch.manual_seed(options.seed or 0)  # of weights that are not loaded
    if library == "timm" and name:
        return _of_timm(name, options)
    if library == "hf" and name:
        return _of_hf(name, options)
    try:
        from oversmoothing.lab.store import lookup
        from oversmoothing.lab.tasks import glue  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{source}: expected timm:NAME or hf:NAME; a run of ours needs more packages "
            f"({error}); {install('repro')}"
        ) from error
    if options.images or options.text or options.weights:
        try:
            lookup.find(source)
        except InputError as error:
            raise InputError(
                f"{source}: no such run; did you mean timm:{source} or hf:{source}?"
            ) from error
    _refuse(options, "images", "text", "weights")
    return of_run(source, options.seed, options.limit, options.batch, options.device)


def _refuse(options: Namespace, *names: str) -> None:
    """Raises InputError for options that this kind of source does not have."""
    for name in names:
        if getattr(options, name) is not None:
            raise InputError(f"--{name}: not for {options.source}; leave it out")


def _image_files(options: Namespace) -> list[Path]:
    """Returns images of the folder, evenly spaced in the order of their names."""
    folder = options.images
    if folder is None:
        raise InputError(f"--images: {options.source} needs images; give a folder, --images DIR")
    found = sorted(p for p in folder.rglob("[!.]*") if p.suffix.lower() in IMAGES)
    if not found:
        found = f"has no images ({', '.join(IMAGES)})" if folder.is_dir() else "is no folder"
        raise InputError(f"--images: {folder} {found}; give a folder of images")
    return evenly_spaced(found, options.limit)


def _in_batches(items: Sequence, size: int) -> Iterator[Sequence]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


# Models of timm, on the images of a folder


def _of_timm(name: str, options: Namespace) -> Subject:
    """Builds a model of timm, and reads images by the transform of its evaluation."""
    try:
        import timm.data

        from oversmoothing.lab.data.image_set import read_pil  # needs Pillow, which timm brings
    except ImportError as error:
        raise InputError(f"{options.source}: needs timm ({error}); pip install timm") from error
    _refuse(options, "text")
    if not timm.is_model(name):
        same = timm.list_models(f"{name.split('_')[0]}*") or timm.list_models()
        close = meant(name, same)
        way_out = close if close.startswith("did") else "timm.list_models() has the names"
        raise InputError(f"{options.source}: timm has no such model; {way_out}")
    files = _image_files(options)
    model = _timm_model(name, options.weights).to(device(options.device))
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    batches = (
        torch.stack([transform(read_pil(file)) for file in some])
        for some in _in_batches(files, options.batch)
    )
    return Subject(model, batches, f"{len(files)} images of {options.images}")


def _timm_model(name: str, weights: str | None) -> nn.Module:
    import timm
    from timm.models import load_checkpoint

    if weights is None and offline():
        raise InputError(
            f"timm:{name}: {FORBIDDEN}; give --weights FILE, or --weights none for random ones"
        )
    if weights not in (None, "none") and not Path(weights).is_file():
        raise InputError(
            f"--weights: {weights} is no file; give a file of this model's weights, or --weights "
            "none for random ones"
        )
    try:
        model = timm.create_model(name, pretrained=weights is None)
        if weights not in (None, "none"):
            load_checkpoint(model, weights, weights_only=True)
    except Exception as error:  # the hub, its HTTP library and torch may raise any error
        which = "published weights" if weights is None else f"--weights {weights}"
        raise InputError(
            f"timm:{name}: {which}: cannot be loaded ({described(error)}); give a file of this "
            "model's weights, --weights FILE, or --weights none for random ones"
        ) from error
    return model


# Models of transformers, on the lines of a file or the images of a folder


def _of_hf(name: str, options: Namespace) -> Subject:
    """Loads a model of transformers without head, and its tokenizer or image processor."""
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            f"{options.source}: needs transformers ({error}); pip install transformers"
        ) from error
    _refuse(options, "weights")
    text = options.text
    if (text is None) == (options.images is None):
        raise InputError(f"{options.source}: expected one of --text FILE and --images DIR")
    items: list[Any] = _lines(text, options.limit) if text else _image_files(options)
    model = _loaded(name, transformers.AutoModel)
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    read = _texts if text else _images
    what = f"lines of {text}" if text else f"images of {options.images}"
    batches = read(name, items, options.batch, model)
    return Subject(model.to(device(options.device)), batches, f"{len(items)} {what}")


def _lines(file: Path, limit: int) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--text: cannot read {file} ({error}); give a text file") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"--text: {file} has no text; expected one text per line")
    return evenly_spaced(lines, limit)


def _texts(name: str, lines: list[str], batch: int, model: Any) -> Iterator[dict[str, Any]]:
    from transformers import AutoTokenizer

    tokenizer = _loaded(name, AutoTokenizer, "; if the model takes images, give --images DIR")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token  # the mask hides it
    pads = tokenizer.pad_token is not None
    if not pads and batch > 1:
        raise InputError(f"hf:{name}: its tokenizer has no token for padding; give --batch 1")
    positions = getattr(model.config, "max_position_embeddings", None)
    known = isinstance(positions, int) and positions > 0
    longest = min(tokenizer.model_max_length, LONGEST, *([positions] if known else []))
    how = {"padding": pads, "truncation": True, "max_length": longest, "return_tensors": "pt"}
    return (dict(tokenizer(some, **how)) for some in _in_batches(lines, batch))


def _images(name: str, files: list[Path], batch: int, model: Any) -> Iterator[dict[str, Any]]:
    try:
        from transformers import AutoImageProcessor

        from oversmoothing.lab.data.image_set import read_pil
    except ImportError as error:
        raise InputError(
            f"--images: need Pillow ({error}); pip install pillow torchvision"
        ) from error
    processor = _loaded(name, AutoImageProcessor, "; if the model takes text, give --text FILE")
    return (
        dict(processor([read_pil(file) for file in some], return_tensors="pt"))
        for some in _in_batches(files, batch)
    )


def _loaded(name: str, kind: Any, way: str = "") -> Any:
    try:
        return kind.from_pretrained(name, local_files_only=offline())
    except Exception as error:  # the hub, its HTTP library and tokenizers may raise any error
        raise InputError(
            f"hf:{name}: {kind.__name__} cannot load it ({described(error)}); expected a name on "
            f"the hub or a folder that save_pretrained wrote{way}"
        ) from error


# Runs of this package, on the validation data of the run


def of_run(
    source: str,
    seed: int | None = None,
    limit: int = 64,
    batch: int = 16,
    on: str = "auto",
) -> Subject:
    """Loads a trained network, and reads validation examples as its evaluation does.

    Args:
        source: folder, name or id of a run.
        seed: of the network; None: the first that was trained.
        limit: number of examples.
        batch: images in a forward pass; sentences come one by one.
        on: device, as in a config.

    Raises:
        InputError: the run, its weights or its data are missing.
    """
    from oversmoothing.lab.launch.trained import load

    readers = {
        "classification": _classified,
        "wsss": _squashed,
        "segmentation": _squashed,
        "glue": _sentences,
    }
    run: Any = load(source, seed, on, tuple(readers))
    ids = evenly_spaced(run.data.val, limit)
    described = f"{len(ids)} examples of {run.data.name} val, seed {run.seed}"
    return Subject(run.network.backbone, readers[run.task_name](run, ids, batch), described)


def _classified(run: Any, ids: list[str], batch: int) -> Iterator[Tensor]:
    """Yields images as they are prepared to measure the accuracy."""
    from oversmoothing.lab.data.image_set import to_float

    for some in _in_batches(ids, batch):
        images = [run.task.evaluation.prepared(run.data.pil_image(id)) for id in some]
        yield to_float(torch.stack(images))


def _squashed(run: Any, ids: list[str], batch: int) -> Iterator[Tensor]:
    """Yields images squashed to a square, as they are prepared to measure CAMs."""
    from oversmoothing.lab.data.image_set import to_float

    side = getattr(run.task.evaluation, "size", None) or SIDE
    for some in _in_batches(ids, batch):
        images = [to_float(run.data.image(id))[None] for id in some]
        yield torch.cat([F.interpolate(x, (side, side), mode="bilinear") for x in images])


def _sentences(run: Any, ids: list[str], batch: int) -> Iterator[tuple[Tensor, ...]]:
    """Yields sentences one by one, without padding."""
    from oversmoothing.lab.tasks.glue import Tokens, open_tokenizer

    tokenizer = open_tokenizer(run.data.vocabulary, run.network.backbone)
    tokens = Tokens(run.data, tokenizer, run.task.max_length)
    for id in ids:
        one = tokens.collate([tokens.sample(id)])
        yield tuple(one[key][:, one["mask"][0]] for key in ("tokens", "mask", "types"))
