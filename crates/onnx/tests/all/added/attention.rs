//! Invalid nodes of attention and of weights in blocks.

use super::*;

#[test]
fn attention_that_is_wrong() {
    let x = || ones(1f32, &[1, 3, 8]);
    let (w, b) = (|| ones(1f32, &[8, 24]), || ones(1f32, &[24]));
    let heads = |count| int("num_heads", count);
    let grouped = |last: i32, total: i32, past: usize| {
        vec![
            x(),
            x(),
            x(),
            ones(1f32, &[1, 2, past, 4]),
            ones(1f32, &[1, 2, past, 4]),
            ones(last, &[1]),
            ones(total, &[]),
        ]
    };
    let both = || vec![heads(2), int("kv_num_heads", 2)];
    refused(
        MS,
        vec![
            ("Attention", vec![x(), w(), b()], vec![heads(0)], "num_heads is 0"),
            (
                "Attention",
                vec![x(), w(), b()],
                vec![heads(3)],
                "cannot be split into 3 heads",
            ),
            ("Attention", vec![x(), w(), b()], vec![heads(-2)], "-2 is no extent"),
            (
                "Attention",
                vec![x(), w(), b(), ones(1i32, &[5])],
                vec![heads(2)],
                "a mask of shape [5]",
            ),
            (
                "Attention",
                vec![x(), w(), b()],
                vec![heads(2), int("do_rotary", 1)],
                "do_rotary is not computed here",
            ),
            (
                "Attention",
                vec![x(), w(), b()],
                vec![heads(2), ints("qkv_hidden_sizes", &[8, 8, 9])],
                "24 features are not parts of [8, 8, 9]",
            ),
            (
                "Attention",
                vec![x(), w(), b()],
                vec![heads(2), ints("qkv_hidden_sizes", &[i64::MAX; 3])],
                "24 features are not parts of",
            ),
            (
                "GroupQueryAttention",
                vec![x(), None, None, None, None, ones(2i32, &[1]), ones(3i32, &[])],
                vec![heads(i64::MAX), int("kv_num_heads", i64::MAX)],
                "cannot be split into",
            ),
            (
                "Attention",
                vec![x(), w(), b(), None, ones(1f32, &[2, 2])],
                vec![heads(2)],
                "a past of shape [2, 2]",
            ),
            ("MultiHeadAttention", vec![x()], vec![heads(2)], "operand 1 is missing"),
            (
                "MultiHeadAttention",
                vec![x(), x(), ones(1f32, &[1, 4, 8])],
                vec![heads(2)],
                "queries [1, 2, 3, 4], keys [1, 2, 3, 4]",
            ),
            (
                "MultiHeadAttention",
                vec![x(), x(), x(), ones(1f32, &[9])],
                vec![heads(2)],
                "a bias of shape [9] for 24",
            ),
            (
                "GroupQueryAttention",
                grouped(1, 9, 1),
                both(),
                "seqlens_k 1 for 3 new steps of 9",
            ),
            ("GroupQueryAttention", grouped(5, 2, 1), both(), "2 keys in all"),
            (
                "GroupQueryAttention",
                grouped(9, 12, 1),
                both(),
                "a past of shape [1, 2, 1, 4] for 7 steps",
            ),
            (
                "GroupQueryAttention",
                grouped(2, 3, 0),
                vec![heads(2), int("kv_num_heads", 3)],
                "2 heads of queries for 3",
            ),
            (
                "RotaryEmbedding",
                vec![x(), ones(9i64, &[1, 3]), ones(1f32, &[4, 2]), ones(1f32, &[4, 2])],
                vec![],
                "9",
            ),
            (
                "RotaryEmbedding",
                vec![x(), ones(0i64, &[2]), ones(1f32, &[4, 2]), ones(1f32, &[4, 2])],
                vec![],
                "positions of shape [2]",
            ),
            (
                "QAttention",
                vec![
                    ones(1u8, &[1, 3, 8]),
                    signed(&[8, 24]),
                    b(),
                    scalar(0.5),
                    ones(0.5f32, &[7]),
                ],
                vec![heads(2)],
                "operand 4 of shape [7] for 24 columns",
            ),
        ],
    );
}

#[test]
fn blocks_that_are_wrong() {
    let sizes = |k: i64, n: i64, bits: i64, block: i64| {
        vec![int("K", k), int("N", n), int("bits", bits), int("block_size", block)]
    };
    let x = || ones(1f32, &[2, 32]);
    let (w, scales) = (|| ones(1u8, &[4, 2, 8]), || ones(1f32, &[4, 2]));
    refused(
        MS,
        vec![
            (
                "MatMulNBits",
                vec![x(), w(), scales()],
                sizes(32, 4, 3, 16),
                "numbers of 3 bits",
            ),
            (
                "MatMulNBits",
                vec![x(), w(), scales()],
                sizes(32, 4, 4, 24),
                "a block_size of 24",
            ),
            (
                "MatMulNBits",
                vec![x(), w(), scales()],
                sizes(32, 4, 8, 32),
                "a weight of shape [4, 2, 8]",
            ),
            (
                "MatMulNBits",
                vec![x(), w(), scales()],
                sizes(31, 4, 4, 16),
                "[2, 32] for a weight of 31",
            ),
            (
                "MatMulNBits",
                vec![x(), w(), scales()],
                sizes(32, -4, 4, 16),
                "-4 is no extent",
            ),
            (
                "MatMulNBits",
                vec![x(), w(), ones(1f32, &[3])],
                sizes(32, 4, 4, 16),
                "operand 2 of shape [3]",
            ),
            (
                "MatMulNBits",
                vec![x(), w(), scales(), ones(1u8, &[3])],
                sizes(32, 4, 4, 16),
                "operand 3 of shape [3]",
            ),
            (
                "MatMulNBits",
                vec![x(), w(), scales(), None, ones(0i32, &[32])],
                sizes(32, 4, 4, 16),
                "g_idx and weight_prepacked are not computed here",
            ),
            (
                "GatherBlockQuantized",
                vec![ones(1u8, &[4, 20]), ones(0i64, &[1]), ones(1f32, &[4, 2])],
                vec![int("block_size", 16)],
                "blocks of 16 do not fit",
            ),
            (
                "GatherBlockQuantized",
                vec![ones(1u8, &[4, 16]), ones(0i64, &[1]), ones(1f32, &[4, 2])],
                vec![int("block_size", 16), int("quantize_axis", 0)],
                "rows are gathered along axis 0, and in blocks along 0",
            ),
            (
                "GatherBlockQuantized",
                vec![ones(1u8, &[4, 16]), ones(0i64, &[1]), ones(1f32, &[5, 2])],
                vec![int("block_size", 16)],
                "operand 2 of shape [5, 2]",
            ),
        ],
    );
}
