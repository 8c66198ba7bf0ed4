//! Values of the extents that a file only names.

use std::collections::{BTreeMap, BTreeSet};

use polygrad::backend::printable;
use polygrad_onnx::graph::{Dim, TensorType};

use crate::failure::{Failure, Result};

/// Extents by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extents(BTreeMap<String, usize>);

impl Extents {
    /// The extents on the command line, each `NAME=N`, and `rest` for all other names.
    ///
    /// # Errors
    /// A name that is given twice, or that is not in any type.
    pub(crate) fn given<'a>(
        given: &[(String, usize)],
        types: impl Iterator<Item = &'a TensorType>,
        rest: Option<usize>,
    ) -> Result<Self> {
        let dims = types.filter_map(|ty| ty.shape.as_ref()).flatten();
        let mut known = BTreeSet::new();
        for dim in dims {
            if let Dim::Named(name) = dim {
                known.insert(name.as_str());
                known.extend(
                    name.split(['+', '*'])
                        .map(str::trim)
                        .filter(|atom| atom.parse::<usize>().is_err()),
                );
            }
        }
        let mut extents = BTreeMap::new();
        for (name, extent) in given {
            if !known.contains(name.as_str()) {
                let failure = Failure::new(format!("the model has no extent {name:?}"));
                return Err(match known.is_empty() {
                    true => failure.fix("leave out --dim: the model names no extents"),
                    false => {
                        let known: Vec<&str> = known.into_iter().collect();
                        failure.fix(format!("it names {}", printable(&known.join(", "))))
                    }
                });
            }
            if extents.insert(name.clone(), *extent).is_some() {
                return Err(Failure::new(format!("--dim {} is given twice", printable(name))).fix("give it once"));
            }
        }
        if let Some(rest) = rest {
            let is_name = |name: &&str| !name.contains(['+', '*']);
            for name in known.into_iter().filter(is_name) {
                extents.entry(name.to_owned()).or_insert(rest);
            }
        }
        Ok(Self(extents))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The extent, if it is known or can be computed from known ones: exports write `seq+1` or `64*batch`.
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
    use polygrad_onnx::graph::ElementType;

    use super::*;

    fn of_shape(names: &[&str]) -> TensorType {
        TensorType {
            element: ElementType::F32,
            shape: Some(names.iter().map(|name| Dim::Named((*name).into())).collect()),
        }
    }

    #[test]
    fn sums_and_products_of_names_are_numbers() {
        let ty = of_shape(&["batch", "seq"]);
        let given = [("batch".into(), 2), ("seq".into(), 5)];
        let extents = Extents::given(&given, [&ty].into_iter(), None).unwrap();
        let of = |name: &str| extents.of(&Dim::Named(name.into()));
        assert_eq!(
            [of("batch"), of("64*batch"), of("seq+1"), of("2*batch*seq + 3")],
            [2, 128, 6, 23].map(Some)
        );
        assert_eq!([of("past"), of("seq-1"), of("")], [None; 3]);
    }

    #[test]
    fn names_are_those_of_the_model_and_the_rest_has_a_number() {
        let ty = of_shape(&["batch", "seq+1", "64*heads"]);
        let given = |list: &[(&str, usize)], rest| {
            let list: Vec<_> = list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
            Extents::given(&list, [&ty].into_iter(), rest).map_err(|e| e.to_string())
        };
        let extents = given(&[("seq", 7)], Some(1)).unwrap();
        assert_eq!(extents.shape(&ty), Some(vec![1, 8, 64]));
        assert_eq!(given(&[("seq", 7)], None).unwrap().shape(&ty), None);
        assert!(given(&[("foo", 3)], None).unwrap_err().contains("batch"));
        assert!(given(&[("seq", 3), ("seq", 4)], None).unwrap_err().contains("twice"));
        let none = Extents::given(&[("n".into(), 1)], std::iter::empty(), None);
        assert!(none.unwrap_err().to_string().contains("names no extents"));
    }
}
