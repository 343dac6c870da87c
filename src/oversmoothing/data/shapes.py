"""Five kinds of things in generated scenes: each has its own outline and its own texture."""

import numpy as np

CLASSES = ("disc", "square", "triangle", "ellipse", "star")


def outline(kind: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Which points belong to the thing. Shapes: u, v (H, W), 1 is its radius -> (H, W), bool."""
    radius, angle = np.hypot(u, v), np.arctan2(v, u)
    if kind == "disc":
        return radius < 1
    if kind == "square":
        return np.maximum(abs(u), abs(v)) < 0.85
    if kind == "triangle":
        return (v > -0.6) & (np.sqrt(3) * abs(u) + v < 1.2)
    if kind == "ellipse":
        return u**2 + (v / 0.55) ** 2 < 1
    return radius < 0.72 + 0.28 * np.cos(5 * angle)


def texture(kind: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Which of its two colours a point has. Shapes: u, v (H, W) -> (H, W), bool."""
    if kind == "disc":  # stripes
        return np.sin(4.5 * np.pi * u) > 0
    if kind == "square":  # checks
        return (np.sin(3.5 * np.pi * u) > 0) ^ (np.sin(3.5 * np.pi * v) > 0)
    if kind == "triangle":  # dots
        return np.cos(5 * np.pi * u) + np.cos(5 * np.pi * v) > 0.8
    if kind == "ellipse":  # rings
        return np.sin(5 * np.pi * np.hypot(u, v / 0.55)) > 0
    return np.sin(4 * np.pi * (v + 0.12 * np.sin(3 * np.pi * u))) > 0  # waves
