"""Token similarity by block, over seeds and methods: picture and data."""

import csv
import io
from pathlib import Path

from oversmoothing.files import write_atomically
from oversmoothing.wsss.pictures import save
from oversmoothing.wsss.token_pictures import Results, draw_tokens, token_rows


def write_tokens(results: Results, stem: Path) -> list[Path]:
    """Writes ``stem``.png, .pdf and .csv and returns their paths.

    Args:
        results: label -> results of its seeds, as in ``result.json``.

    Raises:
        InputError: no token similarity in them, or a file that cannot be written.
    """
    rows = token_rows(results)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path = stem.with_name(f"{stem.name}.csv")
    paths = save(draw_tokens(results), stem)
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))
    return [*paths, path]
