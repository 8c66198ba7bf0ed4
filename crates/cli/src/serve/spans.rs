//! Spans of requests for a collector, with the feature `otel`.

use tracing_subscriber::{Layer, Registry};

use crate::failure::Result;

/// What makes the spans, and what sends them until it is dropped.
#[cfg(feature = "otel")]
pub(super) fn open(endpoint: &str) -> Result<(Box<dyn Layer<Registry> + Send + Sync>, polygrad_serve::Exporter)> {
    let (layer, exporter) = polygrad_serve::otlp("polygrad", endpoint)?;
    Ok((layer.boxed(), exporter))
}

#[cfg(not(feature = "otel"))]
pub(super) fn open(_endpoint: &str) -> Result<(Box<dyn Layer<Registry> + Send + Sync>, ())> {
    use crate::failure::Failure;
    Err(Failure::new("`--otlp` is not in this build").fix("build with `--features otel`"))
}
