//! Every op at least once, with its domain and its arguments.

mod activation;
mod elementwise;
mod fused;
mod index;
mod movement;
mod quantized;
mod reduce;
mod update;
mod window;

use polygrad_core::{Axes, Shape};

use super::sample::Sample;

/// All calls.
pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    elementwise::add(&mut samples);
    activation::add(&mut samples);
    reduce::add(&mut samples);
    movement::add(&mut samples);
    index::add(&mut samples);
    window::add(&mut samples);
    fused::add(&mut samples);
    update::add(&mut samples);
    // At the end, since the random numbers of a sample depend on its index.
    activation::add_far(&mut samples);
    quantized::add(&mut samples);
    samples
}

/// These axes, which must be distinct and below 8.
fn axes(list: &[usize]) -> Axes {
    Axes::new(list.iter().copied()).unwrap_or(Axes::NONE)
}

/// This shape, of at most 8 extents.
fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap_or(Shape::SCALAR)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use polygrad_core::{Activation, ArgOp, BinaryOp, CompareOp, DType, Op, ReduceOp, UnaryOp};

    use super::*;
    use crate::generated::cases;

    fn first_word(text: &str) -> String {
        text.chars().take_while(|c| c.is_ascii_alphanumeric()).collect()
    }

    #[test]
    fn every_op_has_a_sample() {
        let used: BTreeSet<String> = samples().iter().map(|sample| format!("{:?}", sample.op)).collect();
        let mut missing: Vec<String> = Vec::new();
        let words: BTreeSet<String> = used.iter().map(|op| first_word(op)).collect();
        let variants = Op::VARIANTS.iter().map(|variant| (*variant).to_owned());
        missing.extend(variants.filter(|variant| !words.contains(variant)));
        let mut member = |text: String| {
            if !used.iter().any(|op| op.starts_with(&text)) {
                missing.push(text);
            }
        };
        UnaryOp::ALL.iter().for_each(|op| member(format!("Unary({op:?}")));
        BinaryOp::ALL.iter().for_each(|op| {
            member(format!("Binary({op:?}"));
            member(format!("BinaryScalar {{ op: {op:?}"));
        });
        CompareOp::ALL.iter().for_each(|op| {
            member(format!("Compare({op:?}"));
            member(format!("CompareScalar {{ op: {op:?}"));
        });
        ReduceOp::ALL
            .iter()
            .for_each(|op| member(format!("Reduce {{ op: {op:?}")));
        ArgOp::ALL
            .iter()
            .for_each(|op| member(format!("ArgReduce {{ op: {op:?}")));
        DType::ALL.iter().for_each(|dtype| member(format!("Cast({dtype:?}")));
        Activation::ALL.iter().for_each(|function| {
            let kind = first_word(&format!("{function:?}"));
            member(format!("Activation({kind}"));
            member(format!("ActivationBackward({kind}"));
        });
        assert!(missing.is_empty(), "no sample for {missing:?}");
    }

    #[test]
    fn names_are_unique() {
        let mut names = BTreeSet::new();
        for case in cases(&DType::ALL) {
            assert!(names.insert(case.full_name()), "{} occurs twice", case.full_name());
        }
        assert!(names.len() > 3000, "{}", names.len());
    }
}
