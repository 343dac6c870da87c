"""Methods against oversmoothing in deep attention and graph networks."""

__version__ = "0.2.0"
