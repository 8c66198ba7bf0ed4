//! Every gradient rule has a case that uses it.

use std::collections::BTreeSet;

use polygrad_core::{Activation, BinaryOp, Op, ReduceOp, UnaryOp};
use polygrad_tensor::{DType, Result};

use super::case::{Tensor, mixed};
use super::{elementwise, fused, movement, reduce, window};

/// Ops without a rule: their results are bool or positions, or they are gradients, updates, forms for inference, or
/// recorded as other ops.
const WITHOUT: &[&str] = &[
    "Compare",
    "CompareScalar",
    "ArgReduce",
    "SquareSum",
    "LinearWeightGrad",
    "ActivationBackward",
    "SoftmaxBackward",
    "LogSoftmaxBackward",
    "CrossEntropyBackward",
    "LayerNormBackward",
    "RmsNormBackward",
    "BatchNormBackward",
    "BatchNormRunning",
    "AttentionBackward",
    "EmbeddingBackward",
    "LstmCell",
    "LstmStepsBackward",
    "GruCell",
    "Rnn",
    "Lstm",
    "Gru",
    "MatmulU8",
    "ConvU8",
    "MatmulRequantizeU8",
    "MatmulRescaleU8",
    "ConvRequantizeU8",
    "QuantizeU8",
    "DynamicQuantizeU8",
    "DequantizeU8",
    "LookupU8",
    "BinaryRequantizeU8",
    "Prepack",
    "MaxPoolBackward",
    "AvgPoolBackward",
    "AccumulateGrad",
    "SliceScatter",
    "SgdStep",
    "AdamStep",
];

/// The ops with a rule, and for families each member.
fn rows() -> BTreeSet<String> {
    let names = Op::VARIANTS.iter().filter(|name| !WITHOUT.contains(name));
    let mut rows: BTreeSet<String> = names.map(|name| (*name).to_owned()).collect();
    let unary = UnaryOp::ALL.iter().filter(|op| !op.is_predicate());
    rows.extend(unary.map(|op| format!("Unary({op:?})")));
    let binary = BinaryOp::ALL
        .iter()
        .filter(|op| !matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor));
    for op in binary {
        rows.insert(format!("Binary({op:?})"));
        rows.extend([false, true].map(|reverse| format!("BinaryScalar({op:?}, {reverse})")));
    }
    let reduce = ReduceOp::ALL
        .iter()
        .filter(|op| !matches!(op, ReduceOp::Any | ReduceOp::All));
    rows.extend(reduce.map(|op| format!("Reduce({op:?})")));
    let activations = Activation::ALL.iter().map(|function| format!("{function:?}"));
    rows.extend(activations.map(|text| format!("Activation({})", text.split(' ').next().unwrap())));
    rows
}

/// The rows that a recorded op stands for, from its debug form.
fn used(op: &str) -> Vec<String> {
    let words: Vec<&str> = op
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let row = words[0].to_owned();
    let member = match words[0] {
        "Unary" | "Binary" | "Activation" => Some(format!("{row}({})", words[1])),
        "Reduce" => Some(format!("{row}({})", words[2])),
        "BinaryScalar" => Some(format!("{row}({}, {})", words[2], words[words.len() - 1])),
        _ => None,
    };
    [row].into_iter().chain(member).collect()
}

fn narrowed_and_widened(x: &Tensor) -> Result<Tensor> {
    (x.to_dtype(DType::F32)? * 2.0)?.to_dtype(DType::F64)
}

#[test]
fn every_rule_has_a_case() {
    let lists = [
        elementwise::cases(),
        reduce::cases(),
        movement::cases(),
        window::cases(),
        fused::cases(),
    ];
    let mut ops: BTreeSet<String> = lists.iter().flat_map(|cases| cases.ops()).collect();
    let x = mixed([3], 1).requires_grad().unwrap();
    let cast = narrowed_and_widened(&x).unwrap();
    ops.extend(cast.recorded_ops().iter().map(|op| format!("{op:?}")));
    let used: BTreeSet<String> = ops.iter().flat_map(|op| used(op)).collect();
    let missing: Vec<_> = rows().into_iter().filter(|row| !used.contains(row)).collect();
    assert!(missing.is_empty(), "no case uses the rules of {missing:?}");
}

/// Checked by hand, since differences of values that were rounded to f32 are meaningless.
#[test]
fn casts_bring_the_gradient_back_in_the_input_dtype() -> Result<()> {
    let x = mixed([3], 1).requires_grad()?;
    let gradients = narrowed_and_widened(&x)?.sum_all()?.backward()?;
    assert_eq!(gradients.require(&x)?.to_vec::<f64>()?, [2.0; 3]);
    Ok(())
}
