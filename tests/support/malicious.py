"""An object whose pickle would run code."""

import os
from pathlib import Path


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.marker),)
