"""HEMNet's Figure 3: ELBO and gradients to X through unrolled EM, by step size η.

    oversmoothing figure hem_fig3
    oversmoothing figure hem_fig3 -- aggregator.kernel=distance

A network is trained for --steps steps with each η, always from the same start and on the same
batches. Panels a to c show the start, panel d the training.

X are the tokens that enter the EM (Song, Kim, Shim, AAAI 2021, 5.2).
"""

import argparse
import contextlib
import copy
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from omegaconf import DictConfig
from torch import Tensor

from oversmoothing.aggregators.em import EM
from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.augment import masked_crop
from oversmoothing.lab.data.image_set import ImageSet
from oversmoothing.lab.data.loading import mixed_seed, train_batches
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.panels import LINES
from oversmoothing.lab.launch import trained
from oversmoothing.lab.launch.command import configs, other_runs
from oversmoothing.lab.launch.script import SEED, split_words, whole
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.papers.hemnet_elbo import elbo_by_step
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.store.environment import device, environment
from oversmoothing.lab.store.files import write_text
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.segmentation import PixelCrossEntropy
from oversmoothing.lab.tasks.segmentation_network import Segmenter
from oversmoothing.lab.training.loop import BaseObjective, Batch, TrainingLoop, to_device

EXPERIMENT = "seg_voc_subset"
STEP_SIZES = (0.1, 0.2, 0.4, 0.8, 1.0)
TOLERANCE = 1e-6  # relative to the ELBO: rounding of γ and μ in float32
Profile = dict[str, Any]
Profiles = Mapping[int, Mapping[float, Profile]]  # training steps done -> η -> profile


def main(argv: list[str]) -> int:
    """Writes ``hem_fig3.json`` and ``figures/hem_fig3.png``."""
    own, words = split_words(argv)
    options = _options(own)
    if options.target == RESULTS and other_runs(words):
        raise InputError(
            "--publish: leave it out with these overrides, "
            "which draw another figure than the paper's"
        )
    study = Study(*_source(options.seed, words), options)
    by_size = {step_size: study.measure(step_size) for step_size in options.step_sizes}
    steps = by_size[options.step_sizes[0]]
    profiles = {step: {η: found[step] for η, found in by_size.items()} for step in steps}
    found = {step: {η: numbers(η, each) for η, each in at.items()} for step, at in profiles.items()}
    content = {
        "command": " ".join(["oversmoothing figure hem_fig3", *argv]),
        "network": f"experiment={EXPERIMENT}, trained for {', '.join(map(str, steps))} steps",
        "samples": sum(len(batch["name"]) for batch in study.batches),
        "numbers": found,
        "profiles": profiles,
        "env": environment(study.config.device),
    }
    for step in steps:
        print(_text(step, found[step]), end="\n\n")
    path = options.target / "hem_fig3.json"
    paths = save(figure3(profiles), options.target / "figures/hem_fig3", options.pdf)
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(*paths, path, sep="\n")
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = figure_parser(__doc__, overrides=True)
    parser.add_argument("--seed", type=SEED, default=0, help="default: 0")
    parser.add_argument(
        "--step-sizes", type=float, nargs="+", default=STEP_SIZES, help="step sizes η"
    )
    parser.add_argument("--iterations", type=whole(), default=12, help="iterations T of EM")
    parser.add_argument("--samples", type=whole(), default=100, help="rounded up to whole batches")
    parser.add_argument("--steps", type=whole(), default=40, help="number of training steps")
    parser.add_argument("--every", type=whole(), default=20, help="steps between measurements")
    return parser.parse_args(argv)


def _source(seed: int, words: list[str]) -> tuple[DictConfig, Segmenter, ImageSet]:
    """Returns config, network and data of the experiment before training."""
    [config] = configs([f"experiment={EXPERIMENT}", *words])
    if config.threads:
        torch.set_num_threads(config.threads)
    data = build(config.data)
    return config, trained.untrained(config, data.label_names, seed), data


