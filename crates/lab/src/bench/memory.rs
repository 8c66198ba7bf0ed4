//! `memory`: the peak memory of a program during training, in its own process.

use std::time::Duration;

use polygrad_console::failure::Result;

use super::contestant::Contestant;
use super::peer::Peer;

/// The cases whose memory is measured.
pub(crate) const CASES: [&str; 2] = ["resnet", "gpt"];

/// After this many steps, memory that is kept for reuse has reached its size.
const STEPS: usize = 3;

/// The peak memory of a program, or the reason why it is not known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Peak {
    /// Its name and version.
    pub(crate) name: String,
    /// In bytes, including the program itself and its libraries.
    pub(crate) bytes: std::result::Result<u64, String>,
}

/// Trains a case in separate processes: Polygrad's, then the peers'. Failures of a process are part of the report.
///
/// # Errors
/// If Polygrad cannot be started again.
pub(crate) fn measure(
    case: &str,
    device: &str,
    peers: &[String],
    threads: usize,
    patience: Duration,
) -> Result<Vec<Peak>> {
    let mut peaks = vec![peak(Peer::ourselves(device, patience)?, case)];
    for name in peers {
        peaks.push(match Peer::start(name, threads, patience) {
            Ok(peer) => peak(peer, case),
            Err(failure) => Peak {
                name: name.clone(),
                bytes: Err(failure.to_string()),
            },
        });
    }
    Ok(peaks)
}

fn peak(mut peer: Peer, case: &str) -> Peak {
    let trained = peer.case(case).and_then(|()| peer.run(1, STEPS));
    Peak {
        name: peer.name(),
        bytes: trained.and_then(|_| peer.peak().ok_or_else(|| "this system does not say".to_owned())),
    }
}
