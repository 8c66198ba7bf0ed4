//! Limits for the pages of a row group: total bytes, and elements of the lists in a row.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::errors::{ParquetError, Result};

/// A budget of bytes that are taken and returned.
pub(super) struct Budget {
    most: u64,
    left: AtomicU64,
}

impl Budget {
    pub(super) fn new(most: u64) -> Arc<Self> {
        let left = AtomicU64::new(most);
        Arc::new(Self { most, left })
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }

    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Result<Taken> {
        let less = |left: u64| left.checked_sub(bytes);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(Taken {
                budget: Arc::clone(self),
                bytes,
            }),
            Err(_) => Err(ParquetError::General(format!(
                "pages of more than {} bytes in all at a time",
                self.most
            ))),
        }
    }
}

/// Returns its bytes to the budget when dropped.
pub(super) struct Taken {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Taken {
    /// The bytes of a page; they count as long as any part of them is in use.
    pub(super) fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held { bytes, _taken: self })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

struct Held {
    bytes: Vec<u8>,
    _taken: Taken,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The range of the levels in a version 1 page, starting at byte `from`; `None` if they are incomplete.
pub(super) fn levels(page: &[u8], from: usize, most: i16, encoding: Encoding, values: u64) -> Option<Range<usize>> {
    let (start, length) = match encoding {
        _ if most == 0 => (from, 0),
        Encoding::RLE => {
            let length = page.get(from..)?.first_chunk::<4>()?;
            (from + 4, u64::from(u32::from_le_bytes(*length)))
        }
        #[allow(deprecated, reason = "old files have it")]
        Encoding::BIT_PACKED => (from, (values * u64::from(width(most))).div_ceil(8)),
        _ => return None,
    };
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    (end <= page.len()).then_some(start..end)
}

fn width(most: i16) -> u32 {
    i16::BITS - most.leading_zeros()
}

/// Tracks the rows of a column across pages by repetition levels; each row begins with a 0.
#[derive(Default)]
pub(super) struct Lists {
    /// Number of elements of the current row, which may continue, and of the longest row.
    open: u64,
    pub(super) longest: u64,
}

impl Lists {
    fn push(&mut self, level: u64, count: u64) {
        self.open = match level {
            0 => count.min(1),
            _ => self.open + count,
        };
        self.longest = self.longest.max(self.open);
    }

    /// Reads `values` levels in the encoding `RLE`: runs of one level, and bit-packed levels.
    pub(super) fn follow(&mut self, mut bytes: &[u8], most: i16, mut values: u64) {
        let width = width(most);
        while values > 0
            && let Some(header) = number(&mut bytes)
        {
            if header & 1 == 0 {
                let Some((level, rest)) = bytes.split_at_checked(width.div_ceil(8) as usize) else {
                    return;
                };
                bytes = rest;
                let count = values.min(header >> 1);
                if count > 0 {
                    self.push(level.iter().fold(0, |sum, &byte| sum | u64::from(byte)), count);
                }
                values -= count;
                continue;
            }
            let count = values.min((header >> 1).saturating_mul(8));
            let bit = |at: u64| bytes.get((at / 8) as usize).map(|byte| byte >> (at % 8) & 1);
            for i in 0..count {
                let mut level = 0;
                for at in i * u64::from(width)..(i + 1) * u64::from(width) {
                    let Some(bit) = bit(at) else { return };
                    level |= u64::from(bit);
                }
                self.push(level, 1);
            }
            values -= count;
            let whole = (header >> 1).saturating_mul(u64::from(width));
            bytes = bytes.get(usize::try_from(whole).unwrap_or(usize::MAX)..).unwrap_or(&[]);
        }
    }

    /// Levels that are not read could all belong to one row.
    pub(super) fn assume(&mut self, values: u64) {
        self.push(1, values);
    }
}

/// The number of values in the header of a delta encoding, where it is the third number.
pub(super) fn differences(mut bytes: &[u8]) -> Option<u64> {
    number(&mut bytes)?;
    number(&mut bytes)?;
    number(&mut bytes)
}

/// Reads a variable-length number, seven bits per byte.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let end = bytes.iter().take(10).position(|&byte| byte < 0x80)?;
    let (number, rest) = bytes.split_at(end + 1);
    *bytes = rest;
    let bits = number.iter().enumerate();
    Some(bits.fold(0, |sum, (i, &byte)| sum | u64::from(byte & 0x7f) << (7 * i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_followed_over_runs_and_pages() {
        let mut lists = Lists::default();
        // Bit-packed: 0 1 1 0 1 1 1 1; then five times 1, and three times 0.
        lists.follow(&[0x03, 0b1111_0110, 10, 1, 6, 0], 1, 16);
        assert_eq!((lists.open, lists.longest), (1, 10));
        // Two bits each: 2 1 1 0 and four more that do not count; the row continues from the page before.
        lists.follow(&[0x03, 0b0001_0110, 0], 2, 4);
        assert_eq!((lists.open, lists.longest), (1, 10));
        lists.follow(&[0xfe, 0xff, 0xff, 0xff, 0x0f, 1], 1, u64::from(u32::MAX));
        assert_eq!(lists.longest, (1 << 31));
        lists.follow(&[0x03], 1, 8);
        assert_eq!(lists.longest, (1 << 31));
    }

    #[test]
    fn bytes_are_given_back_with_the_last_part_of_a_page() {
        let budget = Budget::new(10);
        let page = budget.take(8).unwrap().hold(vec![7; 8]);
        assert!(budget.take(3).is_err());
        let part = page.slice(2..3);
        drop(page);
        assert_eq!(budget.left(), 2);
        drop(part);
        assert_eq!(budget.left(), 10);
    }
}
