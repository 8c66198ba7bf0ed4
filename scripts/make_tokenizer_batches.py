"""Records how Python's `tokenizers` encodes texts and pairs: truncation, padding, token types and special tokens.

    pip install tokenizers==0.23.3
    python3 scripts/make_tokenizer_batches.py

Writes crates/text/tests/data/batches.json: three small tokenizers, one of which has sections for truncation and padding
in its file, and cases.
"""

import itertools
import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

OUT = Path(__file__).resolve().parent.parent / "crates/text/tests/data/batches.json"
WORDS = "the quick brown fox jump ##s ##ed over a lazy dog and cat sat on mat what who ? . , is it".split()
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "a cat",
    "",
    "what is it? it is a cat, and a dog, and a fox, and it jumped over the mat.",
]
PAIRS = [
    ("who jumped?", "the quick brown fox jumped over the lazy dog and sat on a mat."),
    ("what is it, what is it, what is it, what is it?", "a cat"),
    ("a dog", ""),
    ("the quick brown fox", "the lazy dog and a cat"),
]


def bert():
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return tokenizer


def roberta():
    """Every byte is a token; the texts of a pair are separated by two tokens and have no types."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>"])
    return tokenizer


def plain():
    """Without a post-processor."""
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(["<unk>", *WORDS])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def rows(tokenizer, texts, special, overflowing):
    out = []
    for sample, encoding in enumerate(tokenizer.encode_batch(texts, add_special_tokens=special)):
        for row in [encoding, *(encoding.overflowing if overflowing else [])]:
            digits = lambda values: "".join(map(str, values))
            columns = map(digits, (row.attention_mask, row.type_ids, row.special_tokens_mask))
            out.append([sample, row.ids, *columns])
    return out


def main():
    makers = {"bert": bert, "roberta": roberta, "plain": plain}
    cut = [
        None,
        {"max_length": 12},
        {"max_length": 9, "strategy": "longest_first", "direction": "left"},
        {"max_length": 12, "strategy": "only_first", "stride": 2},
        {"max_length": 12, "strategy": "only_second", "stride": 3},
        {"max_length": 10, "stride": 1},
    ]
    pad = [
        {"pad_id": 1},
        {"pad_id": 0, "direction": "left", "pad_to_multiple_of": 8},
        {"pad_id": 5, "pad_type_id": 1, "length": 16},
    ]
    cases, errors = [], 0
    for (name, maker), texts, truncation, padding in itertools.product(makers.items(), [TEXTS, PAIRS], cut, pad):
        special, overflowing = len(cases) % 3 != 2, len(cases) % 2 == 0
        tokenizer = maker()
        case = {"tokenizer": name, "texts": texts, "truncation": truncation, "padding": padding}
        case |= {"special": special, "overflowing": overflowing}
        if truncation:
            tokenizer.enable_truncation(**truncation)
        tokenizer.enable_padding(**padding)
        try:
            case["rows"] = rows(tokenizer, texts, special, overflowing)
            if len({len(row[1]) for row in case["rows"]}) > 1:
                continue  # Some rows exceed the fixed length, so they form no tensor.
        except BaseException as error:  # Panics in pyo3 are not Exceptions.
            case["error"], errors = str(error), errors + 1
        cases.append(case)
    # A file that contains its own settings for batches.
    tokenizer = bert()
    tokenizer.enable_truncation(11, stride=2, strategy="longest_first")
    tokenizer.enable_padding(pad_id=0, length=11, direction="left")
    makers["said"] = lambda: tokenizer
    for texts in [TEXTS, PAIRS]:
        case = {"tokenizer": "said", "texts": texts, "special": True, "overflowing": False}
        cases.append(case | {"rows": rows(tokenizer, texts, True, False)})
    assert errors, "some cases must fail"
    data = {"tokenizers": {name: json.loads(maker().to_str()) for name, maker in makers.items()}, "cases": cases}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{len(cases)} cases, {errors} errors, {OUT.stat().st_size} bytes")


main()
