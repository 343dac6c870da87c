"""Token similarity by block, over seeds and methods: picture and data."""

import csv
import io
from pathlib import Path

from oversmoothing.drawing.tokens import Results, draw_tokens, token_rows
from oversmoothing.store.files import write_text
from oversmoothing.tasks.wsss.pictures import save


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
    write_text(path, text.getvalue())
    return [*paths, path]
