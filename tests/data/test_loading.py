"""Batches depend only on seed and number, not on workers."""

import dataclasses
import random
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from voc_folder import load, make, truncate

from oversmoothing.errors import InputError
from oversmoothing.lab.data.augment import Augment, labelled_crop
from oversmoothing.lab.data.loading import evaluation_items, evenly_spaced, train_batches

AUGMENT = Augment(16)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make(tmp_path_factory.mktemp("data"), num_train=7)


@pytest.fixture(scope="module")
def data(base):
    return load(base)


@pytest.fixture
def broken(tmp_path):
    base = make(tmp_path, num_train=7)
    data = load(base)
    truncate(base / "JPEGImages/im3.jpg")
    return data


def batches(data, size=4, iterations=6, seed=0, workers=0, **options) -> list[dict]:
    sample = partial(labelled_crop, data, AUGMENT)
    return list(train_batches(data, sample, size, iterations, seed, workers=workers, **options))


def same(first: list[dict], second: list[dict]) -> bool:
    assert len(first) == len(second)
    return all(
        a["name"] == b["name"] and all(torch.equal(a[k], b[k]) for k in ("image", "box", "label"))
        for a, b in zip(first, second)
    )


@pytest.fixture(scope="module")
def expected(data):
    return batches(data)


def test_neither_start_nor_workers_matter(data, expected):
    assert same(batches(data, start=3), expected[3:])
    assert same(batches(data, workers=2), expected)
    assert same(batches(data, workers=1, start=5), expected[5:])
    assert batches(data, start=6) == []


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_the_global_batch(data, expected, world):
    parts = [batches(data, rank=rank, world=world) for rank in range(world)]
    for i, batch in enumerate(expected):
        names = [name for part in parts for name in part[i]["name"]]
        assert names == batch["name"]
        assert torch.equal(torch.cat([part[i]["image"] for part in parts]), batch["image"])


def test_an_epoch_sees_every_image_once_and_leaves_none_over(data, expected):
    names = [name for batch in expected for name in batch["name"]]
    epochs = [names[i : i + 7] for i in range(0, 21, 7)]
    assert all(sorted(epoch) == sorted(data.train) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_repeated_augmentation_keeps_an_epochs_length(data):
    names = [n for b in batches(data, size=6, iterations=2, repeats=3) for n in b["name"]]
    first = names[:7]  # an epoch of 7: three, three, one
    assert first[:3] == [first[0]] * 3 and first[3:6] == [first[3]] * 3 and first[0] != first[3]
    alone = dataclasses.replace(data, train=data.train[:1])
    [batch] = batches(alone, size=3, iterations=1, repeats=3)
    assert not torch.equal(batch["image"][0], batch["image"][1])  # augmented anew


def test_the_seed_changes_order_and_crops(data, expected):
    other = batches(data, seed=1)
    assert [b["name"] for b in other] != [b["name"] for b in expected]
    alone = dataclasses.replace(data, train=data.train[:1])
    first, second = batches(alone, seed=0), batches(alone, seed=1)
    assert not torch.equal(first[0]["image"], second[0]["image"])
    assert not torch.equal(first[0]["image"][0], first[0]["image"][1])  # nor the same one twice


@pytest.mark.parametrize("workers", [0, 2])
def test_the_global_generators_are_left_alone(data, workers):
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    batches(data, iterations=2, workers=workers)
    list(evaluation_items(data, data.val, workers=workers))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1] and (np.random.get_state()[1] == before[2]).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_stopping_at_a_damaged_image_says_one_line(broken, workers):
    with pytest.raises(InputError) as caught:
        batches(broken, workers=workers)
    assert str(caught.value).count("\n") == 0 and "im3.jpg: cannot be read" in str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_keeps_the_order(data, workers):
    items = list(evaluation_items(data, data.val, workers))
    assert [item["name"] for item in items] == list(data.val)
    for item in items:
        assert torch.equal(item["image"], data.image(item["name"]))
        assert torch.equal(item["mask"], data.mask(item["name"]))
        assert torch.equal(item["label"], data.label(item["name"]))


@pytest.mark.parametrize("number", [1, 3, 7, 20, 99])
def test_ids_are_spaced_evenly(number):
    """From the first on, in order, and no gap is more than one longer than another."""
    places = list(map(int, evenly_spaced([str(i) for i in range(20)], number)))
    assert len(places) == min(number, 20) and places[0] == 0
    gaps = {b - a for a, b in zip(places, [*places[1:], 20])}
    assert min(gaps) > 0 and max(gaps) - min(gaps) <= 1


HARD_TIMES = """
import os, resource, torch
from oversmoothing.lab.data.loading import read_ahead
from oversmoothing.errors import InputError, lack

def batch(key):
    return {"image": torch.ones(100_000)} if key else os.kill(os.getpid(), 9)

print(*(item["image"].sum().item() for item in read_ahead(batch, [1, 1], workers=1)))
try:
    next(read_ahead(batch, [0], workers=1))
except RuntimeError as error:
    print(bool(lack(error)))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

def read(key):
    return {"name": "a", "image": torch.zeros(100_000)}

def pair(key):
    return torch.zeros(100_000), torch.zeros(100_000)

for broken in (read, pair):
    try:
        list(read_ahead(broken, range(2), workers=1))
    except InputError as error:
        print(error)
"""


def test_hard_times_of_workers() -> None:
    """A worker is killed, there is no shared memory.

    The process would wait forever for a batch that was lost.
    """
    done = subprocess.run(
        [sys.executable, "-c", HARD_TIMES],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    read, died, *refused = done.stdout.splitlines()
    assert (read, died) == ("100000.0 100000.0", "True") and len(refused) == 2
    assert all(line.startswith("workers: no shared memory") for line in refused)
    assert "Traceback" not in done.stderr
