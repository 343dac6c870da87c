"""The colours in which PASCAL VOC's masks are stored."""

import numpy as np


def palette() -> np.ndarray:
    """Colour of every label: its bits, dealt to red, green, blue in turn, highest colour bit first.

    Bit 3j + c of the label is bit 7 − j of channel c (VOC development kit): 0 is black, 1 is
    (128, 0, 0), 255 is (224, 224, 192).

    Shapes: -> uint8 (256, 3).
    """
    labels = np.arange(256)[:, None]
    channel = np.arange(3)
    bits = (((labels >> (3 * j + channel)) & 1) << (7 - j) for j in range(3))
    return sum(bits).astype(np.uint8)
