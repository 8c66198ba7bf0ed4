//! A TensorBoard event file.
//!
//! Each record is TFRecord framing — length, masked CRC-32C of the length, data, masked CRC-32C of the data — around a
//! protobuf `Event` (`tensorflow/core/util/event.proto`, `…/framework/summary.proto`,
//! `tensorboard/plugins/hparams/*.proto`). It is written by hand, since the few messages needed take less code than
//! using a protobuf library.

use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use polygrad_core::{Error, ErrorKind, Result, open_file};
use polygrad_tensor::{Backend, Tensor};

use super::log::Log;
use super::shown;

/// The version that TensorBoard expects in the first event of a file.
const VERSION: &[u8] = b"brain.Event:2";

/// The number of buckets of a histogram.
const BUCKETS: usize = 30;

/// Writes an event file for TensorBoard. The names are those of PyTorch's `SummaryWriter`.
///
/// ```no_run
/// use polygrad_train::SummaryWriter;
/// # use polygrad_core::Result;
/// # fn run(weights: &polygrad_tensor::Tensor) -> Result<()> {
/// let mut writer = SummaryWriter::create("runs/a/events.out.tfevents.1")?;
/// writer.add_hparams(&[("lr", 0.1.into()), ("model", "cnn".into())], &["loss/test"])?;
/// writer.add_scalar("loss/test", 0.25, 100)?;
/// writer.add_histogram("weights", weights, 100)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SummaryWriter(Log);

impl SummaryWriter {
    /// Starts a file at `path`, replacing any that is there. TensorBoard reads any file whose name contains `tfevents`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let mut event = Message::default();
        event.double(1, now()).bytes(3, VERSION);
        Log::create(path.as_ref(), &frame(&event.0)).map(Self)
    }

    /// Continues the file at `path` from its state after `step` steps: later records, and one that a crash cut short,
    /// are dropped. If there is no file, a new one is started.
    ///
    /// # Errors
    /// A file that cannot be read or written, or that is damaged before its last record.
    pub fn resume(path: impl AsRef<Path>, step: u64) -> Result<Self> {
        let path = path.as_ref();
        if !path.exists() {
            return Self::create(path);
        }
        let mut bytes = Vec::new();
        open_file(path)?
            .0
            .read_to_end(&mut bytes)
            .map_err(|e| Error::io("read", path, e))?;
        let mut kept = Vec::new();
        for event in records(&bytes) {
            let event = event.map_err(|at| {
                Error::new(ErrorKind::Format, format!("{} is damaged at byte {at}", shown(path)))
                    .with_hint("move the file away: the run goes on with a new one")
            })?;
            if step_of(event).is_some_and(|s| s <= step) {
                kept.extend(frame(event));
            }
        }
        if kept.is_empty() {
            return Self::create(path);
        }
        Log::create(path, &kept).map(Self)
    }

    /// A number at a step, under a tag such as `loss/train`.
    ///
    /// # Errors
    /// Any error of the file system, and a file that was removed or replaced since it was opened; the same holds
    /// for the methods below.
    pub fn add_scalar(&mut self, tag: &str, value: f64, step: u64) -> Result<()> {
        self.add_scalars(&[(tag, value)], step)
    }

    /// Several numbers at a step, each under a tag of its own.
    ///
    /// # Errors
    /// As [`SummaryWriter::add_scalar`].
    pub fn add_scalars(&mut self, values: &[(&str, f64)], step: u64) -> Result<()> {
        let mut summary = Message::default();
        for &(tag, value) in values {
            summary.message(1, Message::default().bytes(1, tag.as_bytes()).float(2, value as f32));
        }
        self.add(step, &summary)
    }

    /// A histogram of a tensor's values, in 30 buckets of equal width. Values that are not finite are left out.
    ///
    /// # Errors
    /// As [`SummaryWriter::add_scalar`], and when the device fails.
    pub fn add_histogram<B: Backend>(&mut self, tag: &str, values: &Tensor<B>, step: u64) -> Result<()> {
        let mut values = values.to_f64_vec()?;
        values.retain(|x| x.is_finite());
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let width = ((high - low) / BUCKETS as f64).max(f64::MIN_POSITIVE);
        let mut counts = vec![0.0; BUCKETS];
        for x in &values {
            counts[(((x - low) / width) as usize).min(BUCKETS - 1)] += 1.0;
        }
        let limits: Vec<f64> = (1..=BUCKETS).map(|i| low + width * i as f64).collect();
        let sum = |f: fn(f64) -> f64| values.iter().map(|&x| f(x)).sum::<f64>();
        let mut histogram = Message::default();
        if !values.is_empty() {
            histogram
                .double(1, low)
                .double(2, high)
                .double(3, values.len() as f64)
                .double(4, sum(|x| x))
                .double(5, sum(|x| x * x))
                .doubles(6, &limits)
                .doubles(7, &counts);
        }
        let mut value = Message::default();
        value.bytes(1, tag.as_bytes()).message(5, &histogram);
        self.add(step, Message::default().message(1, &value))
    }

    /// An image, as the bytes of a PNG file.
    ///
    /// # Errors
    /// As [`SummaryWriter::add_scalar`], and for bytes that are not a PNG file.
    pub fn add_image(&mut self, tag: &str, png: &[u8], step: u64) -> Result<()> {
        let be = |at: usize| Some(u64::from(u32::from_be_bytes(*png.get(at..)?.first_chunk()?)));
        let (Some(width), Some(height), Some(kind), true) =
            (be(16), be(20), png.get(25), png.starts_with(b"\x89PNG\r\n\x1a\n"))
        else {
            return Err(Error::new(ErrorKind::Format, "these are not the bytes of a PNG file").with_op("add_image"));
        };
        // Grey, colours, palette, grey with opacity, colours with opacity: the channels of the decoded image.
        let channels = match kind {
            0 => 1,
            4 => 2,
            6 => 4,
            _ => 3,
        };
        let mut image = Message::default();
        image
            .varint(1, height)
            .varint(2, width)
            .varint(3, channels)
            .bytes(4, png);
        let mut value = Message::default();
        value.bytes(1, tag.as_bytes()).message(4, &image);
        self.add(step, Message::default().message(1, &value))
    }

    /// The hyper-parameters of the run, and the tags of the scalars by which runs are compared, for TensorBoard's tab
    /// of that name.
    ///
    /// # Errors
    /// As [`SummaryWriter::add_scalar`].
    pub fn add_hparams(&mut self, hparams: &[(&str, HParam)], metrics: &[&str]) -> Result<()> {
        let (mut experiment, mut start) = (Message::default(), Message::default());
        for (name, value) in hparams {
            let mut info = Message::default();
            let (kind, mut proto) = (value.kind(), Message::default());
            match value {
                HParam::Text(text) => proto.bytes(3, text.as_bytes()),
                HParam::Bool(value) => proto.varint(4, u64::from(*value)),
                HParam::Number(value) => proto.double(2, *value),
            };
            experiment.message(4, info.bytes(1, name.as_bytes()).varint(4, kind));
            start.message(1, Message::default().bytes(1, name.as_bytes()).message(2, &proto));
        }
        for tag in metrics {
            let mut name = Message::default();
            experiment.message(5, Message::default().message(1, name.bytes(2, tag.as_bytes())));
        }
        start.double(5, now());
        let mut summary = Message::default();
        for (tag, field, content) in [
            ("_hparams_/experiment", 2, &experiment),
            ("_hparams_/session_start_info", 3, &start),
        ] {
            let mut plugin = Message::default();
            plugin
                .bytes(1, b"hparams")
                .message(2, Message::default().message(field, content));
            let mut value = Message::default();
            // The last field is an empty tensor, which a value without a number has to have.
            value
                .bytes(1, tag.as_bytes())
                .message(9, Message::default().message(1, &plugin))
                .message(8, Message::default().varint(1, 1));
            summary.message(1, &value);
        }
        self.add(0, &summary)
    }

    fn add(&mut self, step: u64, summary: &Message) -> Result<()> {
        let mut event = Message::default();
        event.double(1, now()).varint(2, step).message(5, summary);
        self.0.append(&frame(&event.0))
    }
}

