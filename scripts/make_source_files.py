"""Writes the small files of crates/data/tests/sources: Parquet files by pyarrow, with the values that were written, and
tar files by Python.

    pip install pyarrow==26.*
    python3 scripts/make_source_files.py
"""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
import io
import json
import math
import random
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent.parent / "crates/data/tests/sources"
ROWS = 120


def rows():
    """Numbers and texts with missing values."""
    chance = random.Random(0)
    towns = ["Bern", "Thun", "Zürich", ""]
    for i in range(ROWS):
        yield {
            "id": i,
            "area": None if i % 7 == 3 else round(chance.uniform(20, 200), 2),
            "rooms": None if i % 11 == 5 else chance.randrange(1, 9),
            "town": chance.choice(towns),
            "note": None if i % 3 else f"note {i}",
            "sold": chance.random() < 0.5,
            "embedding": [round(chance.gauss(0, 1), 3) for _ in range(i % 4)],
        }


def plain(columns):
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def record(name, table):
    """The table's content as JSON, with a number for each date and time, as in Parquet."""
    (HERE / f"{name}.json").write_text(json.dumps(table, ensure_ascii=False, separators=(",", ":")) + "\n")


def houses():
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("area", pa.float64()),
            ("rooms", pa.int32()),
            pa.field("town", pa.string(), nullable=False),
            ("note", pa.string()),
            pa.field("sold", pa.bool_(), nullable=False),
            ("embedding", pa.list_(pa.float32())),
        ]
    )
    values = list(rows())
    table = pa.Table.from_pylist(values, schema=schema)
    record("houses", table.to_pylist())
    for name, options in {
        "houses-snappy": {"compression": "snappy"},
        "houses-plain": {"compression": "none", "use_dictionary": False, "row_group_size": 64},
        "houses-gzip": {"compression": "gzip", "data_page_version": "2.0", "write_page_checksum": True},
        "houses-zstd": {"compression": "zstd", "data_page_version": "2.0", "data_page_size": 512},
        "houses-delta": {
            "use_dictionary": False,
            "column_encoding": {
                "id": "DELTA_BINARY_PACKED",
                "rooms": "DELTA_BINARY_PACKED",
                "town": "DELTA_LENGTH_BYTE_ARRAY",
                "note": "DELTA_LENGTH_BYTE_ARRAY",
            },
        },
        "houses-lz4": {"compression": "lz4"},
    }.items():
        if name == "houses-lz4":
            table = table.slice(0, 5)
        pq.write_table(table, HERE / f"{name}.parquet", **{"row_group_size": 50, "write_statistics": False, **options})


def kinds():
    """A column for each kind of value, and nested columns."""
    columns = {
        "i8": pa.array([-128, 127, 0], pa.int8()),
        "u8": pa.array([0, 255, 1], pa.uint8()),
        "i16": pa.array([-32768, 32767, 0], pa.int16()),
        "u16": pa.array([0, 65535, 1], pa.uint16()),
        "u32": pa.array([0, 2**32 - 1, 1], pa.uint32()),
        "i64": pa.array([-(2**63), 2**63 - 1, 0], pa.int64()),
        "u64": pa.array([0, 2**64 - 1, 1], pa.uint64()),
        "f16": pa.array([0.5, -65504.0, 1.0], pa.float16()),
        "f32": pa.array([0.1, -1e30, 1.0], pa.float32()),
        "nan": pa.array([math.inf, 1.0, -math.inf], pa.float64()),
        "decimal": pa.array([Decimal("12.34"), Decimal("-0.05"), Decimal("999.99")], pa.decimal128(5, 2)),
        "date": pa.array([date(2026, 1, 2), date(1969, 12, 31), date(1970, 1, 1)], pa.date32()),
        "millis": pa.array([datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 2), datetime(2026, 1, 1)], pa.timestamp("ms")),
        "nanos": pa.array([1, -1, 10**18], pa.timestamp("ns")),
        "bytes": pa.array([b"\x00\xff", b"", b"abc"], pa.binary()),
        "fixed": pa.array([b"ab", b"cd", b"\x80\x81"], pa.binary(2)),
        "image": pa.array(
            [{"bytes": b"\x01", "path": "a.png"}, {"bytes": None, "path": "b.png"}, None],
            pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        ),
        "messages": pa.array(
            [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}], [], None],
            pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
        ),
        "nested": pa.array([[[1, 2], []], [None, [3, None]], []], pa.list_(pa.list_(pa.int32()))),
        "map": pa.array([[("a", 1), ("b", 2)], [], [("c", None)]], pa.map_(pa.string(), pa.int64())),
    }
    table = pa.table(columns)
    pq.write_table(table, HERE / "kinds.parquet", write_statistics=False, store_schema=False)
    dates = {"date": pa.int32(), "millis": pa.int64(), "nanos": pa.int64()}
    known = {name: (array.cast(dates[name]) if name in dates else array).to_pylist() for name, array in columns.items()}
    known["f32"] = [float(x) for x in known["f32"]]
    known["nan"] = [str(x) for x in known["nan"]]
    known["decimal"] = [float(x) for x in known["decimal"]]
    for name in ["bytes", "fixed"]:
        known[name] = [list(x) for x in known[name]]
    for image in known["image"]:
        if image and image["bytes"] is not None:
            image["bytes"] = list(image["bytes"])
    known["map"] = [dict(entries) for entries in known["map"]]
    record("kinds", plain(known))


def shards():
    for name, form in [("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT), ("ustar", tarfile.USTAR_FORMAT)]:
        with tarfile.open(HERE / f"{name}.tar.gz", "w:gz", format=form, compresslevel=9) as tar:
            folder = tarfile.TarInfo("train")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            for i in range(5):
                # Too long for a plain header, but not for ustar's two fields.
                stem = f"{'train/' * (25 if i == 3 and form != tarfile.USTAR_FORMAT else 1)}{'x' * (85 if i == 4 else 1)}{i}"
                for part, data in [("txt", f"text {i}, é"), ("CLS", str(i % 3)), ("meta.json", json.dumps({"i": i}))]:
                    member = tarfile.TarInfo(f"{stem}.{part}")
                    member.size = len(data.encode())
                    member.mtime = 0.5 if form == tarfile.PAX_FORMAT else 0
                    tar.addfile(member, io.BytesIO(data.encode()))
            readme = tarfile.TarInfo("README")
            tar.addfile(readme)


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    houses()
    kinds()
    shards()


main()
