"""GLUE's metrics, in percent, in float64.

All take predictions and truth (N,) and return a number. Where a coefficient is undefined (one of
the two is constant) it is 0: such predictions say nothing.
"""

from collections.abc import Sequence

from torch import Tensor


def measure(names: Sequence[str], prediction: Tensor, truth: Tensor) -> dict[str, float]:
    """The named metrics, and ``score``, their mean: GLUE's figure for a task with several.

    Args:
        names: of functions here.
        prediction: classes from 0, or scores.
        truth: the same.

    Shapes: prediction (N,), truth (N,).
    """
    found = {name: METRICS[name](prediction.double(), truth.double()) for name in names}
    return {"score": sum(found.values()) / len(found), **found}


def accuracy(prediction: Tensor, truth: Tensor) -> float:
    """Percent of equal classes."""
    return 100 * (prediction == truth).double().mean().item()


def f1(prediction: Tensor, truth: Tensor) -> float:
    """2 TP / (2 TP + FP + FN) of class 1; 0 where it is neither predicted nor true."""
    both = ((prediction == 1) & (truth == 1)).sum().item()
    either = (prediction == 1).sum().item() + (truth == 1).sum().item()
    return 100 * 2 * both / either if either else 0.0


def matthews(prediction: Tensor, truth: Tensor) -> float:
    """Matthews' correlation of two classes, which is Pearson's of zeros and ones."""
    return pearson((prediction == 1).double(), (truth == 1).double())


def pearson(prediction: Tensor, truth: Tensor) -> float:
    """Pearson's correlation."""
    if (prediction == prediction[0]).all() or (truth == truth[0]).all():
        return 0.0  # not by their variance, which rounding leaves above 0
    a, b = (x.double() - x.double().mean() for x in (prediction, truth))
    return 100 * (a @ b / (a.norm() * b.norm())).item()


def spearman(prediction: Tensor, truth: Tensor) -> float:
    """Pearson's correlation of the ranks."""
    return pearson(_ranks(prediction), _ranks(truth))


def _ranks(x: Tensor) -> Tensor:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, count = x.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - (count - 1) / 2)[place]


METRICS = {f.__name__: f for f in (accuracy, f1, matthews, pearson, spearman)}
