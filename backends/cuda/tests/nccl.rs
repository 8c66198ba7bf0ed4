//! NCCL if it is missing; if it is present, `cargo xtask gpu-bundle` runs the suite on it.

use std::sync::Arc;
use std::time::Duration;

use polygrad_core::ErrorKind;
use polygrad_core::communicator::Communicator;
use polygrad_cuda::Nccl;
use polygrad_threads::Threads;

fn group(device: usize) -> polygrad_core::Result<Nccl> {
    let ends = Threads::group(1, Duration::from_secs(10)).unwrap();
    let bootstrap: Arc<dyn Communicator> = Arc::new(ends.into_iter().next().unwrap());
    Nccl::new(bootstrap, device)
}

#[test]
fn what_is_missing_is_named() {
    // No machine has this many devices, so this also fails with the libraries.
    let error = group(1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    assert!(error.hint().is_some(), "{error}");
}

#[test]
fn every_rank_hears_of_one_that_cannot() {
    let ends = Threads::group(2, Duration::from_secs(10)).unwrap();
    let errors: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = ends
            .into_iter()
            .map(|end| scope.spawn(|| Nccl::new(Arc::new(end), 1000).unwrap_err()))
            .collect();
        started.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    }
}
