"""The five shapes of generated scenes: outlines, textures, colours."""

import colorsys

import numpy as np

CLASSES = ("disc", "square", "triangle", "ellipse", "star")


def outline(kind: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Whether points are inside a shape of radius 1. Shapes: u, v (H, W) -> (H, W), bool."""
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
    """Whether points have the second colour. Shapes: u, v (H, W) -> (H, W), bool."""
    if kind == "disc":  # stripes
        return np.sin(4.5 * np.pi * u) > 0
    if kind == "square":  # checks
        return (np.sin(3.5 * np.pi * u) > 0) ^ (np.sin(3.5 * np.pi * v) > 0)
    if kind == "triangle":  # dots
        return np.cos(5 * np.pi * u) + np.cos(5 * np.pi * v) > 0.8
    if kind == "ellipse":  # rings
        return np.sin(5 * np.pi * np.hypot(u, v / 0.55)) > 0
    return np.sin(4 * np.pi * (v + 0.12 * np.sin(3 * np.pi * u))) > 0  # waves


def colours(kind: str | None, random: np.random.Generator) -> np.ndarray:
    """Draws two shades of a kind's hue, or for None two different colours. Shapes: -> (2, 3)."""
    if kind is not None:
        hue = CLASSES.index(kind) / len(CLASSES) + random.uniform(-0.05, 0.05)
        shades = (random.uniform(0.8, 1), random.uniform(0.2, 0.45))
        rgb = [colorsys.hsv_to_rgb(hue % 1, random.uniform(0.6, 1), shade) for shade in shades]
        return 255 * np.array(rgb)
    while True:
        two = random.uniform(0, 255, (2, 3))
        if abs(two[0] - two[1]).sum() > 240:
            return two
