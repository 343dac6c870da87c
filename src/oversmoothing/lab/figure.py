"""Draws a figure, or computes another result that is not a table of runs.

oversmoothing figure fig1 --jobs 2
oversmoothing figure hem_fig3 --help
"""

import importlib
import sys

from oversmoothing.errors import InputError, meant

FIGURES = {  # name -> module of lab/papers, and what it shows
    "fig1": ("centered_fig1", "Centered Self-Attention, Figure 1: rank by γ and depth"),
    "fig2": ("centered_fig2", "Centered Self-Attention, Figure 2: CAMs and masks of two runs"),
    "propositions": ("centered_propositions", "Centered Self-Attention, Propositions 1 and 2"),
    "layers": ("contranorm_layers", "ContraNorm, Figure 2: attention maps and tokens by layer"),
    "hem_fig3": ("hemnet_fig3", "HEMNet, Figure 3: ELBO and gradients"),
    "hem_fig4": ("hemnet_fig4", "HEMNet, Figure 4: attention maps and reconstructions"),
    "elbo": ("hemnet_elbo", "HEMNet: which steps of EM lower the ELBO"),
    "cost": ("hemnet_cost", "HEMNet, Table 3: FLOPs, memory and parameters"),
    "curves": ("depth_curves", "similarity of tokens by block, from the runs of a table"),
    "deep_gcns": ("deep_gcns", "deep GCNs by initial weights and norms, for claims since 2024"),
    "training": ("wsss_training", "mIoU during a training of task=wsss"),
    "cures": ("cures", "which method at which depth"),
    "measures": ("measures", "measures of deep networks before and after training"),
    "claims": ("claims", "what the papers claim, with verdicts"),
    "hero": ("hero", "the figure of the first page: what collapses, and what helps"),
    "speed": ("speed", "what each method adds to the time of a training step"),
    "demo": ("demo_study", "a tour in minutes"),
}


def main() -> int:
    name, *options = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        shown = (f"  {name:13} {about}" for name, (_, about) in FIGURES.items())
        print(__doc__, *shown, sep="\n")
        return 0
    if name not in FIGURES:
        raise InputError(f"{name}: no such figure; {meant(name, FIGURES)}")
    return importlib.import_module(f"oversmoothing.lab.papers.{FIGURES[name][0]}").main(options)
