"""How good a classifier is: the columns of the paper's table 3.

Precision, recall and F1 are macro averages: computed for each class alone, then averaged, every class counting once. A class
that neither occurs nor is ever predicted is left out; one that is never predicted has precision 0.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import Labels

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """A row of table 3 without its last column."""

    accuracy: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, eq=False)
class ClassScores:
    """The scores of each class, and how often it occurs."""

    precision: _Floats
    recall: _Floats
    f1: _Floats
    support: Labels


def confusion(labels: Labels, predicted: Labels, classes: int) -> Labels:
    """The confusion matrix: a row per true class, a column per predicted one."""
    if labels.shape != predicted.shape or labels.ndim != 1:
        raise DataMalformed(f"{predicted.shape} predictions do not match {labels.shape} labels")
    both = np.concatenate([labels, predicted])
    if len(both) and not 0 <= both.min() <= both.max() < classes:
        raise DataMalformed(f"a label or prediction is outside 0 to {classes - 1}")
    return np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def class_scores(matrix: Labels) -> ClassScores:
    """From a confusion matrix; a class that is never predicted has precision 0, one that never occurs has recall 0."""
    right, occurs, predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    return ClassScores(_share(right, predicted), _share(right, occurs), _share(2 * right, occurs + predicted), occurs)


def scores(labels: Labels, predicted: Labels, classes: int) -> Scores:
    if not len(labels):
        raise DataMalformed("there is nothing to score: no samples are held out")
    matrix = confusion(labels, predicted, classes)
    each, seen = class_scores(matrix), matrix.sum(axis=0) + matrix.sum(axis=1) > 0
    means = (float(column[seen].mean()) for column in (each.precision, each.recall, each.f1))
    return Scores(float(np.diag(matrix).sum() / matrix.sum()), *means)


def _share(part: Labels, whole: Labels) -> _Floats:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
