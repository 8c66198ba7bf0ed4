//! Reading on a web page, where no thread may block.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use polygrad_core::compute::DevicePtr;
use polygrad_core::{Error, ErrorKind, Result};

use crate::failure::lock;
use crate::gpu::Gpu;

/// Whether the memory is mapped, and the waker of the waiting future.
#[derive(Default)]
struct Mapped {
    done: Option<bool>,
    waker: Option<Waker>,
}

pub(crate) async fn read(gpu: &Gpu, src: DevicePtr, bytes: usize) -> Result<Vec<u8>> {
    let mapped = Arc::new(Mutex::new(Mapped::default()));
    let note = Arc::clone(&mapped);
    let ordered = gpu.session()?.order(Some(src), bytes, move |good| {
        let mut mapped = lock(&note);
        mapped.done = Some(good);
        if let Some(waker) = mapped.waker.take() {
            waker.wake();
        }
    })?;
    let good = poll_fn(|context| {
        let mut mapped = lock(&mapped);
        match mapped.done {
            Some(good) => Poll::Ready(good),
            None => {
                mapped.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
    if !good {
        return Err(Error::new(ErrorKind::DeviceError, "what was computed cannot be read"));
    }
    let mut out = vec![0; bytes];
    gpu.session()?.take(ordered, &mut out)?;
    Ok(out)
}
