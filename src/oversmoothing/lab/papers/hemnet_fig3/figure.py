"""HEMNet's Figure 3: ELBO and gradients to X through unrolled EM, by step size η.

    python scripts/figure.py hem_fig3
    python scripts/figure.py hem_fig3 --folder outputs/distance -- aggregator.kernel=distance
    python scripts/figure.py hem_fig3 --run outputs/segmentation-voc_subset-em-…

Without --run, a network is trained for --steps steps with each η, always from the same start and on
the same batches. Panels a to c show the start, panel d the training. With --run nothing is trained,
and panels a to c show that network. Words after -- are overrides of the experiment.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from omegaconf import DictConfig

from oversmoothing.errors import InputError
from oversmoothing.lab.config.instantiate import build
from oversmoothing.lab.data.augment import masked_crop
from oversmoothing.lab.data.image_set import ImageSet
from oversmoothing.lab.data.loading import mixed_seed, train_batches
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.style import LINES
from oversmoothing.lab.launch import loading
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.flags import SEED, add_trust, whole
from oversmoothing.lab.launch.overrides import other_runs
from oversmoothing.lab.launch.script import split_words
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.papers.hemnet_fig3.claims import claims, numbers
from oversmoothing.lab.papers.hemnet_fig3.gradients import Profile, profile, watched, with_steps
from oversmoothing.lab.store.environment import device, environment
from oversmoothing.lab.store.files import write_text, writing
from oversmoothing.lab.store.identity import short_name
from oversmoothing.lab.store.recorder import Recorder
from oversmoothing.lab.tasks.segmentation.network import Segmenter
from oversmoothing.lab.tasks.segmentation.task import PixelCrossEntropy
from oversmoothing.lab.training.loop import Batch, TrainingLoop

EMS = ("em", "hem", "em_gradient")
STEP_SIZES = (0.1, 0.2, 0.4, 0.8, 1.0)
COLOURS = "viridis_r"  # perceptually uniform; light is small
Profiles = Mapping[int, Mapping[float, Profile]]  # training steps done -> η -> profile


def main(argv: list[str]) -> int:
    """Writes ``hem_fig3.json`` and ``figures/hem_fig3.png``."""
    own, words = split_words(argv)
    options = _options(own)
    if options.target == RESULTS and other_runs(words):
        raise InputError(
            "--publish: these overrides make another figure than the paper's; leave it out"
        )
    with writing(options.target):  # before hours of work
        (options.target / "figures").mkdir(parents=True, exist_ok=True)
    study = Study(*_source(options, words), options)
    by_size = {step_size: study.measure(step_size) for step_size in options.step_sizes}
    steps = by_size[options.step_sizes[0]]
    profiles = {step: {η: found[step] for η, found in by_size.items()} for step in steps}
    found = {step: {η: numbers(η, each) for η, each in at.items()} for step, at in profiles.items()}
    content = {
        "command": " ".join(["python scripts/figure.py hem_fig3", *argv]),
        "network": options.run
        or f"experiment={options.experiment}, trained for {', '.join(map(str, steps))} steps",
        "samples": sum(len(batch["name"]) for batch in study.batches),
        "claims": {step: claims(at) for step, at in found.items()},
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


class Study:
    """A network at its start, fixed samples, and the training of copies of the network."""

    def __init__(
        self, config: DictConfig, network: Segmenter, data: ImageSet, options: argparse.Namespace
    ) -> None:
        self.config, self.network, self.data, self.options = config, network, data, options
        self.trainer, self.device = build(config.trainer), device(config.device)
        task = build(config.task)
        self.objective = PixelCrossEntropy(task.aux_weight, aligned=not network.patches)
        sample = partial(masked_crop, data, task.augment)
        self.loader = partial(train_batches, data, sample)
        self.batches = self._fixed()
        if not options.run and options.steps > self.trainer.iterations:
            raise InputError(
                f"--steps: expected at most trainer.iterations, {self.trainer.iterations}, "
                f"got {options.steps}"
            )

    def _fixed(self) -> list[Batch]:
        """Returns training samples in whole batches, augmented once."""
        size = self.trainer.batch_size
        number = math.ceil(self.options.samples / size)
        seed = mixed_seed("figure 3", self.options.seed)
        batches = self.loader(batch_size=size, iterations=number, seed=seed, workers=0)
        return [batch | {"batch_size": size} for batch in batches]

    def measure(self, step_size: float) -> dict[int, Profile]:
        """Returns the profile at each moment, by the number of training steps done."""
        network = with_steps(self.network, step_size, self.options.iterations).to(self.device)
        found: dict[int, Profile] = {}

        def look(step: int) -> None:
            found[step] = profile(network, self.batches, self.objective)
            print(f"η = {step_size:g}, step {step}: total {found[step]['total']:.2e}", flush=True)

        if self.options.run:
            look(self.trainer.iterations)
        else:
            self._train(network, look)
        return found

    def _train(self, network: Segmenter, look: Callable[[int], None]) -> None:
        seed, options = self.options.seed, self.options
        loader = partial(self.loader, seed=seed, workers=self.trainer.workers)
        loader = watched(loader, options.steps, options.every, look)
        with tempfile.TemporaryDirectory() as folder:
            run = Recorder(Path(folder), [seed], checkpoint_seconds=math.inf)
            TrainingLoop(network, self.objective, loader, self.trainer, run, self.device).fit()


def _source(
    options: argparse.Namespace, words: list[str]
) -> tuple[DictConfig, Segmenter, ImageSet]:
    """Returns config, network and data of a trained run, or of an experiment before training."""
    if options.run and words:
        raise InputError("--run: its config is fixed; leave out the overrides after --")
    if options.run:
        run = loading.load(options.run, options.seed, tasks=("segmentation",), trust=options.trust)
        return run.config, run.network, run.data
    [config] = configs([f"experiment={options.experiment}", *words])
    if short_name(config.task) != "segmentation" or short_name(config.aggregator) not in EMS:
        raise InputError(
            f"--experiment {options.experiment}: expected one of task=segmentation with EM or HEM"
        )
    if config.threads:
        torch.set_num_threads(config.threads)
    data = build(config.data)
    return config, loading.untrained(config, data.label_names, options.seed), data


def _text(step: int, found: dict[float, dict[str, float]]) -> str:
    """Returns a table of the numbers by step size, and which claims hold."""
    names = list(next(iter(found.values())))
    lines = [" ".join(["η".rjust(5), *(name.rjust(15) for name in names)])]
    for step_size, row in sorted(found.items()):
        lines.append(" ".join([f"{step_size:5g}", *(f"{row[name]:15.3g}" for name in names)]))
    held = [f"{'yes' if holds else 'NO ':3} {claim}" for claim, holds in claims(found).items()]
    return "\n".join([f"after {step} training steps", *lines, *held])


def _options(argv: list[str]) -> argparse.Namespace:
    parser = figure_parser(__name__, __doc__, folder=True)
    parser.add_argument("--run", help="folder, name or id of a run of task=segmentation")
    parser.add_argument("--experiment", default="seg_voc_subset")
    parser.add_argument("--seed", type=SEED, default=0)
    parser.add_argument("--step-sizes", type=float, nargs="+", default=STEP_SIZES, help="η")
    parser.add_argument("--iterations", type=whole(), default=12, help="T")
    parser.add_argument("--samples", type=whole(), default=100, help="rounded up to whole batches")
    parser.add_argument("--steps", type=whole(), default=40, help="number of training steps")
    parser.add_argument("--every", type=whole(), default=20, help="steps between measurements")
    add_trust(parser)
    options = parser.parse_args(argv)
    return options


@matplotlib.rc_context(LINES)
def figure3(profiles: Profiles) -> Figure:
    """Draws panels a to c by iteration at the first moment, and panel d, the total over training.

    Panel d needs two moments. Gradients through N-steps and E-steps share a logarithmic axis.
    """
    first = profiles[min(profiles)]
    number = 4 if len(profiles) > 1 else 3
    figure = Figure(figsize=(3.1 * number, 3.1), layout="constrained")
    axes = figure.subplots(1, number)
    axes[2].sharey(axes[1])
    colours = matplotlib.colormaps[COLOURS].resampled(len(first) + 1)
    for i, (step_size, found) in enumerate(sorted(first.items())):
        style = {"color": colours(i + 1), "marker": "o", "markersize": 3}
        _by_iteration(axes, found, label=f"η = {step_size:g}", **style)
        if number == 4:
            total = {step: at[step_size]["total"] for step, at in profiles.items()}
            axes[3].plot(list(total), list(total.values()), **style)
    _label(axes, min(profiles))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=9,
                  frameon=False)  # fmt: skip
    return figure


def _by_iteration(axes: list[Axes], found: Profile, **style: object) -> None:
    for axis, ys in zip(axes, ([n for _, n in found["elbo"]], found["n_steps"], found["e_steps"])):
        axis.plot(range(1, len(ys) + 1), ys, **style)


def _label(axes: list[Axes], step: int) -> None:
    titles = ["(a) ELBO", "(b) gradient to X, N-step", "(c) gradient to X, E-step"]
    units = ["nats per token, after the N-step", "mean |∂L/∂X|", "mean |∂L/∂X|"]
    for axis, title, unit in zip(axes, titles, units):
        axis.set(title=title, ylabel=unit, xlabel=f"iteration (training step {step})")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in axes[1:3]:
        axis.set_yscale("log")
    if len(axes) == 4:
        axes[3].set(title="(d) total gradient to X", ylabel=units[1], xlabel="training step")
        axes[3].set_ylim(bottom=0)
        axes[3].yaxis.set_major_formatter("{x:.0e}")
        axes[3].xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
