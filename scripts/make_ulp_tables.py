"""Compacts NumPy's tables of exactly rounded values of elementary functions.

    python3 scripts/make_ulp_tables.py

Writes conformance/data/ulp/<function>.txt: lines of input and output as hexadecimal bits, 8 digits each for f32 and 16
for f64, in the order of the tables. The tables are NumPy's (BSD 3-Clause, whose notice is copied beside them); their
own bounds are left out, since the conformance suite has one table of bounds.

Made with NumPy 2.4.6.
"""

import importlib.metadata
import pathlib

import numpy

OUT = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "ulp"
FUNCTIONS = ["exp", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh"]
DIGITS = {"np.float32": 8, "np.float64": 16}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tables = pathlib.Path(numpy.__file__).parent / "_core" / "tests" / "data"
    for function in FUNCTIONS:
        lines = []
        for line in (tables / f"umath-validation-set-{function}.csv").read_text().splitlines():
            fields = line.split(",")
            if fields[0] in DIGITS:
                digits = DIGITS[fields[0]]
                lines.append(" ".join(f"{int(bits, 16):0{digits}x}" for bits in fields[1:3]))
        (OUT / f"{function}.txt").write_text("\n".join(lines) + "\n")
        print(function, len(lines))
    files = importlib.metadata.files("numpy")
    notice = next(f for f in files if f.name == "LICENSE.txt" and "dist-info" in str(f) and f.parent.name == "licenses")
    text = notice.read_text().split("----")[0].rstrip()
    (OUT / "LICENSE").write_text(f"The tables in this folder come from NumPy {numpy.__version__}:\n\n{text}\n")


if __name__ == "__main__":
    main()
