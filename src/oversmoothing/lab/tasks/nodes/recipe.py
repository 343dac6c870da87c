"""Adam on the full batch, as ContraNorm's code trains its graph networks."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from oversmoothing.checks import above, at_least, of, require
from oversmoothing.errors import InputError


@dataclass(frozen=True)
class FullBatchAdam:
    """Adam on the full batch.

    Args:
        epochs: number of optimization steps.
        lr: learning rate.
        weight_decay: L2 penalty of Adam, for all parameters without ``dense_weight_decay``.
        selection: results of each seed are those of the ``last`` epoch, or of the epoch with the
            highest validation accuracy (``best-val``; the earliest if several are equal).
        eval_every: epochs between two evaluations; ``best-val`` chooses among these. The
            last epoch is always evaluated.
        patience: with ``best-val``, number of epochs without a higher validation accuracy after
            which the result of a seed is final. Training ends when all seeds are final. None: train
            all epochs.
        dense_weight_decay: L2 penalty on the linear layers before and after the graph
            convolutions, as in GCNII's code; None: ``weight_decay``.
        compile: use torch.compile.

    Attributes:
        on_host: whether the graph stays in the host's memory, and parts of it move to the device.

    Raises:
        InputError: a value is out of range, or the patience ends before the second evaluation.
    """

    on_host: ClassVar[bool] = False
    epochs: int = 200
    lr: float = 0.005
    weight_decay: float = 5e-4
    selection: Literal["last", "best-val"] = "last"
    eval_every: int = 20
    patience: int | None = None
    dense_weight_decay: float | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        rules = at_least(1, **of(self, "epochs", "eval_every")) | above(0, lr=self.lr)
        require("trainer", **rules, **at_least(0, **of(self, "weight_decay", "dense_weight_decay")))
        if self.patience is not None and not (self.patience > 0 and self.selection == "best-val"):
            raise InputError(
                "trainer.patience: expected 1 or more epochs, with trainer.selection=best-val, got "
                f"{self.patience} with {self.selection}"
            )
        if self.patience is not None and self.patience < self.eval_every:
            raise InputError(  # the first evaluation would be the last
                f"trainer.patience: expected trainer.eval_every={self.eval_every} epochs or more, "
                f"got {self.patience}; raise it, or lower trainer.eval_every"
            )

    def fits(self, network: nn.Module) -> None:
        """Checks that the loop can train a network.

        Raises:
            InputError: it cannot; the message names the way out.
        """
        if self.dense_weight_decay is not None and not self.groups(network)[1]["params"]:
            raise InputError(
                "trainer.dense_weight_decay: this network has no linear layers before or after its "
                "convolutions; leave it out"
            )

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Groups the parameters by weight decay.

        Args:
            model: parameters with a part ``dense`` in their names are those of linear layers.
        """
        if self.dense_weight_decay is None:
            return [{"params": [*model.parameters()], "weight_decay": self.weight_decay}]
        named = dict(model.named_parameters())
        dense = [p for name, p in named.items() if "dense" in name.split(".")]
        others = [p for name, p in named.items() if "dense" not in name.split(".")]
        return [
            {"params": others, "weight_decay": self.weight_decay},
            {"params": dense, "weight_decay": self.dense_weight_decay},
        ]
