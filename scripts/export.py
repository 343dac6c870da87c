"""Writes a trained network as a folder to share: model.safetensors, config, numbers, model card.

python scripts/export.py --run outputs/wsss-… --to my-network
python scripts/predict.py photo.jpg --run my-network
"""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from oversmoothing.lab.launch.export import export
from oversmoothing.lab.launch.script import SEED, add_trust, run_script


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, help="folder, name or id of a run")
    parser.add_argument("--to", required=True, type=Path, help="new folder")
    parser.add_argument("--seed", type=SEED, help="needed if several were trained")
    add_trust(parser)
    options = parser.parse_args()
    print(*export(options.run, options.to, options.seed, options.trust), sep="\n")
    return 0


if __name__ == "__main__":
    run_script(main)
