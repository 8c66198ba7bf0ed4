//! `nccl`: runs the conformance suite for communicators on ranks on the machine's own devices.

/// Runs the suite with one rank and, if there are two devices, with two, which lose each other at the end; prints the
/// results.
///
/// # Errors
/// If there is no device or no NCCL, or a case fails.
#[cfg(feature = "cuda")]
pub(crate) fn command() -> Result<(), String> {
    use std::sync::Arc;
    use std::time::Duration;

    use polygrad_conformance::communicator::{Call, Ending, Options, Report, ends, run};
    use polygrad_core::communicator::Communicator;
    use polygrad_cuda::Nccl;
    use polygrad_threads::Threads;

    /// Timeout of a collective: for each kind of collective, the last rank is this late to one call.
    const LIMIT: Duration = Duration::from_secs(10);

    let ranks = |size: usize, call: &(dyn Fn(Arc<dyn Communicator>) -> Report + Sync)| -> Result<(), String> {
        let group = Threads::group(size, LIMIT).map_err(|error| error.to_string())?;
        let rank = |(device, end)| -> Result<(), String> {
            let bootstrap: Arc<dyn Communicator> = Arc::new(end);
            let group = Nccl::new(bootstrap, device).map_err(|error| error.to_string())?;
            let report = call(Arc::new(group));
            println!("{report}");
            match report.passed() {
                true => Ok(()),
                false => Err(format!("rank {device} of {size} fails")),
            }
        };
        std::thread::scope(|scope| {
            let started: Vec<_> = (group.into_iter().enumerate())
                .map(|end| scope.spawn(move || rank(end)))
                .collect();
            started
                .into_iter()
                .try_for_each(|rank| rank.join().unwrap_or_else(|_| Err("a rank panics".to_owned())))
        })
    };
    let options = Options::default();
    ranks(1, &|group| run(&group, &options))?;
    if polygrad_cuda::CudaDriver::list().len() < 2 {
        println!("one device: two ranks are not tried");
        return Ok(());
    }
    ranks(2, &|group| run(&group, &options))?;
    for ending in [Ending::Leaves, Ending::Aborts, Ending::Late] {
        for call in Call::ALL {
            ranks(2, &|group| ends(group, ending, call, &options))?;
        }
    }
    Ok(())
}

/// The same without CUDA.
///
/// # Errors
/// Always.
#[cfg(not(feature = "cuda"))]
pub(crate) fn command() -> Result<(), String> {
    Err("this program was built without the feature cuda".to_owned())
}
