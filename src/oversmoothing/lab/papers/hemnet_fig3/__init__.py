"""HEMNet's Figure 3: ELBO and gradients to X through unrolled EM, by step size η."""

from oversmoothing.lab.papers.hemnet_fig3.figure import main as main
