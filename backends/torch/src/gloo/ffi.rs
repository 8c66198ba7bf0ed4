//! Rust bindings for the shim over LibTorch's C++ classes.

#![allow(unsafe_code, reason = "a C interface")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::time::Duration;

unsafe extern "C" {
    fn polygrad_gloo_version() -> *const c_char;
    fn polygrad_gloo_store(
        host: *const c_char,
        port: u16,
        prefix: *const c_char,
        server: c_int,
        timeout: i64,
        store: *mut *mut c_void,
        message: *mut *mut c_char,
    ) -> c_int;
    fn polygrad_gloo_store_free(store: *mut c_void);
    fn polygrad_gloo_store_set(
        store: *mut c_void,
        key: *const c_char,
        value: *const u8,
        len: usize,
        message: *mut *mut c_char,
    ) -> c_int;
    fn polygrad_gloo_store_get(
        store: *mut c_void,
        key: *const c_char,
        value: *mut *mut u8,
        len: *mut usize,
        message: *mut *mut c_char,
    ) -> c_int;
    fn polygrad_gloo_group(
        store: *mut c_void,
        rank: c_int,
        size: c_int,
        interface: *const c_char,
        timeout: i64,
        group: *mut *mut c_void,
        message: *mut *mut c_char,
    ) -> c_int;
    fn polygrad_gloo_group_free(group: *mut c_void);
    fn polygrad_gloo_all_reduce(
        group: *mut c_void,
        data: *mut c_void,
        len: usize,
        dtype: c_int,
        op: c_int,
        message: *mut *mut c_char,
    ) -> c_int;
    fn polygrad_gloo_all_gather(
        group: *mut c_void,
        own: *const c_void,
        len: usize,
        all: *mut c_void,
        message: *mut *mut c_char,
    ) -> c_int;
    fn polygrad_gloo_broadcast(
        group: *mut c_void,
        data: *mut c_void,
        len: usize,
        root: c_int,
        message: *mut *mut c_char,
    ) -> c_int;
    fn polygrad_gloo_barrier(group: *mut c_void, message: *mut *mut c_char) -> c_int;
    fn polygrad_gloo_free(memory: *mut c_void);
}

/// A result with LibTorch's error message, without the place in its sources.
pub(super) type Said<T> = Result<T, String>;

/// Calls a function of the shim, passing it a pointer for an error message.
fn call(f: impl FnOnce(*mut *mut c_char) -> c_int) -> Said<()> {
    let mut message = ptr::null_mut();
    if f(&raw mut message) == 0 {
        return Ok(());
    }
    if message.is_null() {
        return Err("no memory for its message".to_owned());
    }
    // SAFETY: if the shim's functions fail, they leave a string from malloc here. It is read before it is freed, and
    // freed once.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        polygrad_gloo_free(message.cast());
        text
    };
    Err(plain(&text))
}

/// Removes the source position at the start, and the advice and C++ frames at the end.
fn plain(text: &str) -> String {
    let text = match text.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((place, rest)) if place.contains(".cc:") || place.contains(".cpp:") => rest,
        _ => text,
    };
    let ends = ["\nException raised from", ". This is typically caused", "\n"];
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    text[..end].trim().to_owned()
}

fn string(text: &str) -> Said<CString> {
    CString::new(text).map_err(|_| format!("{text:?} has a zero in it"))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis())
        .unwrap_or(i64::MAX)
        .clamp(1, i64::from(i32::MAX))
}

/// LibTorch's version.
pub(super) fn version() -> String {
    // SAFETY: the string is static.
    let text = unsafe { CStr::from_ptr(polygrad_gloo_version()) };
    text.to_string_lossy().into_owned()
}

/// A connection to the store through which the processes of a group find each other.
pub(super) struct Store(*mut c_void);

