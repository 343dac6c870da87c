"""GLUE's metrics, in percent.

Each function takes predictions and true labels, both of shape (N,), and returns a number. A
correlation is 0 if it is undefined because one of the two is constant.
"""

from collections.abc import Sequence

from torch import Tensor


def measure(names: Sequence[str], prediction: Tensor, truth: Tensor) -> dict[str, float]:
    """Computes metrics and their mean, ``score``, which GLUE reports for a task.

    Args:
        names: names of functions in this module.
        prediction: classes from 0, or scores.
        truth: classes or scores.

    Shapes: prediction (N,), truth (N,).
    """
    found = {name: METRICS[name](prediction.double(), truth.double()) for name in names}
    return {"score": sum(found.values()) / len(found), **found}


def accuracy(prediction: Tensor, truth: Tensor) -> float:
    """Percentage of equal classes."""
    return 100 * (prediction == truth).double().mean().item()


def f1(prediction: Tensor, truth: Tensor) -> float:
    """2 TP / (2 TP + FP + FN) of class 1; 0 if class 1 is neither predicted nor true."""
    both = ((prediction == 1) & (truth == 1)).sum().item()
    either = (prediction == 1).sum().item() + (truth == 1).sum().item()
    return 100 * 2 * both / either if either else 0.0


def matthews(prediction: Tensor, truth: Tensor) -> float:
    """Matthews correlation of two classes: Pearson correlation of zeros and ones."""
    return pearson((prediction == 1).double(), (truth == 1).double())


def pearson(prediction: Tensor, truth: Tensor) -> float:
    """Pearson correlation."""
    return _correlation("pearsonr", prediction, truth)


def spearman(prediction: Tensor, truth: Tensor) -> float:
    """Spearman correlation."""
    return _correlation("spearmanr", prediction, truth)


def _correlation(name: str, prediction: Tensor, truth: Tensor) -> float:
    from scipy import stats  # takes a second to import, and most tasks do not need it

    if (prediction == prediction[0]).all() or (truth == truth[0]).all():
        return 0.0
    return 100 * float(getattr(stats, name)(prediction, truth).statistic)


METRICS = {f.__name__: f for f in (accuracy, f1, matthews, pearson, spearman)}
