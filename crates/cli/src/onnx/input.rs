//! `--input`: where a model's inputs come from.

use std::path::PathBuf;
use std::str::FromStr;

use polygrad::backend::{DType, Distribution, HostTensor, RandomKey, Shape, random_host};
use polygrad_onnx::graph::{Dim, TensorType};

use super::arrays;
use super::extents::Extents;
use crate::failure::{Failure, Result};

/// An input of the command line: its name and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) name: String,
    from: From,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum From {
    File(PathBuf),
    Random,
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, from) = text
            .rsplit_once('=')
            .filter(|(name, from)| !name.is_empty() && !from.is_empty())
            .ok_or("give NAME=FILE.npy, NAME=FILE.npz or NAME=random")?;
        let from = match from {
            "random" => From::Random,
            file => From::File(file.into()),
        };
        Ok(Self {
            name: name.to_owned(),
            from,
        })
    }
}

impl Given {
    /// The values for an input of this type. Random floats are normal; random integers and bools are 0 and 1, which are in the range of
    /// indices and masks.
    ///
    /// # Errors
    /// A file that cannot be read or holds another dtype; an extent that is not known.
    pub(super) fn values(&self, ty: &TensorType, extents: &Extents, key: u64) -> Result<HostTensor> {
        let dtype = ty.element.dtype()?;
        match &self.from {
            From::File(path) => {
                let host = arrays::load(path, &self.name)?;
                // NumPy has no bf16.
                if host.dtype() == dtype || dtype != DType::BF16 || host.dtype() != DType::F32 {
                    return Ok(host);
                }
                Ok(host.cast(dtype))
            }
            From::Random => {
                let shape = Shape::new(&self.extents(ty, extents)?)?;
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
                Ok(random_host(shape, distribution, drawn, key)?.cast(dtype))
            }
        }
    }

    fn extents(&self, ty: &TensorType, extents: &Extents) -> Result<Vec<usize>> {
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
                Dim::Named(name) => {
                    unknown(dim).fix(format!("say it with --dim {name}=N, or give the input as a file"))
                }
                _ => unknown(dim).fix("give the input as a file"),
            })
        };
        dims.iter().map(extent).collect()
    }
}
