//! The server's statistics for Prometheus.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::server::Shared;
use crate::{BOUNDS_US, Snapshot, Total};

/// The page that Prometheus scrapes.
pub(crate) fn page(shared: &Arc<Shared>) -> Response {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Source(Arc::clone(shared))));
    let mut text = String::new();
    match prometheus_text::encode(&mut text, &registry) {
        Ok(()) => ([(CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!("the metrics could not be written: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Exports the statistics of the repository and the connections, which are kept anyway.
#[derive(Debug)]
struct Source(Arc<Shared>);

/// The name, version and statistics of a model.
type Found = (String, u64, Snapshot);

/// A metric of a model: its name, its help text, and how to read it.
type Field<T> = (&'static str, &'static str, fn(&Snapshot) -> T);

const COUNTS: [Field<u64>; 7] = [
    ("requests", "Requests that were answered", |of| of.success.count),
    ("requests_failed", "Requests that failed", |of| of.fail.count),
    (
        "requests_refused",
        "Requests that were turned away since too many waited",
        |of| of.refused,
    ),
    ("requests_late", "Requests that were too late and not computed", |of| {
        of.late
    }),
    (
        "requests_cancelled",
        "Requests whose sender had gone, and which were not computed",
        |of| of.cancelled,
    ),
    ("rows", "Rows that were computed", |of| of.rows),
    ("executions", "Runs of the model", |of| of.executions),
];

const TIMES: [Field<Total>; 4] = [
    ("queue", "Time that requests waited for the model", |of| of.queue),
    (
        "compute_input",
        "Time of joining inputs, as each request felt it",
        |of| of.compute_input,
    ),
    (
        "compute_infer",
        "Time of running the model, as each request felt it",
        |of| of.compute_infer,
    ),
    (
        "compute_output",
        "Time of taking outputs apart, as each request felt it",
        |of| of.compute_output,
    ),
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Collector for Source {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        encoder
            .encode_descriptor(
                "polygrad_build_info",
                "The version of the server",
                None,
                MetricType::Gauge,
            )?
            .encode_family(&build)?
            .encode_gauge(&1_u64)?;
        self.encode_traffic(&mut encoder)?;
        // This can only fail if a name is given.
        let found = self.0.repository.statistics(None, None).unwrap_or_default();
        encode_models(&mut encoder, &found)
    }
}

impl Source {
    fn encode_traffic(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let traffic = &self.0.traffic;
        let (accepted, closed) = (traffic.accepted.load(Relaxed), traffic.closed.load(Relaxed));
        let (received, sent) = (traffic.received.load(Relaxed), traffic.sent.load(Relaxed));
        let counters = [
            ("connections_accepted", "Connections that were accepted", None, accepted),
            ("received", "Bodies of requests", Some(Unit::Bytes), received),
            ("sent", "Bodies of answers", Some(Unit::Bytes), sent),
        ];
        for (name, help, unit, value) in counters {
            plain(
                encoder,
                &format!("polygrad_{name}"),
                help,
                unit,
                &ConstCounter::new(value),
            )?;
        }
        let open = ConstGauge::new(accepted.saturating_sub(closed));
        plain(
            encoder,
            "polygrad_connections",
            "Connections that are open",
            None,
            &open,
        )?;
        let ready = ConstGauge::new(u64::from(self.0.is_ready()));
        plain(encoder, "polygrad_ready", "Whether all models answer", None, &ready)?;
        match resident_bytes() {
            None => Ok(()),
            Some(bytes) => plain(
                encoder,
                "process_resident_memory",
                "Memory of the process that is in use",
                Some(Unit::Bytes),
                &ConstGauge::new(bytes),
            ),
        }
    }
}

fn plain(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    metric: &impl EncodeMetric,
) -> Result<(), Error> {
    metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)
}

fn encode_models(encoder: &mut DescriptorEncoder<'_>, found: &[Found]) -> Result<(), Error> {
    let labels = |(name, version, _): &Found| [("model", name.clone()), ("version", version.to_string())];
    for (name, help, field) in COUNTS {
        let name = format!("polygrad_{name}");
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for model in found {
            let labels = labels(model);
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, f64>(&field(&model.2), None)?;
        }
    }
    for (name, help, field) in TIMES {
        let name = format!("polygrad_{name}");
        let mut metric = encoder.encode_descriptor(&name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for model in found {
            let labels = labels(model);
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, f64>(&seconds(field(&model.2).ns), None)?;
        }
    }
    let help = "Requests that wait now";
    let mut metric = encoder.encode_descriptor("polygrad_requests_waiting", help, None, MetricType::Gauge)?;
    for model in found {
        metric.encode_family(&labels(model))?.encode_gauge(&model.2.waiting)?;
    }
    let (name, help) = ("polygrad_request_duration", "From a request's arrival to its answer");
    let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for model in found {
        let counts = model.2.within;
        let bounds = BOUNDS_US
            .iter()
            .map(|&bound| seconds(bound * 1000))
            .chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let (sum, count) = (seconds(model.2.success.ns), counts.iter().sum());
        let labels = labels(model);
        let mut metric = metric.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

/// `None` on systems without Linux's `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
