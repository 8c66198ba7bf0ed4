//! What the pages of a row group may take: bytes in all, and the elements of lists in a row.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::errors::{ParquetError, Result};

/// Bytes that are taken and given back.
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

/// Gives its bytes back once it is dropped.
pub(super) struct Taken {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Taken {
    /// The bytes of a page, for as long as anyone has a part of them.
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

/// The levels of a page of the first version, which begin at a byte; nothing if they are not there whole.
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

/// Follows the rows of a column from page to page by repetition levels, of which each row begins with a 0.
#[derive(Default)]
pub(super) struct Lists {
    /// Elements of the row that may go on, and of the longest one.
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

    /// As many levels in the encoding `RLE`: runs of one level, and of levels bit by bit.
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

    /// Levels that are not looked at may all be of one row.
    pub(super) fn assume(&mut self, values: u64) {
        self.push(1, values);
    }
}

/// How many values the header of an encoding of differences says to follow: behind two other numbers.
pub(super) fn differences(mut bytes: &[u8]) -> Option<u64> {
    number(&mut bytes)?;
    number(&mut bytes)?;
    number(&mut bytes)
}

/// Takes a number of seven bits a byte.
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
        // Bit by bit: 0 1 1 0 1 1 1 1; then five times 1, and three times 0.
        lists.follow(&[0x03, 0b1111_0110, 10, 1, 6, 0], 1, 16);
        assert_eq!((lists.open, lists.longest), (1, 10));
        // Two bits each: 2 1 1 0 and four more that do not count; the row goes on from the page before.
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
