"""Gives results of an earlier version the run ids of this version. Run it once.

    python scripts/migrate.py --dry-run
    python scripts/migrate.py outputs results/table5.jsonl

Without arguments it migrates `results/*.jsonl` and the folders below `outputs`. It skips what is
already migrated, so the same command finishes a migration that was interrupted.
Exit codes: 0 all were migrated, 2 some file or folder is damaged or in use (it is not changed).
"""

import argparse
import sys
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.launch.script import run_script
from oversmoothing.store.claims import Busy
from oversmoothing.store.migrate import migrate_records, migrate_run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("places", nargs="*", type=Path, help="files of records, folders of runs")
    parser.add_argument("--dry-run", action="store_true", help="list the changes, write nothing")
    options = parser.parse_args()
    if missing := [str(place) for place in options.places if not place.exists()]:
        raise InputError(f"{missing[0]}: no such file or folder; expected *.jsonl or run folders")
    places = options.places or [*sorted(Path("results").glob("*.jsonl")), Path("outputs")]
    patterns = ("config.yaml", "*/config.yaml")  # a run, a folder of runs
    runs = [p.parent for place in places for how in patterns for p in sorted(place.glob(how))]
    changes, failed = [], False
    for path in [*(place for place in places if place.is_file()), *runs]:
        try:
            migrate = migrate_records if path.is_file() else migrate_run
            found = migrate(path, options.dry_run)
            changes += found if isinstance(found, list) else [found] if found else []
        except (InputError, Busy) as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
    verb = "to migrate" if options.dry_run else "migrated"
    print(*changes, f"{len(changes)} results {verb}", sep="\n")
    return 2 if failed else 0


if __name__ == "__main__":
    run_script(main)
