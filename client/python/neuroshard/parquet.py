"""Measurements of a profile store as a Parquet file.

  neuroshard-parquet --store profile.db --out compute.parquet
  neuroshard-parquet --store profile.db --kind comm --out comm.parquet

`neuroshard store export`, the command of PATH, reads the store, of either kind. Columns are those of its CSV, with types: names and ids are strings,
times (`_ms`) doubles, counts integers, `imported` and `weighted` booleans; what is empty there is null. Needs pyarrow.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile

from neuroshard.command_line import parse_arguments

try:
    from pyarrow import ArrowInvalid, bool_, csv, float64, int64, parquet, string, uint64
except ImportError:
    raise SystemExit("neuroshard-parquet: needs pyarrow (pip install neuroshard[parquet])") from None

TYPES = {
    **dict.fromkeys(("sample_id", "optimizer", "shards", "direction", "collective", "wire_dtype", "cadence"), string()),
    **dict.fromkeys(("hostname", "device", "backend", "collective_backend", "worker_version", "git_commit", "network_interface", "network_address", "network"), string()),
    **dict.fromkeys(("forward_ms", "backward_ms", "total_ms", "start_offset_ms", "cost_ms", "whole_ids", "cut_ids"), float64()),
    **dict.fromkeys(("batch_size", "rank", "num_ranks", "element_bytes", "dim_sum", "whole_features", "cut_features", "measured_at_unix_ms"), int64()),
    **dict.fromkeys(("imported", "weighted"), bool_()),
    "seed": uint64(),
}
BLOCK_BYTES = 16 << 20  # read and written at a time


def write_parquet(lines, path):
    """CSV of `neuroshard store export`, a file of bytes, into a new or replaced file, all or nothing. Returns the number of rows."""
    convert = csv.ConvertOptions(column_types=TYPES, null_values=[""], strings_can_be_null=True, true_values=["1"], false_values=["0"])
    parse = csv.ParseOptions(newlines_in_values=True)
    rows = 0
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".parquet.", suffix=".tmp", delete=False) as part:
        try:
            with csv.open_csv(lines, csv.ReadOptions(block_size=BLOCK_BYTES), parse, convert) as batches:
                unknown = [field.name for field in batches.schema if field.name not in TYPES]
                if unknown:
                    raise ArrowInvalid(f"columns that this version does not know: {', '.join(unknown)}")
                with parquet.ParquetWriter(part, batches.schema) as file:
                    for batch in batches:
                        file.write_batch(batch)
                        rows += batch.num_rows
            os.fchmod(part.fileno(), 0o644)
            os.replace(part.name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(part.name)
            raise
    return rows


def main():
    parser = argparse.ArgumentParser(prog="neuroshard-parquet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="a SQLite file, or postgresql://USER@HOST/DB")
    parser.add_argument("--kind", choices=("compute", "comm"), default="compute", help="records of which sweeps")
    parser.add_argument("--out", required=True, metavar="FILE.parquet")
    options = parse_arguments(parser)
    command = ["neuroshard", "store", "export", "--store", options.store, "--kind", options.kind]
    try:
        # Whole before a line of it is written: what fails in the middle is no file.
        with tempfile.TemporaryFile() as lines:
            if code := subprocess.run(command, stdout=lines).returncode:
                return code
            lines.seek(0)
            rows = write_parquet(lines, options.out)
    except (OSError, ArrowInvalid) as fault:
        raise SystemExit(f"neuroshard-parquet: {fault}") from None
    print(f"{options.out}: {rows} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
