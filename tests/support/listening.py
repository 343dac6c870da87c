"""An aggregator that notes when a training loop calls it."""

from oversmoothing.aggregators.base import Aggregator


class Listening(Aggregator):
    """Records its calls, in order, in the attribute ``heard``."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def advance(self, step: int) -> None:
        self.heard.append(f"before {step}")

    def settle(self) -> None:
        self.heard.append("after")
