"""Cut the stratified Fashion-MNIST subset in data/fashion-mnist out of the full data set.

    python3 scripts/fashion_mnist_subset.py [SOURCE] [TARGET]

SOURCE is a folder with the four original files (default: where Debian's package
`dataset-fashion-mnist` puts them), TARGET is where the subset goes (default:
data/fashion-mnist). The first 2,000 training and the first 500 test images of
each class are kept, in the order of the original files, so that every run
selects the same images. The files stay IDX files under their original names.

Needs Python 3.8 or newer and nothing else. The compressed bytes are the same for the
same zlib; another zlib may compress the same images to other bytes.
"""

import gzip
import hashlib
import pathlib
import struct
import sys

CLASSES = 10
PER_CLASS = {"train": 2000, "t10k": 500}


def read_idx(path, rank):
    """The extents and the bytes of an IDX file of unsigned bytes of this rank."""
    raw = gzip.decompress(path.read_bytes())
    if raw[:4] != bytes([0, 0, 8, rank]):
        sys.exit(f"{path}: not an IDX file of unsigned bytes with {rank} dimension(s)")
    head = 4 + 4 * rank
    extents = struct.unpack(f">{rank}I", raw[4:head])
    body = raw[head:]
    count = 1
    for extent in extents:
        count *= extent
    if len(body) != count:
        sys.exit(f"{path}: the header promises {count} bytes, the file holds {len(body)}")
    return extents, body


def write_idx(path, extents, body):
    """Write an IDX file, compressed without a name or a time so that equal input gives equal bytes."""
    head = bytes([0, 0, 8, len(extents)]) + struct.pack(f">{len(extents)}I", *extents)
    with open(path, "wb") as raw:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as packed:
            packed.write(head + body)
    data = path.read_bytes()
    return f"{hashlib.sha256(data).hexdigest()}  {path.name}  {len(data)} bytes"


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/datasets/fashion-mnist")
    here = pathlib.Path(__file__).resolve().parent.parent
    target = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else here / "data" / "fashion-mnist"
    target.mkdir(parents=True, exist_ok=True)

    for part, quota in PER_CLASS.items():
        images, labels = f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"
        (count, height, width), pixels = read_idx(source / images, 3)
        (label_count,), classes = read_idx(source / labels, 1)
        if label_count != count:
            sys.exit(f"{source}: {count} images but {label_count} labels in '{part}'")

        taken = [0] * CLASSES
        kept = []
        for index, label in enumerate(classes):
            if label >= CLASSES:
                sys.exit(f"{source / labels}: label {label} at {index}, expected 0 to {CLASSES - 1}")
            if taken[label] < quota:
                taken[label] += 1
                kept.append(index)
        if taken != [quota] * CLASSES:
            sys.exit(f"{source / labels}: too few images, got {taken} per class, want {quota}")

        size = height * width
        subset = b"".join(pixels[i * size : (i + 1) * size] for i in kept)
        print(write_idx(target / images, (len(kept), height, width), subset))
        print(write_idx(target / labels, (len(kept),), bytes(classes[i] for i in kept)))


if __name__ == "__main__":
    main()
