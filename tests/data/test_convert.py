"""Conversions lose nothing, and wrong options are named together."""

import pytest
import torch

from oversmoothing.checks import at_least, probability, require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import to_array, to_float, to_pil, to_tensor


def test_every_form_of_an_image_leads_back_to_it() -> None:
    image = torch.arange(256, dtype=torch.uint8).repeat(9).view(3, 24, 32)
    assert torch.equal(to_tensor(to_pil(image)), image)
    assert torch.equal(torch.from_numpy(to_array(image)).permute(2, 0, 1), image)
    assert torch.equal((to_float(image) * 255).round().byte(), image)
    assert to_pil(image).size == (32, 24) and to_float(image).max() == 1


def test_all_wrong_options_are_named_at_once() -> None:
    rules = {**at_least(1, size=0, depth=None, width=1), **probability(flip=1.5, blur=1)}
    with pytest.raises(InputError) as caught:
        require("task.x", **rules)
    said = "task.x.size: expected 1 or more, got 0; task.x.flip: expected a probability, 0 to 1, "
    assert str(caught.value) == said + "got 1.5"
