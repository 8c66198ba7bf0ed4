//! The attributes that ops have.

use polygrad_core::{Result, printable};

use super::{microsoft, ml};
use crate::graph::{Node, malformed};

/// Ops, and the attributes of each: `name!` is required, `name@13` was added in version 13 of the ops, `name<13` was
/// removed in it. An op that is not listed has none. This is ONNX's list, from the oldest supported versions on.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("Abs Ceil Exp Floor Log Neg Reciprocal Sqrt", "consumed_inputs<6"),
    ("AffineGrid", "align_corners"),
    ("ArgMax ArgMin", "axis keepdims select_last_index@12"),
    (
        "Attention",
        "is_causal kv_num_heads left_window_size@25 q_num_heads qk_matmul_output_mode right_window_size@25 scale \
         softcap softmax_precision",
    ),
    (
        "AveragePool",
        "auto_pad ceil_mode@10 count_include_pad@7 dilations@19 kernel_shape! pads strides",
    ),
    ("BatchNormalization", "epsilon momentum spatial<9 training_mode@14"),
    ("Bernoulli", "dtype seed"),
    ("BitCast", "to!"),
    ("BitShift", "direction!"),
    ("BlackmanWindow HammingWindow HannWindow", "output_datatype periodic"),
    ("Cast", "round_mode@24 saturate@19 to!"),
    ("CastLike", "round_mode@24 saturate@19"),
    ("CausalConvWithState", "activation"),
    ("Celu Elu LeakyRelu Swish ThresholdedRelu", "alpha"),
    ("CenterCropPad MeanVarianceNormalization", "axes"),
    ("Clip", "max<11 min<11"),
    ("Col2Im", "dilations pads strides"),
    (
        "Compress Flatten Gather GatherElements Hardmax LogSoftmax OneHot Scatter Softmax",
        "axis",
    ),
    ("Concat", "axis!"),
    ("ConcatFromSequence", "axis! new_axis"),
    (
        "Constant",
        "sparse_value@11 value value_float@12 value_floats@12 value_int@12 value_ints@12 value_string@12 \
         value_strings@12",
    ),
    ("ConstantOfShape", "value"),
    (
        "Conv ConvInteger QLinearConv",
        "auto_pad dilations group kernel_shape pads strides",
    ),
    (
        "ConvTranspose",
        "auto_pad dilations group kernel_shape output_padding output_shape pads strides",
    ),
    ("CumProd CumSum", "exclusive reverse"),
    ("DFT", "axis<20 inverse onesided"),
    ("DeformConv", "dilations group kernel_shape offset_group pads strides"),
    ("DepthToSpace", "blocksize! mode@11"),
    ("DequantizeLinear", "axis@13 block_size@21 output_dtype@23"),
    ("Dropout", "consumed_inputs<6 is_test<7 ratio<12 seed@12"),
    ("Einsum", "equation!"),
    ("EyeLike", "dtype k"),
    ("FlexAttention", "prob_mod scale score_mod softmax_precision"),
    (
        "GRU",
        "activation_alpha activation_beta activations clip direction hidden_size layout@14 linear_before_reset",
    ),
    ("GatherND", "batch_dims@12"),
    ("Gelu", "approximate"),
    ("Gemm", "alpha beta transA transB"),
    ("GlobalLpPool", "p"),
    ("GridSample", "align_corners mode padding_mode"),
    ("GroupNormalization", "epsilon num_groups! stash_type@21"),
    ("HardSigmoid", "alpha beta"),
    ("If", "else_branch! then_branch!"),
    ("InstanceNormalization", "epsilon"),
    ("IsInf", "detect_negative detect_positive"),
    ("LRN", "alpha beta bias size!"),
    (
        "LSTM",
        "activation_alpha activation_beta activations clip direction hidden_size input_forget layout@14",
    ),
    (
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization",
        "axis epsilon stash_type",
    ),
    (
        "LinearAttention",
        "chunk_size kv_num_heads! q_num_heads! scale update_rule",
    ),
    ("Loop SequenceMap", "body!"),
    ("LpNormalization", "axis p"),
    (
        "LpPool",
        "auto_pad ceil_mode@18 dilations@18 kernel_shape! p pads strides",
    ),
    (
        "MaxPool",
        "auto_pad ceil_mode@10 dilations@10 kernel_shape! pads storage_order@8 strides",
    ),
    ("MaxUnpool", "kernel_shape! pads strides"),
    ("MelWeightMatrix", "output_datatype"),
    ("Mod", "fmod"),
    ("Multinomial", "dtype sample_size seed"),
    (
        "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
        "ignore_index reduction",
    ),
    ("NonMaxSuppression", "center_point_box"),
    ("Optional", "type"),
    ("Pad", "mode pads!<11 value<11"),
    (
        "QuantizeLinear",
        "axis@13 block_size@21 output_dtype@21 precision@23 saturate@19",
    ),
    (
        "RNN",
        "activation_alpha activation_beta activations clip direction hidden_size layout@14",
    ),
    ("RandomNormal", "dtype mean scale seed shape!"),
    ("RandomNormalLike", "dtype mean scale seed"),
    ("RandomUniform", "dtype high low seed shape!"),
    ("RandomUniformLike", "dtype high low seed"),
    ("Range", "stash_type@27"),
    (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare",
        "axes<18 keepdims noop_with_empty_axes@18",
    ),
    ("ReduceSum", "axes<13 keepdims noop_with_empty_axes@13"),
    ("Reshape", "allowzero@14"),
    (
        "Resize",
        "antialias@18 axes@18 coordinate_transformation_mode@11 cubic_coeff_a@11 exclude_outside@11 \
         extrapolation_value@11 keep_aspect_ratio_policy@18 mode nearest_mode@11",
    ),
    ("ReverseSequence", "batch_axis time_axis"),
    (
        "RoiAlign",
        "coordinate_transformation_mode@16 mode output_height output_width sampling_ratio spatial_scale",
    ),
    ("RotaryEmbedding", "interleaved num_heads rotary_embedding_dim"),
    ("STFT", "onesided"),
    (
        "Scan",
        "body! directions<9 num_scan_inputs! scan_input_axes@9 scan_input_directions@9 scan_output_axes@9 \
         scan_output_directions@9",
    ),
    ("ScatterElements", "axis reduction@16"),
    ("ScatterND", "reduction@16"),
    ("Selu", "alpha gamma"),
    ("SequenceEmpty", "dtype"),
    ("Shape", "end@15 start@15"),
    ("Shrink", "bias lambd"),
    ("Slice", "axes<10 ends!<10 starts!<10"),
    ("SpaceToDepth", "blocksize! mode@28"),
    ("Split", "axis num_outputs@18 split<13"),
    ("SplitToSequence", "axis keepdims"),
    ("Squeeze", "axes<13"),
    ("SwiGLU", "alpha@28"),
    ("TensorScatter", "axis mode"),
    (
        "TfIdfVectorizer",
        "max_gram_length! max_skip_count! min_gram_length! mode! ngram_counts! ngram_indexes! pool_int64s \
         pool_strings weights",
    ),
    ("TopK", "axis k!<10 largest@11 sorted@11"),
    ("Transpose", "perm"),
    ("Trilu", "upper"),
    ("Unique", "axis sorted"),
    ("Unsqueeze", "axes!<13"),
    ("Upsample", "mode scales!<9"),
];

