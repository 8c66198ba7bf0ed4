//! `--input`: the sources of a model's inputs.

use std::path::Path;
use std::str::FromStr;

use polygrad::backend::{DType, Distribution, HostTensor, RandomKey, Shape, printable, random_host};
use polygrad_onnx::graph::{Dim, TensorType};

use super::arrays;
use super::extents::Extents;
use crate::failure::{Failure, Result};

/// An input on the command line, `NAME=FILE` or `NAME=random`. Both parts may contain a `=`; which one separates them
/// is known once the input names are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given(String);

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once('=') {
            Some((name, _)) if !name.is_empty() && !text.ends_with('=') => Ok(Self(text.to_owned())),
            _ => Err("give NAME=FILE.npy, NAME=FILE.npz or NAME=random".into()),
        }
    }
}

impl Given {
    /// The name and the source of the input, separated at the first `=` after the name of an input, else at the first
    /// `=`.
    pub(super) fn parts(&self, is_input: impl Fn(&str) -> bool) -> (&str, Source<'_>) {
        let text = self.0.as_str();
        let mut places = text.match_indices('=').map(|(at, _)| at);
        let first = places.clone().next().unwrap_or(text.len());
        let at = places.find(|&at| is_input(&text[..at])).unwrap_or(first);
        let source = match text.get(at + 1..).unwrap_or("") {
            "random" => Source::Random,
            file => Source::File(Path::new(file)),
        };
        (&text[..at], source)
    }
}

/// The source of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source<'a> {
    File(&'a Path),
    Random,
}

/// An input of the model, and what is known of it.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) ty: &'a TensorType,
    pub(super) extents: &'a Extents,
    /// The most bytes that it may take.
    pub(super) most: usize,
}

impl Wanted<'_> {
    /// The values for an input of this type. Random floats are normal; random integers and bools are 0 and 1, which are
    /// in the range of indices and masks.
    ///
    /// # Errors
    /// A file that cannot be read or holds another dtype; an extent that is not known.
    pub(super) fn values(&self, from: Source<'_>, key: u64) -> Result<HostTensor> {
        let dtype = self.ty.element.dtype()?;
        match from {
            Source::File(path) => {
                let host = arrays::load(path, self.name, self.most)?;
                // NumPy has no bf16, so f32 is accepted.
                if host.dtype() == dtype || dtype != DType::BF16 || host.dtype() != DType::F32 {
                    return Ok(host);
                }
                Ok(host.try_cast(dtype)?)
            }
            Source::Random => {
                let shape = Shape::new(&self.extents()?)?;
                let distribution = match dtype.is_float() {
                    true => Distribution::Normal { mean: 0.0, std: 1.0 },
                    false => Distribution::Integers { low: 0, high: 2 },
                };
                let key = RandomKey {
                    seed: 0,
                    offset: key << 40,
                };
                let drawn = match dtype.is_float() {
                    true => DType::F32,
                    false => DType::I64,
                };
                self.must_fit(shape, dtype)?;
                let drawn = random_host(shape, distribution, drawn, key).and_then(|host| host.try_cast(dtype));
                drawn.map_err(|e| Failure::from(e).fix("give a smaller --dim, or free some memory"))
            }
        }
    }

    fn must_fit(&self, shape: Shape, dtype: DType) -> Result<()> {
        let bytes = shape.numel().saturating_mul(dtype.size());
        if bytes <= self.most {
            return Ok(());
        }
        Err(Failure::new(format!(
            "the input {:?} would take {bytes} bytes, more than the limit of {}",
            self.name, self.most
        ))
        .fix("give a smaller --dim, or raise the limit with --max-memory SIZE"))
    }

    fn extents(&self) -> Result<Vec<usize>> {
        let Self { ty, extents, .. } = *self;
        let unknown = |dim: &Dim| {
            Failure::new(format!(
                "the input {:?} is {ty}: nothing says how large {dim} is",
                self.name
            ))
        };
        let dims = ty.shape.as_ref().ok_or_else(|| {
            Failure::new(format!("the input {:?} is {ty}, of no known shape", self.name)).fix("give it as a file")
        })?;
        let extent = |dim: &Dim| {
            extents.of(dim).ok_or_else(|| match dim {
                Dim::Named(name) => unknown(dim).fix(format!(
                    "say it with --dim {}=N, or give the input as a file",
                    printable(name)
                )),
                _ => unknown(dim).fix("give the input as a file"),
            })
        };
        dims.iter().map(extent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_parted_behind_its_name() {
        let parts = |text: &str, names: &[&str]| {
            let given: Given = text.parse().unwrap();
            let (name, source) = given.parts(|name| names.contains(&name));
            let source = match source {
                Source::Random => "random".to_owned(),
                Source::File(path) => path.display().to_string(),
            };
            (name.to_owned(), source)
        };
        let of = |name: &str, source: &str| (name.to_owned(), source.to_owned());
        assert_eq!(parts("x=random", &["x"]), of("x", "random"));
        assert_eq!(parts("x=runs/lr=0.1/x.npy", &["x"]), of("x", "runs/lr=0.1/x.npy"));
        assert_eq!(parts("a=b=c=d.npy", &["a=b", "x"]), of("a=b", "c=d.npy"));
        assert_eq!(parts("z=runs/lr=0.1/x.npy", &["x"]), of("z", "runs/lr=0.1/x.npy"));
        for text in ["x", "=x", "x=", ""] {
            assert!(text.parse::<Given>().is_err(), "{text}");
        }
    }
}
