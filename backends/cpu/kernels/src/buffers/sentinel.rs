//! With the feature `sentinels`, for tests: a fence on both sides of every block, which shows who wrote outside it, and
//! a filling that shows what was never written.

use std::sync::Mutex;

use polygrad_core::{Error, ErrorKind, Result};

use super::cache::lock;

/// Bytes of a fence. A multiple of the alignment of blocks.
const FENCE: usize = 64;

/// Bytes that blocks set aside for each of their two fences.
pub(super) const ROOM: usize = if cfg!(feature = "sentinels") { FENCE } else { 0 };

/// What fences are made of.
const POST: u8 = 0xa5;

/// What data starts as: NaN in every float dtype, and no truth value.
const UNWRITTEN: u8 = 0xff;

/// The length stands in the front fence, and again with every bit turned.
const LENGTHS: usize = 2 * size_of::<usize>();

/// The first broken fence since somebody asked.
static BROKEN: Mutex<Option<String>> = Mutex::new(None);

/// Puts up the fences around `len` bytes at `data`, and fills these.
///
/// # Safety
/// The bytes from [`FENCE`] before `data` to [`FENCE`] behind the data must be the caller's alone.
pub(super) unsafe fn raise(data: *mut u8, len: usize) {
    // SAFETY: inside what the caller owns. Lengths are written byte by byte, as alignment is not promised.
    unsafe {
        let front = data.sub(FENCE);
        front.write_bytes(POST, FENCE);
        front.cast::<[usize; 2]>().write_unaligned([len, !len]);
        data.write_bytes(UNWRITTEN, len);
        data.add(len).write_bytes(POST, FENCE);
    }
}

/// Takes note if a fence around `data` is broken.
///
/// # Safety
/// The fences were put up by [`raise`], and nobody writes to them now.
pub(super) unsafe fn inspect(data: *const u8) {
    // SAFETY: the caller promises the same.
    if let Some(place) = unsafe { breach(data) } {
        report(place);
    }
}

/// Where a fence around `data` is broken.
///
/// # Safety
/// As [`inspect`].
unsafe fn breach(data: *const u8) -> Option<String> {
    // SAFETY: the front fence was put up.
    let front = unsafe { data.sub(FENCE) };
    // SAFETY: as above.
    let [len, turned] = unsafe { front.cast::<[usize; 2]>().read_unaligned() };
    // SAFETY: as above.
    let before = unsafe { std::slice::from_raw_parts(front.add(LENGTHS), FENCE - LENGTHS) };
    if len != !turned || before.iter().any(|&byte| byte != POST) {
        return Some("before the start of its buffer".to_owned());
    }
    // SAFETY: the length is the one that the back fence was put up behind.
    let behind = unsafe { std::slice::from_raw_parts(data.add(len), FENCE) };
    let at = behind.iter().position(|&byte| byte != POST)?;
    Some(format!("{at} bytes behind the end of its buffer of {len} bytes"))
}

#[cold]
fn report(place: String) {
    lock(&BROKEN).get_or_insert(place);
}

/// Whether every buffer that was given back since the last call had its fences whole.
///
/// # Errors
/// [`ErrorKind::DeviceError`] with the first place that was written to: no value can be relied on any more.
pub fn verdict() -> Result<()> {
    if !cfg!(feature = "sentinels") {
        return Ok(());
    }
    match lock(&BROKEN).take() {
        None => Ok(()),
        Some(place) => Err(Error::new(
            ErrorKind::DeviceError,
            format!("a kernel wrote {place}; no value in memory can be relied on any more"),
        )
        .with_hint("this is an error in polygrad-cpu; please report it with the ops that ran last")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found after `change` was made to the fenced bytes of a block of ten.
    fn found(change: impl Fn(&mut [u8])) -> Option<String> {
        let mut bytes = vec![0; FENCE + 10 + FENCE];
        // SAFETY: the vector holds both fences and ten bytes between them.
        unsafe { raise(bytes.as_mut_ptr().add(FENCE), 10) };
        assert_eq!(bytes[FENCE..FENCE + 10], [UNWRITTEN; 10]);
        change(&mut bytes);
        // SAFETY: as above.
        unsafe { breach(bytes.as_ptr().add(FENCE)) }
    }

    #[test]
    fn broken_fences_are_found() {
        assert_eq!(found(|bytes| bytes[FENCE..FENCE + 10].fill(0)), None);
        let behind = |at: usize| found(move |bytes| bytes[FENCE + 10 + at] = 0);
        assert_eq!(behind(0).unwrap(), "0 bytes behind the end of its buffer of 10 bytes");
        assert_eq!(behind(63).unwrap(), "63 bytes behind the end of its buffer of 10 bytes");
        for at in 0..FENCE {
            let before = found(move |bytes| bytes[at] ^= 1);
            assert_eq!(before.unwrap(), "before the start of its buffer", "byte {at}");
        }
    }
}
