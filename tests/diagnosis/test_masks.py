"""Nested models and parallel towers have separate padding masks."""

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm

IDS = torch.randint(1, 20, (3, 7), generator=torch.Generator().manual_seed(0))
T5 = {"num_layers": 2, "d_model": 8, "d_ff": 8, "num_heads": 2, "d_kv": 4, "vocab_size": 20}


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, **inputs: Tensor) -> Tensor:
        return self.inner(**inputs)[0]


def test_a_wrapped_model_has_the_masks_of_its_own_parts() -> None:
    model = hf.T5Model(hf.T5Config(**T5)).eval()
    mask = torch.ones_like(IDS)
    mask[:, 5:] = 0
    inputs = {"input_ids": IDS, "attention_mask": mask, "decoder_input_ids": IDS}
    inputs["decoder_attention_mask"] = mask.flip(1)
    alone = osm.diagnose(model, **inputs, metrics=["cosine"])
    assert osm.diagnose(Wrapped(model), **inputs, metrics=["cosine"]).values == alone.values


def test_the_mask_of_a_text_is_none_of_the_images_beside_it() -> None:
    """The text has as many words as the image has patches and CLS."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    sizes["intermediate_size"] = 16
    text = sizes | {"vocab_size": 50, "eos_token_id": 2}
    vision = sizes | {"image_size": 32, "patch_size": 8}
    model = hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision)).eval()
    inputs = {"input_ids": torch.randint(3, 50, (2, 17)), "pixel_values": torch.rand(2, 3, 32, 32)}
    mask = torch.ones(2, 17, dtype=torch.long)
    mask[:, 5:] = 0
    both, image = (
        osm.diagnose(model, **inputs, **more, metrics=["cosine"], layers="vision_model.*.layers.*")
        for more in ({"attention_mask": mask}, {})
    )
    assert both.values == image.values


class Classifier(nn.Module):
    """A model of its own around another one, whose mask has another name and place."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        words = batch["words"]
        if isinstance(self.inner, nn.TransformerEncoder):
            return self.inner(words, src_key_padding_mask=batch["real"] == 0)
        return self.inner(inputs_embeds=words, attention_mask=batch["real"])[0]


def encoders() -> list[nn.Module]:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2}
    bert = hf.BertModel(hf.BertConfig(**sizes, intermediate_size=8, vocab_size=20))
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return [bert.eval(), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()]


@pytest.mark.parametrize("inner", encoders(), ids=lambda model: type(model).__name__)
def test_the_mask_that_an_inner_model_gets_counts(inner: nn.Module) -> None:
    words, real = torch.randn(3, 7, 8), torch.ones_like(IDS)
    real[:, 4:] = 0
    model, batch = Classifier(inner), {"words": words, "real": real}
    found = osm.diagnose(model, batches=[(batch,)])
    assert found.tokens == (4, 4) and found.notes == ("Left out: padding.",)
    assert found.values == osm.diagnose(model, batches=[(batch,)], mask=real).values


def test_floats_of_zeros_and_ones_are_a_mask() -> None:
    """As those of PEFT's prompt tuning."""
    model = encoders()[0]
    mask = torch.ones_like(IDS)
    mask[0, 4:] = 0
    found = osm.diagnose(model, input_ids=IDS, attention_mask=mask.float())
    expected = osm.diagnose(model, input_ids=IDS, attention_mask=mask)
    assert found.tokens == (4, 7) and found.values == expected.values


def test_a_mask_covers_the_tokens_of_a_cache_as_well() -> None:
    """As that of PEFT's prefix tuning."""
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 2, "vocab_size": 20}
    model = hf.GPT2Model(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    mask = torch.ones_like(IDS)
    mask[0, 5:] = 0
    with torch.no_grad():
        cache = model(IDS[:, :3]).past_key_values
    inputs = {"input_ids": IDS[:, 3:], "attention_mask": mask, "past_key_values": cache}
    assert osm.diagnose(model, **inputs).tokens == (2, 4)


def test_a_decoder_without_a_mask_has_none_of_its_encoder() -> None:
    model = hf.T5Model(hf.T5Config(**T5)).eval()
    mask = torch.ones_like(IDS)
    mask[:, 5:] = 0
    report = osm.diagnose(
        Wrapped(model),
        input_ids=IDS,
        attention_mask=mask,
        decoder_input_ids=IDS,
        layers="inner.decoder.block.*",
    )
    assert report.tokens == (7, 7)
