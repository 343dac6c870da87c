"""Figure 1 of Centered Self-Attention Layers: the rank of random transformers by γ and depth."""

from oversmoothing.lab.papers.centered_fig1.figure import main as main
