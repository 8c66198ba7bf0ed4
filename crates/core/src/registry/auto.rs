//! The choice that `auto` makes.

use std::sync::Arc;

use super::BackendEntry;
use super::entry::guarded;
use crate::{AnyDevice, DType, DeviceSpec, Error, Result};

/// A backend that `auto` considered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The device string that it would open, or has opened.
    pub spec: String,
    /// Why it was rejected; `None` if it can be chosen.
    pub passed_over: Option<String>,
}

/// Backends that `auto` may choose, by falling priority.
pub(super) fn candidates(entries: &[Arc<BackendEntry>]) -> Vec<Arc<BackendEntry>> {
    let mut out: Vec<_> = entries
        .iter()
        .filter(|entry| entry.priority.is_some())
        .cloned()
        .collect();
    out.sort_by_key(|entry| std::cmp::Reverse(entry.priority));
    out
}

/// The requirements in a device string such as `auto` or `auto:dtype=f64`.
pub(super) struct Wanted {
    dtype: Option<DType>,
}

impl Wanted {
    pub(super) fn parse(spec: &DeviceSpec) -> Result<Self> {
        if spec.backend() != "auto" {
            return Err(spec
                .malformed("it is not auto that chooses here".to_owned())
                .with_hint("write auto, or auto:dtype=f64"));
        }
        spec.expect(0, &["dtype"])?;
        let dtype = match spec.option("dtype") {
            None => None,
            Some(name) => Some(
                DType::ALL
                    .into_iter()
                    .find(|dtype| dtype.name() == name)
                    .ok_or_else(|| {
                        let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
                        spec.malformed(format!("there is no dtype {name:?}"))
                            .with_hint(format!("it is one of {}", names.join(", ")))
                    })?,
            ),
        };
        Ok(Self { dtype })
    }

    /// Opens the device that a backend offers, or says why it is not suitable.
    pub(super) fn open(&self, entry: &BackendEntry) -> Result<(String, AnyDevice), String> {
        let spec = guarded(|| (entry.choose)()).and_then(|choice| choice)?;
        let parsed = spec.parse().map_err(|error: Error| error.to_string())?;
        let device = entry.open(&parsed).map_err(|error| error.to_string())?;
        if let Some(dtype) = self.dtype
            && !device
                .backend()
                .capabilities(&device)
                .is_ok_and(|has| has.dtypes.contains(&dtype))
        {
            return Err(format!("{spec} has no {dtype}"));
        }
        Ok((spec, device))
    }
}
