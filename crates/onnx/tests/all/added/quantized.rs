//! Invalid nodes of quantized and fused ops.

use super::*;

#[test]
fn quantized_nodes_that_are_wrong() {
    let x = || ones(3u8, &[2, 3]);
    let two_scales = || ones(0.5f32, &[2]);
    refused(
        MS,
        vec![
            (
                "QLinearAdd",
                vec![
                    x(),
                    two_scales(),
                    zero(0),
                    x(),
                    scalar(0.5),
                    zero(0),
                    scalar(1.0),
                    zero(0),
                ],
                vec![],
                "operand 1 of shape [2]: one number is needed",
            ),
            (
                "QLinearMul",
                vec![
                    x(),
                    scalar(0.5),
                    ones(0u8, &[3]),
                    x(),
                    scalar(0.5),
                    zero(0),
                    scalar(1.0),
                    zero(0),
                ],
                vec![],
                "operand 2 of shape [3]: one number is needed",
            ),
            (
                "QLinearAdd",
                vec![
                    x(),
                    scalar(0.5),
                    signed(&[]),
                    x(),
                    scalar(0.5),
                    zero(0),
                    scalar(1.0),
                    zero(0),
                ],
                vec![],
                "operand 0 is uint8, and its zero point, operand 2, is int8",
            ),
            (
                "QLinearAdd",
                vec![
                    x(),
                    scalar(0.5),
                    zero(0),
                    ones(3u8, &[4]),
                    scalar(0.5),
                    zero(0),
                    scalar(1.0),
                    zero(0),
                ],
                vec![],
                "[2, 3]",
            ),
            (
                "QLinearSigmoid",
                vec![ones(1f32, &[2]), scalar(0.5), None, scalar(0.5), None],
                vec![],
                "operand 0 is float, not quantized",
            ),
            (
                "QLinearConcat",
                vec![scalar(0.5), zero(0), x(), scalar(0.5)],
                vec![int("axis", 0)],
                "2 operands after the scale",
            ),
            (
                "QLinearConcat",
                vec![scalar(0.5), zero(0), x(), scalar(0.5), zero(0)],
                vec![],
                "axis",
            ),
            (
                "QLinearGlobalAveragePool",
                vec![x(), scalar(0.5), zero(0), scalar(0.5), zero(0)],
                vec![],
                "is not [N, C, spatial",
            ),
            (
                "QLinearAveragePool",
                vec![x(), scalar(0.5), zero(0), scalar(0.5), zero(0)],
                vec![ints("kernel_shape", &[2])],
                "is not [N, C, spatial",
            ),
            (
                "NhwcMaxPool",
                vec![ones(1u8, &[1, 4, 4, 2])],
                vec![ints("kernel_shape", &[0, 2])],
                "makes no sense",
            ),
            (
                "QGemm",
                vec![
                    x(),
                    scalar(0.5),
                    zero(0),
                    signed(&[3, 4]),
                    ones(0.5f32, &[3]),
                    signed(&[]),
                ],
                vec![],
                "operand 4 of shape [3] for 4 columns",
            ),
            (
                "QGemm",
                vec![x(), scalar(0.5), zero(0), signed(&[3, 4]), scalar(0.5), zero(0)],
                vec![],
                "operand 5 is uint8, the zero point of int8",
            ),
            (
                "QGemm",
                vec![x(), scalar(0.5), zero(0), ones(1u8, &[3]), scalar(0.5), zero(0)],
                vec![],
                "is no matrix",
            ),
            (
                "MatMulIntegerToFloat",
                vec![
                    x(),
                    signed(&[3, 4]),
                    scalar(0.5),
                    scalar(0.5),
                    None,
                    None,
                    ones(0f32, &[3]),
                ],
                vec![],
                "a bias of shape [3] for [2, 4]",
            ),
            (
                "DynamicQuantizeMatMul",
                vec![ones(1f32, &[2, 3]), signed(&[3, 4]), ones(0.5f32, &[2])],
                vec![],
                "operand 2 of shape [2] for 4 columns",
            ),
            (
                "DynamicQuantizeMatMul",
                vec![ones(1f32, &[2, 3]), signed(&[4, 4]), scalar(0.5)],
                vec![],
                "[2, 3]",
            ),
            (
                "DynamicQuantizeLSTM",
                [
                    vec![ones(1f32, &[2, 1, 3]), ones(1u8, &[1, 3, 8]), ones(1u8, &[1, 2, 8])],
                    vec![None; 5],
                    vec![ones(0.5f32, &[3]), ones(1u8, &[1]), ones(0.5f32, &[1]), ones(1u8, &[1])],
                ]
                .concat(),
                vec![int("hidden_size", 2)],
                "operand 8 of shape [3]",
            ),
        ],
    );
}

