"""Conversions lose nothing, and wrong options are named together."""

import torch

from oversmoothing.lab.data.image_set import to_array, to_float, to_pil, to_tensor


def test_every_form_of_an_image_leads_back_to_it() -> None:
    image = torch.arange(256, dtype=torch.uint8).repeat(9).view(3, 24, 32)
    assert torch.equal(to_tensor(to_pil(image)), image)
    assert torch.equal(torch.from_numpy(to_array(image)).permute(2, 0, 1), image)
    assert torch.equal((to_float(image) * 255).round().byte(), image)
    assert to_pil(image).size == (32, 24) and to_float(image).max() == 1
