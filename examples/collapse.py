"""A transformer of 24 layers that makes all tokens alike; it needs torch and numpy only.

python examples/collapse.py      # seconds; writes outputs/diagnose/collapse.csv, .txt and .png

The layers are torch's, with the norm after each residual sum (post-LN) and random weights. The
figure needs matplotlib and is left out without it.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import oversmoothing as osm


def build() -> tuple[nn.TransformerEncoder, torch.Tensor]:
    """Returns the transformer and its input: 4 samples of 50 tokens with 64 channels."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 24, enable_nested_tensor=False)
    return encoder, torch.randn(4, 50, 64)


def plain() -> osm.Report:
    encoder, x = build()
    return osm.diagnose(encoder, x)


def with_pairnorm() -> osm.Report:
    """Measures the same transformer with PairNorm after the attention of every layer."""
    encoder, x = build()
    osm.apply(encoder, "pairnorm")
    return osm.diagnose(encoder, x)


def main() -> None:
    folder = Path("results" if "--publish" in sys.argv else "outputs") / "diagnose"
    folder.mkdir(parents=True, exist_ok=True)
    report = plain()
    print(report)
    report.to_csv(folder / "collapse.csv")
    (folder / "collapse.txt").write_text(f"{report}\n", encoding="utf-8")
    print("\nWith PairNorm:", with_pairnorm().summary())
    try:
        curves = ["SmolLM2-135M", "MiniLM-L6", "DeiT-Ti"]  # pretrained, for comparison
        report.plot(folder / "collapse.png", metrics=["cosine", "effective_rank"], curves=curves)
    except osm.InputError as error:
        print(error)


if __name__ == "__main__":
    sys.exit(main())
