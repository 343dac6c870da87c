"""The tour of ``make demo``: a small Figure 1, a depth study, segmentation, and one page."""

from oversmoothing.papers.demo_study.tour import main

__all__ = ["main"]
