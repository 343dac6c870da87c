"""What does not fit into memory is refused before it fills it."""

import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from oversmoothing.errors import InputError
from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.config.instantiate import build
from oversmoothing.lab.launch import room
from oversmoothing.lab.launch.activations import activations
from oversmoothing.lab.launch.command import command
from oversmoothing.lab.launch.start import parts
from oversmoothing.lab.tasks.base import Parts, Task

CPU = torch.device("cpu")
NETWORKS = {
    "ViT, centered": ["experiment=wsss_scenes", "aggregator=centered", "task.augment.crop=32"],
    "BERT, ContraNorm": ["experiment=glue_sst2_small", "aggregator=contranorm", "backbone.dim=16"],
    "CNN, HEM": [
        *("experiment=seg_voc_hem", "backbone=mobilenetv2", "backbone.weights=none"),
        *("task.augment.crop=64", "aggregator.num_bases=8", "trainer.batch_size=2"),
    ],
}


def made(words: list[str]) -> tuple[Task, Parts, nn.Module]:
    config = compose_config([*words, "logger=none", "seeds=[0]"])
    task = build(config.task)
    own = parts(config, task.toy)
    return task, own, task.network(own, [0], CPU)


@pytest.mark.parametrize("name", NETWORKS)
def test_activations_are_what_a_forward_pass_keeps(name: str) -> None:
    task, own, network = made(NETWORKS[name])
    inputs = task.inputs(own, 2, CPU)
    counted = [activations(network, partial(task.inputs, own, B, CPU)) for B in (2, 4)]
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network.train()(*inputs)
    state = [*network.parameters(), *network.buffers()]
    known = {tensor.untyped_storage().data_ptr() for tensor in state}
    real = sum(storage.nbytes() for key, storage in kept.items() if key not in known)
    assert counted[0] == pytest.approx(real, rel=0.02)
    assert counted[1] == pytest.approx(2 * counted[0], rel=0.1)


def test_counting_changes_neither_network_nor_random_numbers() -> None:
    task, own, network = made(
        [
            *("task=classification", "data=scene_crops", "trainer=deit"),
            *("backbone=t2t_vit_7", "aggregator=hem"),
        ]
    )
    before = {key: str(value) for key, value in network.state_dict().items()}
    drawn = torch.get_rng_state()
    assert activations(network, lambda: task.inputs(own, 2, CPU)) > 0
    assert torch.equal(torch.get_rng_state(), drawn)
    assert {key: str(value) for key, value in network.state_dict().items()} == before
    network(*task.inputs(own, 2, CPU)).sum().backward()  # no tensor without content is left


def test_a_network_that_looks_at_values_is_not_counted() -> None:
    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    assert activations(Looks(), lambda: (torch.ones(2),)) == 0


REFUSED = {
    "trainer.batch_size: a step with 64 examples at once takes about": (2**23, []),
    "backbone: training its ": (2**19, []),
    "backbone: training its parameters takes more than": (2**29, ["backbone.vocabulary=2000000"]),
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_training_larger_than_the_memory_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, more = REFUSED[line]
    words = ["-m", "seeds=[0],[1]", "experiment=glue_sst2_small", "data.task=rte", *more]
    words += [
        "backbone.dim=64",
        "backbone.heads=1",
        "trainer.batch_size=64",
        "logger=none",
        "device=cpu",
    ]
    words += [] if more else ["backbone.vocabulary=99"]
    monkeypatch.setattr(room, "free_memory", lambda device: free)
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")  # otherwise it tries to download the texts
    with pytest.raises(InputError) as refused:
        command([*words, f"paths.outputs={tmp_path}", f"paths.data={tmp_path}"])
    assert line in str(refused.value)


def test_the_parameters_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ["experiment=wsss_scenes", "task.augment.crop=32", "trainer.batch_size=1"]
    task, given, network = made(own)
    monkeypatch.setattr(room, "free_memory", lambda device: 0)
    with pytest.raises(InputError, match="backbone: training its .* parameters takes"):
        room.network_of(task, given, [0], CPU)
    monkeypatch.setenv("OVERSMOOTHING_LIMITS", "off")
    room.network_of(task, given, [0], CPU)


def test_a_tensor_larger_than_the_memory_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_memory", lambda device: 2**28)
    with pytest.raises(InputError, match="data: one of its tensors"), room.room_for("data"):
        torch.zeros(10_000, 10_000)
    said = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes. Error"
    with pytest.raises(InputError, match="tried to allocate 9 bytes"), room.room_for("data"):
        raise RuntimeError(said)


def test_counting_leaves_no_reference_to_a_parameter() -> None:
    layer = nn.Linear(2, 2)
    before = weakref.getweakrefcount(layer.weight)
    assert activations(layer, lambda: (torch.ones(1, 2),)) > 0
    assert weakref.getweakrefcount(layer.weight) == before  # torch.utils.swap_tensors refuses these