/// The lines of a domain.
fn of_domain(domain: &str) -> &'static [(&'static str, &'static str)] {
    match domain {
        microsoft::DOMAIN => microsoft::ATTRIBUTES,
        ml::DOMAIN => ml::ATTRIBUTES,
        _ => ATTRIBUTES,
    }
}

/// Fails if a node has an attribute that its op does not have, which would be silently ignored, or lacks a required
/// one.
pub(crate) fn check(node: &Node, version: i64) -> Result<()> {
    let op = node.op_type.as_str();
    let row = of_domain(&node.domain)
        .iter()
        .find(|(ops, _)| ops.split(' ').any(|one| one == op));
    let known = || row.into_iter().flat_map(|(_, words)| words.split(' ')).map(Known::read);
    for (name, _) in &node.attributes {
        let name_of = format!("\"{}\"", printable(name));
        match known().find(|known| known.name == name) {
            None => return Err(malformed(format!("{op} has no attribute {name_of}"))),
            Some(Known { since, .. }) if version < since => {
                return Err(malformed(format!(
                    "the attribute {name_of} of {op} came with version {since}, the model says {version}"
                )));
            }
            Some(Known { until, .. }) if version >= until => {
                return Err(malformed(format!(
                    "the attribute {name_of} of {op} went with version {until}, the model says {version}"
                )));
            }
            Some(_) => {}
        }
    }
    let missing = |known: &Known<'_>| {
        let applies = known.required && (known.since..known.until).contains(&version);
        applies && node.attribute(known.name).is_none()
    };
    match known().find(missing) {
        Some(Known { name, .. }) => Err(malformed(format!("the attribute {name} of {op} is missing"))),
        None => Ok(()),
    }
}

