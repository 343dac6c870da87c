"""The tasks of GLUE: files, columns, labels and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Name = Literal["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli"]

YES_NO = ("0", "1")
ENTAILED = ("entailment", "not_entailment")


@dataclass(frozen=True)
class Glue:
    """One task of GLUE (Wang et al., ICLR 2019), described by its TSV files.

    Args:
        folder: its name in GLUE's archive.
        first: column of the first sentence.
        second: column of the second sentence; None: there is only one sentence.
        label: column of the label.
        metrics: names in ``tasks.glue.metrics``; their mean is the task's score.
        classes: labels in the order of the class numbers; empty: the label is a score from 0 to 5.
        header: names of the columns, for files whose first line does not give them.
        val: maps each evaluation part to its file.
    """

    folder: str
    first: str
    second: str | None
    label: str
    metrics: tuple[str, ...] = ("accuracy",)
    classes: tuple[str, ...] = YES_NO
    header: tuple[str, ...] = ()
    val: Mapping[str, str] = field(default_factory=lambda: {"val": "dev"})


TASKS: dict[str, Glue] = {
    "cola": Glue(
        *("CoLA", "sentence", None, "acceptable"),
        metrics=("matthews",),
        header=("source", "acceptable", "annotation", "sentence"),
    ),
    "mnli": Glue(
        *("MNLI", "sentence1", "sentence2", "gold_label"),
        classes=("entailment", "neutral", "contradiction"),
        val={"val": "dev_matched", "val_mismatched": "dev_mismatched"},
    ),
    "mrpc": Glue("MRPC", "#1 String", "#2 String", "Quality", metrics=("accuracy", "f1")),
    "qnli": Glue("QNLI", "question", "sentence", "label", classes=ENTAILED),
    "qqp": Glue("QQP", "question1", "question2", "is_duplicate", metrics=("accuracy", "f1")),
    "rte": Glue("RTE", "sentence1", "sentence2", "label", classes=ENTAILED),
    "sst2": Glue("SST-2", "sentence", None, "label"),
    "stsb": Glue(
        *("STS-B", "sentence1", "sentence2", "score"), metrics=("pearson", "spearman"), classes=()
    ),
    "wnli": Glue("WNLI", "sentence1", "sentence2", "label"),
}
