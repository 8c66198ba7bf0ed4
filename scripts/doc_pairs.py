"""Makes pairs of matching texts from this repository: the first sentence of a public function's documentation, and its
signature.

    python3 scripts/doc_pairs.py pairs.jsonl held-out.jsonl

Every fifth file is held out.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ITEM = re.compile(r"((?:^ *///.*\n)+)(?:^ *#\[.*\n)*^ *pub (?:const )?fn ([^{;]*)", re.MULTILINE)


def pairs(text):
    for comment, signature in ITEM.findall(text):
        words = " ".join(line.strip().removeprefix("///").strip() for line in comment.splitlines())
        sentence = re.split(r"(?<=[.:]) ", words)[0]
        signature = " ".join(signature.split())
        if len(sentence.split()) >= 4:
            yield {"anchor": sentence, "positive": f"fn {signature}"}


def main():
    files = sorted(path for top in ("crates", "backends") for path in ROOT.joinpath(top).rglob("*.rs") if "tests" not in path.parts)
    parts, seen = ([], []), set()
    for at, path in enumerate(files):
        for pair in pairs(path.read_text()):
            # A sentence that occurs twice has two answers.
            if pair["anchor"] not in seen:
                seen.add(pair["anchor"])
                parts[at % 5 == 0].append(pair)
    for name, part in zip(sys.argv[1:], parts):
        Path(name).write_text("".join(json.dumps(pair) + "\n" for pair in part))
        print(f"{name}: {len(part)} pairs")


main()