/// An attribute of an op, and the versions that have it.
struct Known<'a> {
    name: &'a str,
    required: bool,
    since: i64,
    until: i64,
}

impl<'a> Known<'a> {
    fn read(word: &'a str) -> Self {
        let number = |text: &str| text.parse().expect("the table has numbers there");
        let (word, until) = word
            .split_once('<')
            .map_or((word, i64::MAX), |(word, until)| (word, number(until)));
        let (word, since) = word
            .split_once('@')
            .map_or((word, 0), |(word, since)| (word, number(since)));
        let name = word.trim_end_matches('!');
        Self {
            name,
            required: name != word,
            since,
            until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::op_versions;
    use super::*;
    use crate::graph::Attribute;

    fn node(op: &str, attributes: &[&str]) -> Node {
        Node {
            op_type: op.into(),
            attributes: attributes
                .iter()
                .map(|name| ((*name).into(), Attribute::Int(1)))
                .collect(),
            ..Node::default()
        }
    }

    #[test]
    fn every_line_is_about_ops_of_the_table() {
        let ops = op_versions();
        for domain in ["", microsoft::DOMAIN, ml::DOMAIN] {
            let lines = of_domain(domain);
            let mut named: Vec<&str> = lines.iter().flat_map(|(ops, _)| ops.split(' ')).collect();
            for op in &named {
                // Smaller domains of ONNX are listed with ai.onnx.
                let is_known = |(of, known, _): &(&str, &str, i64)| known == op && (*of == domain || domain.is_empty());
                assert!(ops.iter().any(is_known), "{op}");
            }
            named.sort_unstable();
            assert!(named.windows(2).all(|two| two[0] != two[1]));
            for (_, words) in lines {
                assert!(words.split(' ').map(Known::read).all(|known| !known.name.is_empty()));
            }
        }
    }

    #[test]
    fn what_an_op_lacks_is_named() {
        let says = |op: &str, attributes: &[&str], version: i64, text: &str| {
            let error = check(&node(op, attributes), version).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        says("Relu", &["alpha"], 20, "Relu has no attribute \"alpha\"");
        says(
            "MaxPool",
            &["kernel_shape", "ceil_mod"],
            20,
            "MaxPool has no attribute \"ceil_mod\"",
        );
        says(
            "Cast",
            &["to", "saturate"],
            13,
            "\"saturate\" of Cast came with version 19, the model says 13",
        );
        says("ReduceSum", &["axes"], 13, "\"axes\" of ReduceSum went with version 13");
        says("Cast", &[], 13, "the attribute to of Cast is missing");
        for (op, attributes, version) in [
            ("Cast", &["to", "saturate"][..], 19),
            ("ReduceSum", &["axes", "keepdims"], 12),
            ("Relu", &[], 20),
            ("Upsample", &["scales"], 7),
            ("Upsample", &[], 9),
        ] {
            check(&node(op, attributes), version).unwrap();
        }
        assert!(check(&node("Upsample", &[]), 7).is_err());
    }
}
