//! Spans of requests for a collector, with the feature `otel`.

use std::any::Any;

use super::Tracing;
use crate::failure::Result;

/// The layer that creates spans, and the exporter, which sends them until it is dropped.
type Spans = (Tracing, Box<dyn Any>);

#[cfg(feature = "otel")]
pub(super) fn open(endpoint: &str) -> Result<Spans> {
    let (layer, exporter) = polygrad_serve::otlp("polygrad", endpoint)?;
    Ok((Box::new(layer), Box::new(exporter)))
}

#[cfg(not(feature = "otel"))]
pub(super) fn open(_endpoint: &str) -> Result<Spans> {
    use crate::failure::Failure;
    Err(Failure::new("`--otlp` is not in this build").fix("build with `--features otel`"))
}
