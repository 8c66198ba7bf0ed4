//! Traces in Chrome's trace event format, which Perfetto reads too: complete events (`"ph": "X"`) with times in
//! microseconds.
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use std::time::Duration;

use polygrad::nn::profile::Span;
use polygrad_console::atomic::AtomicFile;
use polygrad_console::failure::Result;
use serde_json::{Value, json};

/// Events on tracks. Events on one track are nested.
pub(super) struct Trace(Vec<Value>);

impl Trace {
    /// A trace of the work called `title`, with these tracks, which are numbered from 0.
    pub(super) fn new(title: &str, tracks: &[&str]) -> Self {
        let name = |what: &str, track: usize, name: &str| json!({"name": what, "ph": "M", "pid": 1, "tid": track, "args": {"name": name}});
        let process = name("process_name", 0, &format!("polygrad {title}"));
        let tracks = tracks.iter().enumerate();
        let named = tracks.map(|(track, text)| name("thread_name", track, text));
        Self(std::iter::once(process).chain(named).collect())
    }

    /// Adds an event.
    pub(super) fn add(&mut self, name: &str, category: &str, track: usize, span: &Span, arguments: Value) {
        let microseconds = |time: Duration| time.as_nanos() as f64 * 1e-3;
        self.0.push(json!({
            "name": name,
            "cat": category,
            "ph": "X",
            "ts": microseconds(span.begin),
            "dur": microseconds(span.duration()),
            "pid": 1,
            "tid": track,
            "args": arguments,
        }));
    }

    /// Writes all events.
    ///
    /// # Errors
    /// Errors of the file.
    pub(super) fn write(self, mut file: AtomicFile) -> Result<()> {
        let trace = json!({"traceEvents": self.0, "displayTimeUnit": "ns"});
        file.append(format!("{trace}\n").as_bytes())?;
        file.commit()
    }
}