// SAFETY: it is a reference-counted pointer to a `c10d::Store`, whose methods take a lock; none of it is bound to a
// thread.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    /// Connects; the process that serves the store starts it first, if it has not yet.
    pub(super) fn connect(host: &str, port: u16, prefix: &str, serve: bool, timeout: Duration) -> Said<Self> {
        let (host, prefix) = (string(host)?, string(prefix)?);
        let (timeout, mut store) = (millis(timeout), ptr::null_mut());
        // SAFETY: the strings and the out pointers outlive the call.
        call(|message| unsafe {
            polygrad_gloo_store(
                host.as_ptr(),
                port,
                prefix.as_ptr(),
                serve.into(),
                timeout,
                &raw mut store,
                message,
            )
        })?;
        Ok(Self(store))
    }

    pub(super) fn set(&self, key: &str, value: &str) -> Said<()> {
        let key = string(key)?;
        // SAFETY: the store is alive; the key and the value outlive the call.
        call(|message| unsafe { polygrad_gloo_store_set(self.0, key.as_ptr(), value.as_ptr(), value.len(), message) })
    }

    /// The value of a key, or `None` if it is not set.
    pub(super) fn get(&self, key: &str) -> Said<Option<String>> {
        let key = string(key)?;
        let (mut value, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the store is alive; the key and the out pointers outlive the call.
        call(|message| unsafe {
            polygrad_gloo_store_get(self.0, key.as_ptr(), &raw mut value, &raw mut len, message)
        })?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: the call returned `len` bytes from malloc, which are read before they are freed, and freed once.
        let text = unsafe {
            let bytes = std::slice::from_raw_parts(value, len);
            let text = String::from_utf8_lossy(bytes).into_owned();
            polygrad_gloo_free(value.cast());
            text
        };
        Ok(Some(text))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: from `polygrad_gloo_store`, and freed once.
        unsafe { polygrad_gloo_store_free(self.0) }
    }
}

/// How Gloo reduces: the number of a `c10d::ReduceOp::RedOpType`.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Sum = 0,
    Min = 3,
    Max = 4,
}

/// A process group over Gloo.
pub(super) struct Group(*mut c_void);

// SAFETY: it is a reference-counted pointer to a `c10d::ProcessGroupGloo`, none of which is bound to a thread.
unsafe impl Send for Group {}

impl Group {
    /// Connects to every other rank of the group.
    pub(super) fn connect(
        store: &Store,
        rank: usize,
        size: usize,
        interface: Option<&str>,
        timeout: Duration,
    ) -> Said<Self> {
        let interface = interface.map(string).transpose()?;
        let interface = interface.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let number = |n: usize| c_int::try_from(n).map_err(|_| format!("{n} ranks are too many"));
        let (rank, size, mut group) = (number(rank)?, number(size)?, ptr::null_mut());
        // SAFETY: the store is alive; the name of the interface and the out pointers outlive the call.
        call(|message| unsafe {
            polygrad_gloo_group(store.0, rank, size, interface, millis(timeout), &raw mut group, message)
        })?;
        Ok(Self(group))
    }

    /// Reduces values in place. `dtype` is LibTorch's number for the dtype, and `bytes` holds `len` values of it.
    pub(super) fn all_reduce(&mut self, bytes: &mut [u8], len: usize, dtype: i32, op: Op) -> Said<()> {
        let data = bytes.as_mut_ptr().cast();
        // SAFETY: the group is alive and called by one thread, and `bytes` belongs to the call until it returns: it
        // waits until all that it started is over, even if it fails.
        call(|message| unsafe { polygrad_gloo_all_reduce(self.0, data, len, dtype, op as c_int, message) })
    }

    /// Gathers bytes; `all` has room for those of all ranks.
    pub(super) fn all_gather(&mut self, own: &[u8], all: &mut [u8]) -> Said<()> {
        let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: as in `all_reduce`; `own` is only read, and `all` has room for the bytes of every rank.
        call(|message| unsafe { polygrad_gloo_all_gather(self.0, from, own.len(), to, message) })
    }

    /// Sends bytes from rank `root` to all.
    pub(super) fn broadcast(&mut self, bytes: &mut [u8], root: usize) -> Said<()> {
        let data = bytes.as_mut_ptr().cast();
        // SAFETY: as in `all_reduce`.
        call(|message| unsafe { polygrad_gloo_broadcast(self.0, data, bytes.len(), root as c_int, message) })
    }

    pub(super) fn barrier(&mut self) -> Said<()> {
        // SAFETY: the group is alive and called by one thread.
        call(|message| unsafe { polygrad_gloo_barrier(self.0, message) })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: from `polygrad_gloo_group`, freed once, and no call is in flight.
        unsafe { polygrad_gloo_group_free(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lose_where_they_come_from() {
        let text = "[/x/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:32446: Connection reset by peer. This is typically caused by";
        assert_eq!(plain(text), "Read error [127.0.0.1]:32446: Connection reset by peer");
        assert_eq!(plain("[127.0.0.1]:7 is gone\nframe #0"), "[127.0.0.1]:7 is gone");
    }
}
