//! The feature `sentinels`, for tests: a fence on both sides of every block detects writes outside of it, and a fill
//! pattern detects reads of unwritten data.

use std::sync::Mutex;

use polygrad_core::{Error, ErrorKind, Result};

use super::cache::lock;

/// Bytes of a fence. A multiple of the alignment of blocks.
const FENCE: usize = 64;

/// Bytes that blocks set aside for each of their two fences.
pub(super) const ROOM: usize = if cfg!(feature = "sentinels") { FENCE } else { 0 };

/// The byte that fences consist of.
const POST: u8 = 0xa5;

/// The initial byte of data: NaN in every float dtype, and not a valid bool.
const UNWRITTEN: u8 = 0xff;

/// The front fence contains the length, followed by its bitwise complement.
const LENGTHS: usize = 2 * size_of::<usize>();

/// The first broken fence since the last check.
static BROKEN: Mutex<Option<String>> = Mutex::new(None);

/// Places the fences around `len` bytes at `data`, and fills these bytes.
///
/// # Safety
/// The caller must own the bytes from [`FENCE`] before `data` to [`FENCE`] after the data exclusively.
pub(super) unsafe fn raise(data: *mut u8, len: usize) {
    // SAFETY: inside the caller's bytes. Lengths are written unaligned, since the alignment is not guaranteed.
    unsafe {
        let front = data.sub(FENCE);
        front.write_bytes(POST, FENCE);
        front.cast::<[usize; 2]>().write_unaligned([len, !len]);
        data.write_bytes(UNWRITTEN, len);
        data.add(len).write_bytes(POST, FENCE);
    }
}

/// Records a broken fence around `data`.
///
/// # Safety
/// [`raise`] has placed the fences, and no thread writes to them now.
pub(super) unsafe fn inspect(data: *const u8) {
    // SAFETY: the caller promises the same.
    if let Some(place) = unsafe { breach(data) } {
        report(place);
    }
}

/// The place of a broken fence around `data`; `None` if both are intact.
///
/// # Safety
/// As [`inspect`].
unsafe fn breach(data: *const u8) -> Option<String> {
    // SAFETY: the front fence was placed.
    let front = unsafe { data.sub(FENCE) };
    // SAFETY: as above.
    let [len, turned] = unsafe { front.cast::<[usize; 2]>().read_unaligned() };
    // SAFETY: as above.
    let before = unsafe { std::slice::from_raw_parts(front.add(LENGTHS), FENCE - LENGTHS) };
    if len != !turned || before.iter().any(|&byte| byte != POST) {
        return Some("before the start of its buffer".to_owned());
    }
    // SAFETY: the back fence was placed after this length.
    let behind = unsafe { std::slice::from_raw_parts(data.add(len), FENCE) };
    let at = behind.iter().position(|&byte| byte != POST)?;
    Some(format!("{at} bytes behind the end of its buffer of {len} bytes"))
}

#[cold]
fn report(place: String) {
    lock(&BROKEN).get_or_insert(place);
}

/// Checks whether all buffers freed since the last call had intact fences.
///
/// # Errors
/// [`ErrorKind::DeviceError`] with the first place that was overwritten: no value can be relied on any more.
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

    /// The fault found after `change` has modified the fenced bytes of a block of ten.
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
