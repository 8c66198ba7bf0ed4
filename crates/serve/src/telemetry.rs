//! Spans of requests for an OpenTelemetry collector.

use std::fmt;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use polygrad_core::{Error, Result};
use tracing::Span;
use tracing::Subscriber;
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::registry::LookupSpan;

/// Sends spans until it is dropped, and then those that wait.
pub struct Exporter(SdkTracerProvider);

/// A layer for a subscriber of `tracing` that sends a span for each request to the collector at `endpoint`, by OTLP over gRPC, such as
/// `http://127.0.0.1:4317`. A request's `traceparent` makes its span a part of its sender's trace. To be called in a runtime of Tokio.
///
/// # Errors
/// An endpoint that is no address.
pub fn otlp<S>(service: &str, endpoint: &str) -> Result<(OpenTelemetryLayer<S, SdkTracer>, Exporter)>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    let exporter = exporter.map_err(|error| {
        Error::invalid(format!("spans cannot be sent to {endpoint:?}: {error}"))
            .with_hint("name the collector's address, such as http://127.0.0.1:4317")
    })?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service.to_owned()).build())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("polygrad-serve"));
    Ok((layer, Exporter(provider)))
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!("some spans were not sent: {error}");
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|key| key.as_str()).collect()
    }
}

/// The span of a request, a part of the trace that it names.
pub(crate) fn span(request: &Request<Body>, id: &HeaderValue) -> Span {
    let path = request.uri().path();
    let span = tracing::info_span!(
        target: "polygrad_serve::request",
        "request",
        otel.name = %format_args!("{} {path}", request.method()),
        otel.kind = "server",
        http.request.method = %request.method(),
        url.path = path,
        request.id = id.to_str().ok(),
    );
    if !span.is_disabled() {
        let parent = TraceContextPropagator::new().extract(&Headers(request.headers()));
        // Fails where the subscriber has no layer for spans.
        let _ = span.set_parent(parent);
    }
    span
}
