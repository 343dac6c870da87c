"""Weights of BERT and ALBERT from files and from the hub."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_bert import SMALL, batch, made
from torch import Tensor

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.bert import ALBERT, BERT

pytest.importorskip("transformers")


def published(network: BERT, path: Path, prefix: str) -> dict[str, Tensor]:
    """As the first files have it: prefixed, norms called gamma and beta, with a head."""
    state = {f"{prefix}.{key}": value for key, value in network.network.state_dict().items()}
    renamed = {
        key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): value.clone()
        for key, value in state.items()
    }
    save_file(renamed | {"cls.predictions.bias": torch.zeros(50)}, path)
    return state


@pytest.mark.parametrize("kind, prefix", [(BERT, "bert"), (ALBERT, "albert")])
def test_weights_of_a_file_whatever_the_aggregator(tmp_path: Path, kind: type, prefix: str) -> None:
    path, inputs = tmp_path / "model.safetensors", batch(9, 5)
    first = made(kind, NoAggregator)
    published(first, path, prefix)
    torch.manual_seed(1)
    options = SMALL | {"weights": str(path), "dropout": 0.0}
    for aggregator in (NoAggregator, partial(Centered, gamma=0.0), partial(ContraNorm, scale=0.0)):
        second = kind([aggregator], **options).double().eval()
        torch.testing.assert_close(second(*inputs), first(*inputs), rtol=1e-5, atol=1e-5)


def test_depth_and_the_layers_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    state = published(made(BERT, NoAggregator), path, "bert")
    for depth in (1, 4):
        network = BERT([NoAggregator], **SMALL | {"weights": str(path), "depth": depth})
        assert network.depth == len(network.network.encoder.layer) == depth
        own = network.network.encoder.layer[0].output.dense.weight
        assert torch.equal(own, state["bert.encoder.layer.0.output.dense.weight"].float())


def test_weights_that_do_not_fit_or_are_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    published(made(BERT, NoAggregator), path, "bert")
    with pytest.raises(InputError, match=r"another architecture: embeddings\.word_embeddings\.we"):
        made(BERT, NoAggregator, weights=str(path), vocabulary=60)
    with pytest.raises(InputError, match=r"expected SHA-256 12345678"):
        made(BERT, NoAggregator, weights=str(path), sha256="12345678")
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    with pytest.raises(InputError, match=r"nobody/bert/model\.safetensors: the hub's weights"):
        made(BERT, NoAggregator, weights="hub", name="nobody/bert")
