"""Models of transformers, on the lines of a file or the images of a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError, described
from oversmoothing.lab.data.loading import evenly_spaced
from oversmoothing.lab.launch.diagnose.subject import (
    Request,
    Subject,
    image_files,
    in_batches,
    refuse,
)
from oversmoothing.lab.store.files import offline

LONGEST = 512  # tokens of a text; longer ones are cut


def of_hf(name: str, request: Request) -> Subject:
    """Loads a model of transformers without head, and its tokenizer or image processor.

    Raises:
        InputError: transformers is not installed or cannot load the model, or no inputs.
    """
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            f"{request.source}: needs transformers ({error}); pip install transformers"
        ) from error
    refuse(request, weights=request.weights)
    if (request.text is None) == (request.images is None):
        raise InputError(f"{request.source}: expected one of --text FILE and --images DIR")
    items: list[Any] = _lines(request.text, request.limit) if request.text else image_files(request)
    model = _loaded(name, transformers.AutoModel)
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    batches = (
        _texts(name, items, request, _positions(model))
        if request.text
        else _images(name, items, request)
    )
    what = f"lines of {request.text}" if request.text else f"images of {request.images}"
    return Subject(model.to(request.device), batches, f"{len(items)} {what}")


def _positions(model: Any) -> int:
    """Returns the number of position embeddings of a model, as far as its config tells."""
    found = getattr(model.config, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else LONGEST


def _texts(
    name: str, lines: list[str], request: Request, positions: int
) -> Iterator[dict[str, Any]]:
    from transformers import AutoTokenizer

    tokenizer = _loaded(name, AutoTokenizer)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token  # the mask hides it
    pads = tokenizer.pad_token is not None
    if not pads and request.batch > 1:
        raise InputError(f"hf:{name}: its tokenizer has no token for padding; give --batch 1")
    longest = min(tokenizer.model_max_length, positions, LONGEST)
    how = {"padding": pads, "truncation": True, "max_length": longest, "return_tensors": "pt"}
    return (dict(tokenizer(some, **how)) for some in in_batches(lines, request.batch))


def _images(name: str, files: list, request: Request) -> Iterator[dict[str, Any]]:
    try:
        from transformers import AutoImageProcessor

        from oversmoothing.lab.data.image_set import read_pil
    except ImportError as error:
        raise InputError(
            f"--images: need Pillow ({error}); pip install pillow torchvision"
        ) from error
    processor = _loaded(name, AutoImageProcessor)
    return (
        dict(processor([read_pil(file) for file in some], return_tensors="pt"))
        for some in in_batches(files, request.batch)
    )


def _loaded(name: str, kind: Any) -> Any:
    try:
        return kind.from_pretrained(name, local_files_only=offline())
    except Exception as error:  # the hub, its HTTP library and tokenizers may raise any error
        reason = described(error)
        raise InputError(
            f"hf:{name}: {kind.__name__} cannot load it ({reason}); expected a name on the hub "
            "or a folder that save_pretrained wrote"
        ) from error


def _lines(file: Path, limit: int) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--text: cannot read {file} ({error}); give a text file") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"--text: {file} has no text; expected one text per line")
    return evenly_spaced(lines, limit)
