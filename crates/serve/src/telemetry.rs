//! Spans of requests for an OpenTelemetry collector.

use std::fmt;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request};
use opentelemetry::Key;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::{EnvResourceDetector, ResourceDetector};
use opentelemetry_sdk::trace::SdkTracerProvider;
use polygrad_core::{Error, Result};
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// The target of the spans of requests.
const TARGET: &str = "polygrad_serve::request";

/// Sends spans. On drop, it sends those that are still waiting.
pub struct Exporter(SdkTracerProvider);

/// A layer for a subscriber of `tracing` that sends a span for each request to the collector at `endpoint`, by OTLP
/// over gRPC, such as `http://127.0.0.1:4317`. A request's `traceparent` makes its span a part of the client's trace.
/// Must be called in a Tokio runtime.
///
/// OpenTelemetry's environment variables configure the rest: `OTEL_EXPORTER_OTLP_HEADERS`, `_TIMEOUT` and
/// `_COMPRESSION`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_…`, `OTEL_RESOURCE_ATTRIBUTES`. A name in the last one or in
/// `OTEL_SERVICE_NAME` overrides `service`.
///
/// # Errors
/// An endpoint that is no address, or requires TLS.
pub fn otlp<S>(service: &str, endpoint: &str) -> Result<(impl Layer<S> + Send + Sync + use<S>, Exporter)>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let refused = |why: &dyn fmt::Display| {
        Error::invalid(format!("spans cannot be sent to {endpoint:?}: {why}")).with_hint(
            "name the collector's address, such as http://127.0.0.1:4317; to one that asks for TLS, a collector on this machine sends \
             them on",
        )
    };
    if !endpoint.starts_with("http://") {
        return Err(refused(&"it does not begin with http://"));
    }
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    let exporter = exporter.map_err(|error| refused(&error))?;
    let mut resource = Resource::builder();
    if !is_named() {
        resource = resource.with_service_name(service.to_owned());
    }
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("polygrad-serve"));
    // The exporter's own connection creates spans, too, which would never end.
    let requests = Targets::new().with_target(TARGET, Level::INFO);
    Ok((layer.with_filter(requests), Exporter(provider)))
}

/// Whether the environment names the service.
fn is_named() -> bool {
    let attributes = EnvResourceDetector::new().detect();
    let is_set = std::env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty());
    is_set || attributes.get(&Key::new("service.name")).is_some()
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

/// The span of a request, as part of the trace that its headers name.
pub(crate) fn span(request: &Request<Body>, id: &HeaderValue) -> Span {
    let path = request.uri().path();
    let span = tracing::info_span!(
        target: TARGET,
        "request",
        otel.name = %format_args!("{} {path}", request.method()),
        otel.kind = "server",
        http.request.method = %request.method(),
        url.path = path,
        request.id = id.to_str().ok(),
    );
    if !span.is_disabled() {
        let parent = TraceContextPropagator::new().extract(&Headers(request.headers()));
        // Fails if the subscriber has no layer for spans.
        let _ = span.set_parent(parent);
    }
    span
}
