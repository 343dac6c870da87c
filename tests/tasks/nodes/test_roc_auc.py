"""The area under the ROC curve."""

import pytest
import torch

from oversmoothing.lab.tasks.nodes import roc_auc


@pytest.mark.parametrize("values", [3, 1000])  # many ties, few ties
def test_roc_auc_is_the_share_of_pairs_in_order(values: int) -> None:
    generator = torch.Generator().manual_seed(values)
    scores = torch.randint(values, (80,), generator=generator).float()
    y = (torch.rand(80, generator=generator) < 0.3).long()
    logits = torch.stack([-scores / 2, scores / 2], dim=-1)
    gaps = scores[y == 1][:, None] - scores[y == 0]
    expected = ((gaps > 0).double() + 0.5 * (gaps == 0)).mean()
    assert roc_auc(logits, y).item() == pytest.approx(expected.item(), abs=1e-12)


def test_scores_that_are_not_numbers_give_none() -> None:
    assert roc_auc(torch.full((4, 2), torch.nan), torch.tensor([0, 1, 0, 1])).isnan()
