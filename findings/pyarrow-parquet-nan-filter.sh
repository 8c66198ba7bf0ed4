#!/usr/bin/env bash
# PyArrow: a filter on a Parquet file loses NaN, and which ones depends on how rows are grouped in the file.
#
# Guess, written down first: statistics of a row group let a reader leave out groups in which no row can pass. So
# read_table(filters=f) gives what read_table().filter(f) gives. Minima and maxima say nothing of NaN, and so a group is
# never left out by them where NaN would pass.
#
# Seen on 2026-11-30 with pyarrow 26.0.1 and polars 2.1.0 (CPU, Python 3.11): of a column with five NaN in three groups
# of rows, is_nan finds four: the fifth lies in a group in which everything else is 1. x != 1 and not (x == 1) lose it,
# too, and not (x <= 1) loses a second; in one group for all rows, the first three lose none, and the last loses all.
# Polars finds five in either file. So a check for NaN before a training can miss them.
#
# Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift, ColumnOrder ("If the min
# is a NaN, it should be ignored … When looking for NaN values, min and max should be ignored");
# https://arrow.apache.org/docs/python/generated/pyarrow.parquet.read_table.html ("filters: Rows which do not match the
# filter predicate will be removed from scanned data").
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install pyarrow==26.0.1 polars==2.1.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

nan = float("nan")
table = pa.table({"x": [1.0, 1.0, nan, -1.0, -2.0, nan, nan, nan, nan]})
pq.write_table(table, "three.parquet", row_group_size=3)
pq.write_table(table, "one.parquet")
x = pc.field("x")
print(pa.__version__)


def count(found):
    return sum(value != value for value in found["x"].to_pylist())


for name, condition, expected in (
    ("is_nan(x)", pc.is_nan(x), (5, 4, 5)),
    ("x != 1", x != 1.0, (5, 4, 5)),
    ("not (x == 1)", ~(x == 1.0), (5, 4, 5)),
    ("not (x <= 1)", ~(x <= 1.0), (5, 3, 0)),
):
    read = count(pq.read_table("three.parquet").filter(condition))
    pushed, together = (count(pq.read_table(file, filters=condition)) for file in ("three.parquet", "one.parquet"))
    print(f"{name}: NaN of the table {read}, of the file in three groups {pushed}, in one {together}")
    assert (read, pushed, together) == expected
for file in ("three.parquet", "one.parquet"):
    scanned = pl.scan_parquet(file)
    by_polars = [scanned.filter(found).collect().height for found in (pl.col("x").is_nan(), ~(pl.col("x") <= 1.0))]
    print("by polars:", by_polars)
    assert by_polars == [5, 5]
PY
