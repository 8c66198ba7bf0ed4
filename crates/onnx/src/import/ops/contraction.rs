//! The size of the intermediate results of an Einsum.

use std::collections::{HashMap, HashSet};

use polygrad_core::{Result, Shape};

use crate::import::call::Call;

/// Fails if an operand broadcast to the extents of the others, a product of operands, or the result would exceed the
/// limits. An invalid equation passes: the op reports the error.
pub(super) fn check(c: &Call<'_>, equation: &str, shapes: &[Shape]) -> Result<()> {
    match largest(equation, shapes) {
        Some(elements) => c.limits.check_bytes(elements.saturating_mul(size_of::<f64>())),
        None => Ok(()),
    }
}

/// An axis: a letter, or an axis of `...`, counted from the last.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Axis {
    Letter(char),
    Further(usize),
}

fn largest(equation: &str, shapes: &[Shape]) -> Option<usize> {
    let compact: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match compact.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (compact.as_str(), None),
    };
    let mut extents: HashMap<Axis, usize> = HashMap::new();
    let mut terms = Vec::with_capacity(shapes.len());
    for (text, shape) in inputs.split(',').zip(shapes) {
        let named = text.replacen("...", "", 1).chars().count();
        let term = axes(text, shape.rank().checked_sub(named)?);
        for (&axis, &extent) in term.iter().zip(shape.iter()) {
            let known = extents.entry(axis).or_insert(extent);
            *known = extent.max(*known);
        }
        terms.push(term);
    }
    let all: Vec<Axis> = terms.concat();
    let further = |axis: &Axis| matches!(axis, Axis::Further(_));
    let kept: HashSet<Axis> = match output {
        Some(output) => {
            let letters = output.chars().filter(char::is_ascii_alphabetic).map(Axis::Letter);
            let spread = all
                .iter()
                .copied()
                .filter(|axis| output.contains("...") && further(axis));
            letters.chain(spread).collect()
        }
        None => {
            let once = |axis: &Axis| all.iter().filter(|other| *other == axis).count() == 1;
            all.iter().copied().filter(|axis| further(axis) || once(axis)).collect()
        }
    };
    let size = |axes: &HashSet<Axis>| {
        let extents = axes.iter().map(|axis| extents.get(axis).copied().unwrap_or(1));
        extents.fold(1, usize::saturating_mul)
    };
    let mut most = size(&kept);
    let mut product: HashSet<Axis> = HashSet::new();
    for (i, term) in terms.iter().enumerate() {
        let operand: HashSet<Axis> = term.iter().copied().collect();
        most = most.max(size(&operand));
        product.extend(&operand);
        // Axes that neither the result nor a later operand has are summed in the product itself.
        product.retain(|axis| kept.contains(axis) || terms[i + 1..].iter().flatten().any(|later| later == axis));
        most = most.max(size(&product));
    }
    Some(most)
}

fn axes(text: &str, further: usize) -> Vec<Axis> {
    let (before, after) = text.split_once("...").unwrap_or((text, ""));
    let inner = if text.contains("...") { further } else { 0 };
    let letters = |text: &str| text.chars().map(Axis::Letter).collect::<Vec<_>>();
    let inner = (0..inner).rev().map(Axis::Further);
    letters(before).into_iter().chain(inner).chain(letters(after)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_on_the_way_is_found() {
        let of = |equation: &str, shapes: &[&[usize]]| {
            let shapes: Vec<Shape> = shapes.iter().map(|dims| Shape::new(dims).unwrap()).collect();
            largest(equation, &shapes)
        };
        assert_eq!(of("ij,jk->ik", &[&[2, 100], &[100, 3]]), Some(300));
        assert_eq!(of("ab,cd", &[&[10, 10], &[10, 10]]), Some(10_000));
        assert_eq!(of("...a,...b->...ab", &[&[5, 10], &[1, 20]]), Some(1000));
        assert_eq!(of("...a,...b", &[&[5, 10], &[20]]), Some(1000));
        // Two operands of eight axes each.
        let (left, right): (&[usize], &[usize]) = (&[2; 8], &[2; 8]);
        assert_eq!(of("abcdefgh,ijklmnop->abcdefghijklmnop", &[left, right]), Some(1 << 16));
        assert_eq!(of("abcdefgh,ijklmnop->", &[left, right]), Some(256));
        // The first product is larger than the result.
        assert_eq!(of("i,j,ij->", &[&[100], &[200], &[100, 200]]), Some(20_000));
        // An extent of 1 is broadcast.
        assert_eq!(of("ij,j->", &[&[7, 1], &[50]]), Some(350));
        assert_eq!(of("i i,i", &[&[1 << 20, 1 << 20], &[2]]), Some(1 << 20));
        assert_eq!(of("abc->a", &[&[2]]), None);
    }
}
