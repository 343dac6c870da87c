"""A model that is traced, compiled or exported with one mask follows every other mask."""

import pytest
import torch
from applied_models import IMAGE, PADDED, WORDS, bert, made, vit
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor

import oversmoothing as osm

PLACES = [
    ("centered", None),
    (["centered", "contranorm"], None),
    ("layernorm", "norms"),
    ("contranorm", "blocks.*.mlp"),
    ("em", None),
]
WHOLE = torch.ones_like(WORDS)
METHODS = pytest.mark.parametrize("name", ["pairnorm", "contranorm", "layernorm", "centered"])


class Hidden(nn.Module):
    """Returns the last hidden state alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=words, attention_mask=mask).last_hidden_state


def _check(recorded, name: str) -> None:
    """Compares with a model that is not recorded, for padding on either side and for none."""
    model = Hidden(made(bert, name))
    for mask in (PADDED, PADDED.flip(0), WHOLE):
        with torch.no_grad():
            torch.testing.assert_close(recorded(WORDS, mask), model(WORDS, mask))


@pytest.mark.filterwarnings("ignore")  # the tracer's
@pytest.mark.parametrize("mask", [WHOLE, PADDED])
@pytest.mark.parametrize("name", ["pairnorm", "contranorm", "centered"])
def test_a_trace_follows_the_mask(name: str, mask: Tensor) -> None:
    _check(torch.jit.trace(Hidden(made(bert, name)), (WORDS, mask), strict=False), name)


@METHODS
def test_an_exported_model_follows_the_mask(name: str) -> None:
    _check(torch.export.export(Hidden(made(bert, name)), (WORDS, WHOLE)).module(), name)


@METHODS
def test_a_compiled_model_follows_the_mask(name: str) -> None:
    torch.compiler.reset()
    _check(torch.compile(Hidden(made(bert, name)), fullgraph=True, backend="eager"), name)


@pytest.mark.parametrize(("method", "where"), PLACES)
@torch.no_grad()
def test_features_of_a_model_with_a_method_are_extracted(method, where: str | None) -> None:
    """torchvision traces the model with torch.fx."""
    torch.manual_seed(0)
    model, found = osm.apply(vit().eval(), method, where=where), []
    model.blocks[1].register_forward_hook(lambda module, args, out: found.append(out))
    model(IMAGE["x"])
    features = create_feature_extractor(model, ["blocks.1"])(IMAGE["x"])["blocks.1"]
    assert torch.equal(features, found[0])