class Study:
    """A network at its start, fixed samples, and the training of copies of the network."""

    def __init__(
        self, config: DictConfig, network: Segmenter, data: ImageSet, options: argparse.Namespace
    ) -> None:
        self.config, self.network, self.options = config, network, options
        self.trainer, self.device = build(config.trainer), device(config.device)
        task = build(config.task)
        self.objective = PixelCrossEntropy(task.aux_weight, aligned=not network.patches)
        self.loader = partial(train_batches, data, partial(masked_crop, data, task.augment))
        size = self.trainer.batch_size
        number, seed = math.ceil(options.samples / size), mixed_seed("figure 3", options.seed)
        samples = self.loader(batch_size=size, iterations=number, seed=seed, workers=0)
        self.batches = [batch | {"batch_size": size} for batch in samples]  # augmented once
        if options.steps > self.trainer.iterations:
            raise InputError(
                f"--steps: expected at most trainer.iterations, {self.trainer.iterations}, "
                f"got {options.steps}"
            )

    def measure(self, step_size: float) -> dict[int, Profile]:
        """Returns the profile at each moment, by the number of training steps done."""
        network = with_steps(self.network, step_size, self.options.iterations).to(self.device)
        found: dict[int, Profile] = {}

        def look(step: int) -> None:
            found[step] = profile(network, self.batches, self.objective)
            print(f"η = {step_size:g}, step {step}: total {found[step]['total']:.2e}", flush=True)

        self._train(network, look)
        return found

    def _train(self, network: Segmenter, look: Callable[[int], None]) -> None:
        seed, options = self.options.seed, self.options
        loader = partial(self.loader, seed=seed, workers=self.trainer.workers)
        loader = watched(loader, options.steps, options.every, look)
        with tempfile.TemporaryDirectory() as folder:
            run = Recorder(Path(folder), [seed], checkpoint_seconds=math.inf)
            TrainingLoop(network, self.objective, loader, self.trainer, run, self.device).fit()


def watched(
    loader: Callable[..., Iterator[Batch]], steps: int, every: int, look: Callable[[int], object]
) -> Callable[..., Iterator[Batch]]:
    """Returns a loader that ends a training early and calls a function on the way.

    Args:
        loader: of the training.
        steps: number of batches; learning rates stay those of the whole recipe.
        every: steps between two calls.
        look: called with the number of steps done: before the first step, after every ``every``
            steps and after the last one.
    """

    def batches(**share: Any) -> Iterator[Batch]:
        for step, batch in enumerate(itertools.islice(loader(**share), steps)):
            if step % every == 0:
                look(step)
            yield batch
        look(steps)

    return batches


def em_of(network: Segmenter) -> EM:
    """Returns the EM attention in the unit of a CNN. InputError: the network has none."""
    unit = getattr(network.backbone, "unit", None)
    found = [a for a in unit.aggregators if isinstance(a, EM)] if unit else []
    if not found:
        raise InputError(
            "aggregator: no EM attention after a CNN; choose aggregator=hem, em_gradient or em "
            "and a CNN as backbone"
        )
    return found[0]


def with_steps(network: Segmenter, step_size: float, iterations: int) -> Segmenter:
    """Returns a copy of the network whose EM takes ``iterations`` steps of size η in training.

    Raises:
        InputError: the network has no EM, its EM stops gradients, or η is out of range.
    """
    network = copy.deepcopy(network)
    em = em_of(network)
    if not em.passes_gradient:
        raise InputError("aggregator.gradients: expected true; else no gradient reaches X")
    if not 0 < step_size <= 1:
        raise InputError(f"--step-sizes: expected values in (0, 1], got {step_size:g}")
    em.step_size, em.iterations = step_size, iterations
    return network


