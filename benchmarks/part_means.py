"""Measures the error of the mean that centered aggregation uses on parts of a graph.

    DATA_ROOT=… python benchmarks/part_means.py data=squirrel backbone.depth=4

Networks are trained on random parts and on METIS parts, with each way to estimate the mean. At
every fifth step, the mean that a layer uses is compared with the mean of its values over all nodes
of the whole graph, with the same weights and without dropout. The result is the median of
|used − exact| / |exact| over the steps of all epochs except the first.
"""

import argparse
import copy
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import record
import torch
from torch import Tensor

from oversmoothing.aggregators.running_mean import RunningMean, measuring
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.launch.start import Start
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes.minibatch import MiniBatchLoop

LOADERS = {
    "random, 10 parts": ["trainer=minibatch_random"],
    "METIS, 5 of 50": ["trainer=minibatch_cluster"],
}
EVERY = ["task=nodes", "backbone=pyg", "aggregator=centered", "logger=none", "seeds=[0]"]
STRIDE = 5


class Watched(MiniBatchLoop):
    """Compares the means of every step with those over all nodes."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.steps, self.used = 0, {}
        self.errors: list[list[float]] = []
        for layer, mean in enumerate(self.means[0]):
            mean.register_forward_hook(lambda _, __, out, layer=layer: self._keep(layer, out))

    def _keep(self, layer: int, out: Tensor) -> None:
        self.used[layer] = out.detach()

    def _backward(self, i: int, batch: object) -> Tensor:
        self.steps += 1
        if self.steps % STRIDE:
            return super()._backward(i, batch)
        exact = self._exact()
        sums = super()._backward(i, batch)
        used = [self.used[layer] for layer in range(len(exact))]
        self.errors.append([float((a - b).norm() / b.norm()) for a, b in zip(used, exact)])
        return sums

    @torch.no_grad()
    def _exact(self) -> list[Tensor]:
        net = copy.deepcopy(self.model.nets[0]).eval()
        means = [module for module in net.modules() if isinstance(module, RunningMean)]
        with measuring(means):
            net(self.model.x, self.model.edge_index, self.model.edge_weight)
        return [mean.value for mean in means]


def errors(words: list[str]) -> list[float]:
    """Returns the median relative error of every layer."""
    config = compose_config([*EVERY, *words])
    start = Start(config)
    graph, trainer = start.parts.data, start.parts.trainer
    with TemporaryDirectory() as folder:
        loop = Watched(start.network([0]), graph, trainer, Recorder(Path(folder), [0]), False)
        loop.fit()
    later = loop.errors[len(loop.errors) // trainer.epochs :]
    return [statistics.median(of_layer) for of_layer in zip(*later)]


def main() -> None:
    words = arguments().words
    rows = []
    for name, loader in LOADERS.items():
        for mean in ("exact", "running", "batch"):
            found = errors([*loader, f"trainer.mean={mean}", *words])
            work = f"{name}, mean={mean}: {' '.join(words)}"
            rows += [
                record.row(work, f"error of the mean in layer {layer}, %", [100 * value])
                for layer, value in enumerate(found, start=1)
            ]
    record.save(rows)


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("words", nargs="*", help="as of train.py, such as data=squirrel")
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
