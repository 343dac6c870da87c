"""Random splits of nodes: disjoint, stratified, of the sizes asked for."""

import pytest
import torch

from oversmoothing.lab.data.splits import NUM_SPLITS, chosen, drawn

Y = torch.arange(600) % 3
Y[torch.arange(30)] = -1  # ten nodes of every class have no label


def test_fractions_hold_in_every_class():
    masks = drawn("toy", Y, [0.6, 0.2, 0.2], seed=0)
    assert {mask.shape for mask in masks} == {(NUM_SPLITS, 600)}
    assert torch.equal(sum(mask.int() for mask in masks), (Y >= 0).int().expand(NUM_SPLITS, -1))
    for mask, count in zip(masks, (114, 38, 38)):
        assert all(Y[split].bincount().tolist() == [count] * 3 for split in mask)


def test_numbers_are_training_nodes_of_a_class_and_other_nodes():
    train, val, test = drawn("toy", Y, [20, 100, 200], seed=0)
    assert all(Y[split].bincount().tolist() == [20] * 3 for split in train)
    assert (val.sum(dim=1) == 100).all() and (test.sum(dim=1) == 200).all()
    assert (train.int() + val.int() + test.int()).max() == 1
    assert not (train | val | test)[:, Y < 0].any()


@pytest.mark.parametrize("sizes", [[0.6, 0.2, 0.2], [20, 100, 200]])
def test_splits_differ_and_follow_from_the_seed(sizes):
    first, again, other = (drawn("toy", Y, sizes, seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert len(torch.cat([first[0], other[0]]).unique(dim=0)) == 2 * NUM_SPLITS
    shares = torch.cat([first[0], other[0]]).double().mean(dim=0)[Y >= 0]
    assert shares.min() >= 0 and shares.std() < 0.15  # every node is as likely as another


def test_one_split_is_chosen_or_all():
    masks = drawn("toy", Y, [0.6, 0.2, 0.2], seed=0)
    assert torch.equal(chosen("toy", masks, 3)[0], masks[0][3])
    assert chosen("toy", masks, "each") is masks


def test_numbers_of_nodes_are_rounded_in_every_class():
    y = torch.tensor([0] * 7 + [1] * 13)
    for mask, counts in zip(drawn("toy", y, [0.6, 0.2, 0.2], seed=0), ([4, 8], [2, 2], [1, 3])):
        assert all(y[split].bincount().tolist() == counts for split in mask)
