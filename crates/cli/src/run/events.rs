//! A TensorBoard event file: scalars over steps.
//!
//! Each record is TFRecord framing — length, masked CRC-32C of the length, data, masked CRC-32C of the data — around a
//! protobuf `Event`, of which four fields are needed (`tensorflow/core/util/event.proto`, `…/framework/summary.proto`):
//! `Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5 }`,
//! `Summary { repeated Value value = 1 }`, `Value { string tag = 1; float simple_value = 2 }`.

use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use polygrad::nn::open_file;

use super::log::Log;
use crate::failure::{Failure, Result, Shown};
use crate::progress::note;

/// The version that TensorBoard expects in the first event of a file.
const VERSION: &[u8] = b"brain.Event:2";

/// An open event file.
#[derive(Debug)]
pub(crate) struct Events(Log);

impl Events {
    /// Starts a file at `path`. TensorBoard takes any file whose name contains `tfevents`.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let mut event = vec![0x09];
        event.extend(now().to_le_bytes());
        field(&mut event, 3, VERSION);
        Log::create(path, &frame(&event)).map(Self)
    }

    /// Goes on with the file at `path` as it was after `step` steps, dropping what came later and a record that a crash
    /// cut short. Without a file a new one is started, and standard error tells of it.
    ///
    /// # Errors
    /// A file that cannot be read or written, or that is damaged before its last record.
    pub(crate) fn resume(path: &Path, step: u64) -> Result<Self> {
        if !path.exists() {
            if step > 0 {
                note(&format!("{} is gone: a new one begins after step {step}", path.shown()));
            }
            return Self::create(path);
        }
        let mut bytes = Vec::new();
        open_file(path)?
            .0
            .read_to_end(&mut bytes)
            .map_err(|e| Failure::io("read", path, &e))?;
        let mut kept = Vec::new();
        for event in records(&bytes) {
            let event = event.map_err(|at| {
                Failure::new(format!("{} is damaged at byte {at}", path.shown()))
                    .fix("move the file away: the run goes on with a new one")
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

    /// Appends the values of several tags, such as `loss/train`, at one step.
    ///
    /// # Errors
    /// Whatever the file system says, and a file that was removed or replaced meanwhile.
    pub(crate) fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        let mut summary = Vec::new();
        for &(tag, value) in values {
            let mut message = Vec::new();
            field(&mut message, 1, tag.as_bytes());
            message.push(0x15);
            message.extend((value as f32).to_le_bytes());
            field(&mut summary, 1, &message);
        }
        let mut event = vec![0x09];
        event.extend(now().to_le_bytes());
        event.push(0x10);
        varint(&mut event, step);
        field(&mut event, 5, &summary);
        self.0.append(&frame(&event))
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

/// A length-delimited field.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
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

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4), masked as TFRecord does it.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The data of each record; the offset of a damaged one, after which there are no more. A torn record at the very end
/// is left out.
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

/// The step of an event that we wrote; 0 for the one with the version.
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