def profile(network: Segmenter, batches: Sequence[Batch], objective: BaseObjective) -> Profile:
    """Measures gradients to X and the ELBO in training mode, without changing the network.

    Args:
        network: its EM passes gradients.
        batches: as in training; the numbers are means over them. ``batch_size`` is the number of
            images over which the loss is averaged.
        objective: the loss.

    Returns:
        ``n_steps``, ``e_steps``: mean |∂L/∂X| through each iteration's step; ``total``: mean
        |∂L/∂X| of the sum of these gradients; ``elbo``: nats per token after the E- and the N-step
        of each iteration, (T, 2); ``n_falls``, ``e_falls``: share of the steps that lower it.
    """
    network = copy.deepcopy(network).train()
    network.requires_grad_(False)
    network.backbone.unit.conv1.requires_grad_(True)  # gradients end at X
    place = next(network.parameters()).device
    with torch.random.fork_rng():
        torch.manual_seed(0)  # dropout
        found = [_of_batch(network, to_device(batch, place), objective) for batch in batches]
    columns = {key: [each[key] for each in found] for key in found[0]}
    means = {k: torch.tensor(of, dtype=torch.float64).mean(dim=0) for k, of in columns.items()}
    return {key: mean.tolist() for key, mean in means.items()}


def _of_batch(network: Segmenter, batch: Batch, objective: BaseObjective) -> Profile:
    em = em_of(network)
    with recording(em) as record:
        losses = objective.losses(network, objective.prepare(batch, 0), 0)
        sum(losses.values()).backward()
    x = record[0].x_n.detach()
    steps = [[getattr(i, key).detach() for i in record] for key in ("before", "gamma", "mu")]
    path = elbo_by_step(x, *steps, variance=em.variance) / x.shape[-2]  # (B, T, 2)
    line = path.flatten(1)  # E, N, E, N, …
    falls = (line[:, :-1] - line[:, 1:] > TOLERANCE * line[:, 1:].abs()).double()
    n_falls, e_falls = falls[:, 0::2].mean(), falls[:, 1::2].mean().nan_to_num()  # NaN: no E-step
    found = {"elbo": path.mean(dim=0).tolist(), "n_falls": n_falls.item()}
    return input_gradients(record) | found | {"e_falls": e_falls.item()}


def numbers(step_size: float, profile: Profile) -> dict[str, float | int]:
    """Returns the numbers that the claims are judged by, at one step size η.

    Returns:
        ``e_over_n``: ratio of the gradient through the E-steps to that through the N-steps;
        ``largest_e_step``; ``first_half``: share of the first half of the iterations in the
        N-steps' gradient; ``first_half_eq18``: the same share of Eq. 18's weights
        η (1 − η)^(T − t); ``peak``: iteration after which the ELBO is highest; ``n_falls``,
        ``e_falls``: share of the steps that lower the ELBO; ``total``.
    """
    n_steps, e_steps = profile["n_steps"], profile["e_steps"]
    T = len(n_steps)
    after = [pair[1] for pair in profile["elbo"]]
    return {
        "e_over_n": sum(e_steps) / sum(n_steps) if sum(n_steps) else math.nan,
        "largest_e_step": max(e_steps),
        "first_half": _first_half(n_steps),
        "first_half_eq18": _first_half([(1 - step_size) ** (T - t) for t in range(1, T + 1)]),
        "peak": after.index(max(after)) + 1,
        "n_falls": profile["n_falls"],
        "e_falls": profile["e_falls"],
        "total": profile["total"],
    }


