//! Numbers for the extents that a file only names.

use std::collections::BTreeMap;

use polygrad_onnx::graph::{Dim, TensorType};

/// Extents by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extents(BTreeMap<String, usize>);

impl Extents {
    /// Those of the command line, `NAME=N` each.
    pub(crate) fn new(given: &[(String, usize)]) -> Self {
        Self(given.iter().cloned().collect())
    }

    /// The extent, where it is known or computed from known ones: exports say `seq+1` or `64*batch`.
    pub(crate) fn of(&self, dim: &Dim) -> Option<usize> {
        match dim {
            Dim::Fixed(extent) => Some(*extent),
            Dim::Unknown => None,
            Dim::Named(name) => self.sum(name),
        }
    }

    /// The shape, if all of it is known.
    pub(crate) fn shape(&self, ty: &TensorType) -> Option<Vec<usize>> {
        ty.shape.as_ref()?.iter().map(|dim| self.of(dim)).collect()
    }

    fn sum(&self, text: &str) -> Option<usize> {
        if let Some(&extent) = self.0.get(text) {
            return Some(extent);
        }
        let product = |text: &str| {
            text.split('*')
                .try_fold(1usize, |product, factor| product.checked_mul(self.atom(factor)?))
        };
        text.split('+')
            .try_fold(0usize, |sum, term| sum.checked_add(product(term)?))
    }

    fn atom(&self, text: &str) -> Option<usize> {
        let text = text.trim();
        self.0.get(text).copied().or_else(|| text.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_of_names_are_numbers() {
        let extents = Extents::new(&[("batch".into(), 2), ("seq".into(), 5)]);
        let of = |name: &str| extents.of(&Dim::Named(name.into()));
        assert_eq!(
            [of("batch"), of("64*batch"), of("seq+1"), of("2*batch*seq + 3")],
            [2, 128, 6, 23].map(Some)
        );
        assert_eq!([of("past"), of("seq-1"), of("")], [None; 3]);
    }
}
