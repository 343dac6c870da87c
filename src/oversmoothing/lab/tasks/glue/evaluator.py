"""Evaluates a sentence classifier: GLUE metrics and token similarity."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.glue import metrics as glue
from oversmoothing.lab.tasks.glue.network import Network, predicted
from oversmoothing.lab.tasks.glue.tokens import Tokens
from oversmoothing.lab.training.batch import to_device
from oversmoothing.metrics import smoothness

SENTENCES = 64  # validation sentences for token similarity


class Evaluator:
    """Evaluates a network. Every process does the whole evaluation, which takes seconds.

    Args:
        network: network to evaluate.
        tokens: tokenized data.
        batch: texts per batch.
        device: device of the network.
        recorder: shows progress.
    """

    def __init__(
        self, network: Network, tokens: Tokens, batch: int, device: torch.device, recorder: Recorder
    ) -> None:
        self.network, self.tokens, self.batch = network, tokens, batch
        self.device, self.recorder, self.data = device, recorder, tokens.data

    def part(self, part: str) -> dict[str, float]:
        """Returns ``<part>_score`` and ``<part>_<metric>`` for each metric, in percent."""
        ids = self.data.parts[part]
        truth = torch.tensor([self.data.texts[id].label for id in ids])
        found = glue.measure(self.data.metrics, self.predictions(ids), truth)
        return {f"{part}_{name}": value for name, value in found.items()}

    @torch.no_grad()
    def predictions(self, ids: Sequence[str]) -> Tensor:
        """Returns classes or scores, on the CPU. Shapes: -> (len(ids),)."""
        self.network.eval()
        found = []
        with self.recorder.progress(len(ids), "evaluation") as bar:
            for batch in self._batches(ids, self.batch):
                out = self.network(batch["tokens"], batch["mask"], batch["types"])
                found.append(predicted(out.float()).cpu())
                bar.update(len(batch["name"]))
        return torch.cat(found)

    @torch.no_grad()
    def layers(self) -> dict[str, list[float]]:
        """Measures mean pairwise cosine and effective rank of the tokens after every layer.

        Each sentence is measured alone, without padding; CLS and SEP count as tokens. The results
        are means over validation sentences.

        Returns:
            ``cosine``, ``effective_rank`` and ``token_variance``, one value per layer.
        """
        self.network.eval()
        return smoothness.by_block(map(self._tokens, self._batches(self.data.val[:SENTENCES], 1)))

    def _tokens(self, one: dict[str, Any]) -> list[Tensor]:
        """Returns the tokens of a sentence after every layer, without padding."""
        real = (one[key][:, one["mask"][0]] for key in ("tokens", "mask", "types"))
        return self.network.backbone.layers(*real)

    def conditions(self, part: str) -> str:
        """Describes how the metrics of a part were measured."""
        padding = self.network.backbone.padding.masked
        return (
            f"{len(self.data.parts[part])} texts of {self.data.name} {part}, at most "
            f"{self.tokens.max_length} tokens, {self.batch} at a time, padding "
            f"{'kept from' if padding else 'seen by'} aggregators, last weights"
        )

    def _batches(self, ids: Sequence[str], size: int) -> Iterator[dict[str, Any]]:
        for start in range(0, len(ids), size):
            samples = [self.tokens.sample(id) for id in ids[start : start + size]]
            yield to_device(self.tokens.collate(samples), self.device)
