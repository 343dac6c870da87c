"""Models of timm, on the images of a folder."""

import torch
from torch import nn

from oversmoothing.errors import InputError, described, meant
from oversmoothing.lab.launch.diagnose.subject import (
    Request,
    Subject,
    image_files,
    in_batches,
    refuse,
)
from oversmoothing.lab.store.files import FORBIDDEN, offline


def of_timm(name: str, request: Request) -> Subject:
    """Builds a model of timm, and reads images by the transform of its evaluation.

    Raises:
        InputError: timm is not installed or has no such model or weights, or there are no images.
    """
    try:
        import timm.data

        from oversmoothing.lab.data.image_set import (
            read_pil,  # imports Pillow, which timm brings
        )
    except ImportError as error:
        raise InputError(f"{request.source}: needs timm ({error}); pip install timm") from error
    refuse(request, text=request.text)
    if not timm.is_model(name):
        raise InputError(f"{request.source}: timm has no such model; {_meant(name)}")
    files = image_files(request)
    model = _with_weights(name, request.weights).to(request.device)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    batches = (
        torch.stack([transform(read_pil(file)) for file in some])
        for some in in_batches(files, request.batch)
    )
    return Subject(model, batches, f"{len(files)} images of {request.images}")


def _with_weights(name: str, weights: str | None) -> nn.Module:
    import timm
    from timm.models import load_checkpoint

    if weights is None and offline():
        raise InputError(
            f"timm:{name}: {FORBIDDEN}; give --weights FILE, or --weights none for random ones"
        )
    try:
        model = timm.create_model(name, pretrained=weights is None)
        if weights not in (None, "none"):
            load_checkpoint(model, weights, weights_only=True)
    except Exception as error:  # the hub, its HTTP library and torch may raise any error
        reason = described(error)
        which = "published weights" if weights is None else f"--weights {weights}"
        raise InputError(
            f"timm:{name}: {which}: cannot be loaded ({reason}); give a file of this model's "
            "weights, --weights FILE, or --weights none for random ones"
        ) from error
    return model


def _meant(name: str) -> str:
    import timm

    same = timm.list_models(f"{name.split('_')[0]}*") or timm.list_models()
    found = meant(name, same)
    return found if found.startswith("did") else "timm.list_models() has the names"
