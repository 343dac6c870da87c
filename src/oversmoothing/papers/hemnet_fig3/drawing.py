"""The panels of HEMNet's Figure 3 (Song, Kim, Shim, AAAI 2021)."""

from collections.abc import Mapping

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from oversmoothing.drawing.style import LINES
from oversmoothing.papers.hemnet_fig3.gradients import Profile

COLOURS = "viridis_r"  # perceptually uniform; light is small
Profiles = Mapping[int, Mapping[float, Profile]]  # training steps done -> η -> profile


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
    for i, (step_size, profile) in enumerate(sorted(first.items())):
        style = {"color": colours(i + 1), "marker": "o", "markersize": 3}
        _by_iteration(axes, profile, label=f"η = {step_size:g}", **style)
        if number == 4:
            total = {step: found[step_size]["total"] for step, found in profiles.items()}
            axes[3].plot(list(total), list(total.values()), **style)
    _label(axes, min(profiles))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=9,
                  frameon=False)  # fmt: skip
    return figure


def _by_iteration(axes: list[Axes], profile: Profile, **style: object) -> None:
    ticks = range(1, len(profile["n_steps"]) + 1)
    values = ([pair[1] for pair in profile["elbo"]], profile["n_steps"], profile["e_steps"])
    for axis, ys in zip(axes, values):
        axis.plot(ticks, ys, **style)


def _label(axes: list[Axes], step: int) -> None:
    titles = ["(a) ELBO", "(b) gradient to X, N-step", "(c) gradient to X, E-step"]
    units = ["nats a token, after the N-step", "mean |∂L/∂X|", "mean |∂L/∂X|"]
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