#[test]
fn fused_nodes_that_are_wrong() {
    let x = || ones(1f32, &[1, 2, 4, 4]);
    let w = || ones(1f32, &[3, 2, 3, 3]);
    let hidden = || ones(1f32, &[2, 3, 8]);
    refused(
        MS,
        vec![
            (
                "FusedConv",
                vec![x(), w()],
                vec![text("activation", "Wish")],
                "there is no activation function \"wish\"",
            ),
            (
                "FusedConv",
                vec![x(), w(), None, ones(1f32, &[1, 3, 1, 2])],
                vec![text("activation", "Relu")],
                "[1, 3, 1, 2] is added to [1, 3, 2, 2]",
            ),
            (
                "FusedGemm",
                vec![x(), x()],
                vec![text("activation", "Relu")],
                "is no matrix",
            ),
            (
                "FusedGemm",
                vec![ones(1f32, &[2, 2]); 2],
                vec![],
                "there is no activation function \"\"",
            ),
            ("FusedMatMul", vec![ones(1f32, &[2, 3]); 2], vec![], "[2, 3]"),
            (
                "FusedMatMul",
                vec![ones(1f32, &[2, 3]); 2],
                vec![int("transC", 1)],
                "has no attribute \"transC\"",
            ),
            ("BiasGelu", vec![hidden(), ones(1f32, &[5])], vec![], "[5]"),
            (
                "SkipLayerNormalization",
                vec![hidden(), ones(1f32, &[2, 8]), ones(1f32, &[8])],
                vec![],
                "is added to",
            ),
            (
                "SkipLayerNormalization",
                vec![hidden(), hidden(), ones(1f32, &[7])],
                vec![],
                "operand 2 of shape [7]",
            ),
            (
                "EmbedLayerNormalization",
                vec![
                    ones(11i32, &[1, 2]),
                    None,
                    ones(1f32, &[10, 8]),
                    ones(1f32, &[4, 8]),
                    None,
                    ones(1f32, &[8]),
                    ones(1f32, &[8]),
                ],
                vec![],
                "11",
            ),
        ],
    );
}

#[test]
fn weights_of_bnb4_that_are_wrong() {
    let node = |given: usize, kind: i64, transposed: i64| -> Case {
        let operands = [ones(1f32, &[2, 16]), ones(0u8, &[8]), ones(1f32, &[1])];
        let numbers = [
            ("K", 16),
            ("N", 1),
            ("block_size", 16),
            ("quant_type", kind),
            ("transB", transposed),
        ];
        let says = match (given, kind, transposed) {
            (1, ..) => "operand 1",
            (2, ..) => "operand 2",
            (_, 3, _) => "a quant_type of 3: it is 0 for FP4 or 1 for NF4",
            _ => "a transB of 0",
        };
        let attributes = numbers.map(|(name, value)| int(name, value)).into();
        ("MatMulBnb4", operands[..given].to_vec(), attributes, says)
    };
    refused(MS, vec![node(1, 0, 1), node(2, 0, 1), node(3, 3, 1), node(3, 0, 0)]);
}