def _first_half(values: Sequence[float]) -> float:
    total = sum(values)
    return sum(values[: len(values) // 2]) / total if total else math.nan


def _text(step: int, found: dict[float, dict[str, float]]) -> str:
    """Returns a table of the numbers by step size."""
    rows = [[f"{η:g}", *(f"{x:.3g}" for x in own.values())] for η, own in sorted(found.items())]
    head = ["η", *next(iter(found.values()))]
    return f"after {step} training steps\n\n{table(head, rows)}"


@matplotlib.rc_context(LINES)
def figure3(profiles: Profiles) -> Figure:
    """Draws panels a to c by iteration at the first moment, and panel d, the total over training.

    Gradients through N-steps and E-steps share a logarithmic axis.
    """
    first = profiles[min(profiles)]
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = list(figure.subplots(2, 2).flat)
    axes[2].sharey(axes[1])
    colours = matplotlib.colormaps["viridis_r"].resampled(len(first) + 1)  # light is small
    for i, (step_size, found) in enumerate(sorted(first.items())):
        style = {"color": colours(i + 1), "marker": "o", "markersize": 3}
        lines = ([n for _, n in found["elbo"]], found["n_steps"], found["e_steps"])
        for axis, ys in zip(axes, lines):
            axis.plot(range(1, len(ys) + 1), ys, label=f"η = {step_size:g}", **style)
        total = {step: at[step_size]["total"] for step, at in profiles.items()}
        axes[3].plot(list(total), list(total.values()), **style)
    _label(axes, min(profiles))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5,
                  frameon=False, columnspacing=1, handlelength=1.2)  # fmt: skip
    return figure


def _label(axes: Sequence[Axes], step: int) -> None:
    titles = ["(a) ELBO", "(b) gradient to X, N-step", "(c) gradient to X, E-step"]
    units = ["nats per token, after N-step", "mean |∂L/∂X|", "mean |∂L/∂X|"]
    for axis, title, unit in zip(axes, titles, units):
        axis.set_title(title, fontsize=9)
        axis.set(ylabel=unit, xlabel=f"iteration (training step {step})")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in axes[1:3]:
        axis.set_yscale("log")
    axes[3].set_title("(d) total gradient to X", fontsize=9)
    axes[3].set(ylabel=units[1], xlabel="training step")
    axes[3].set_ylim(bottom=0)
    axes[3].ticklabel_format(axis="y", scilimits=(0, 0), useMathText=True)  # × 10⁻⁵
    axes[3].xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))


@dataclass(frozen=True)
class Recorded:
    """An iteration of EM, with the tokens that each of its steps got.

    Args:
        x_e, x_n: input tokens of the E-step and of the N-step, (..., N, C).
        before, gamma, mu: see ``Iteration`` of the aggregator.
    """

    x_e: Tensor
    x_n: Tensor
    before: Tensor
    gamma: Tensor
    mu: Tensor


@contextlib.contextmanager
def recording(em: EM) -> Iterator[list[Recorded]]:
    """Context in which forward passes append their iterations to the list that it yields.

    Every step gets its own view of x. After a backward pass, ``input_gradients`` gives the
    gradients that flowed to x through each step.
    """
    record: list[Recorded] = []
    e_step, n_step = em.e_step, em.n_step

    def recorded_e(x: Tensor, mu: Tensor) -> Tensor:
        x = branch(x)
        record.append(Recorded(x, x, mu, gamma := e_step(x, mu), mu))
        return gamma

    def recorded_n(x: Tensor, gamma: Tensor, mu: Tensor) -> Tensor:
        x = branch(x)
        record[-1] = replace(record[-1], x_n=x, mu=(mu := n_step(x, gamma, mu)))
        return mu

    vars(em).update(e_step=recorded_e, n_step=recorded_n)
    try:
        yield record
    finally:
        del em.e_step, em.n_step


def branch(x: Tensor) -> Tensor:
    """Returns a view of x that keeps the gradient that flows to x through it."""
    x = x.view_as(x)
    if x.requires_grad:
        x.retain_grad()
    return x


def input_gradients(iterations: Sequence[Recorded]) -> dict[str, float | list[float]]:
    """Computes the mean of |∂L/∂X| after a backward pass, as in HEMNet's Fig. 3b to 3d.

    Args:
        iterations: of one forward pass within ``recording``.

    Returns:
        ``n_steps`` and ``e_steps``: one value per iteration, for the gradient through that step
        (the two terms of Eq. 17). ``total``: the value for the sum of all these gradients. A step
        without gradient counts as 0.
    """
    n_steps = [_gradient(iteration.x_n) for iteration in iterations]
    e_steps = [_gradient(iteration.x_e) for iteration in iterations]
    return {
        "n_steps": [gradient.abs().mean().item() for gradient in n_steps],
        "e_steps": [gradient.abs().mean().item() for gradient in e_steps],
        "total": reduce(torch.add, n_steps + e_steps).abs().mean().item(),
    }


def _gradient(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.grad is None else x.grad