/// The value of a hyper-parameter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HParam {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A boolean.
    Bool(bool),
}

impl HParam {
    /// Its number in the protocol.
    fn kind(&self) -> u64 {
        match self {
            Self::Text(_) => 1,
            Self::Bool(_) => 2,
            Self::Number(_) => 3,
        }
    }
}

impl From<f64> for HParam {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for HParam {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<bool> for HParam {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// A protobuf message under construction.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, field: u8, value: u64) -> &mut Self {
        self.0.push(field << 3);
        varint(&mut self.0, value);
        self
    }

    fn double(&mut self, field: u8, value: f64) -> &mut Self {
        self.0.push(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(&mut self, field: u8, value: f32) -> &mut Self {
        self.0.push(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u8, bytes: &[u8]) -> &mut Self {
        self.0.push(field << 3 | 2);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(&mut self, field: u8, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }

    fn doubles(&mut self, field: u8, values: &[f64]) -> &mut Self {
        let packed: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.bytes(field, &packed)
    }
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}

fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(data.len() + 16);
    out.extend(length);
    out.extend(masked_crc32c(&length).to_le_bytes());
    out.extend(data);
    out.extend(masked_crc32c(data).to_le_bytes());
    out
}

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4) of the bytes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crc(u32);

impl Crc {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let mut crc = !self.0;
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
            }
        }
        self.0 = !crc;
    }

    pub(super) fn value(self) -> u32 {
        self.0
    }
}

/// The checksum with TFRecord's masking.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = Crc::default();
    crc.update(bytes);
    crc.value().rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The data of each record, or the offset of a damaged one, which ends the iteration. An incomplete record at the
/// very end is left out.
fn records(bytes: &[u8]) -> impl Iterator<Item = std::result::Result<&[u8], usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (length_sum, rest) = rest.split_first_chunk::<4>()?;
        let damaged = Some(Err(at));
        if masked_crc32c(length) != u32::from_le_bytes(*length_sum) {
            at = bytes.len();
            return damaged;
        }
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (data, rest) = rest.split_at_checked(length)?;
        let (data_sum, rest) = rest.split_first_chunk::<4>()?;
        at = bytes.len() - rest.len();
        if masked_crc32c(data) != u32::from_le_bytes(*data_sum) {
            at = bytes.len();
            return damaged;
        }
        Some(Ok(data))
    })
}

/// The step of an event written by this crate; 0 for the one with the version.
fn step_of(event: &[u8]) -> Option<u64> {
    let (&[0x09, ..], [tag, rest @ ..]) = event.split_first_chunk::<9>()? else {
        return None;
    };
    if *tag != 0x10 {
        return Some(0);
    }
    let mut step = 0;
    for (i, &byte) in rest.iter().take(10).enumerate() {
        step |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some(step);
        }
    }
    None
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
