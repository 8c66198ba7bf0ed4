#!/usr/bin/env bash
# PyTorch: a TransformerEncoder in evaluation mode gives something else under torch.no_grad() where tokens are padding.
#
# Guess, written down first: eval() turns off dropout, and no_grad() keeps no graph. Neither changes a result beyond
# rounding, whatever a key padding mask says: a padded token is no key, and still a query, so that it has a result.
#
# Seen on 2026-11-30 with torch 2.15.0 (CPU, Python 3.11): with gradients, and in training without dropout, padded
# tokens have results as others do. Under no_grad they are exactly 0, while all others are equal to 1e-5. So the mean
# over all tokens of a sequence, if it is taken without the mask, is another in validation than in training, and exports
# of either mode differ, too. With enable_nested_tensor=False both are the same.
#
# Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoder.html (enable_nested_tensor: "if
# True, input will automatically convert to nested tensor (and convert back on output). This will improve the overall
# performance"), which says nothing of results.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install torch==2.15.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from torch import nn


def results(nested):
    """The encoder's results of a padded batch: with gradients, without, and in training."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
    x = torch.randn(2, 4, 8)
    trained = encoder(x, src_key_padding_mask=padding)
    encoder.eval()
    kept = encoder(x, src_key_padding_mask=padding)
    with torch.no_grad():
        return trained.detach(), kept.detach(), encoder(x, src_key_padding_mask=padding)


padding = torch.tensor([[False, False, False, True], [False, False, True, True]])
print(torch.__version__)
for nested in (True, False):
    trained, kept, without = results(nested)
    tokens = (~padding).unsqueeze(-1)
    print(f"nested {nested}: padded tokens with gradients {kept[padding][0, :3]}, without {without[padding][0, :3]}")
    assert torch.equal(trained, kept) and kept[padding].abs().min(-1).values.max() > 0
    assert ((kept - without) * tokens).abs().max() < 1e-5
    if nested:
        assert (without[padding] == 0).all() and (kept - without).abs().max() > 0.5
    else:
        assert (kept - without).abs().max() < 1e-5
PY
