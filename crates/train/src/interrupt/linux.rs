//! Signals, told apart.

use std::io;
use std::thread::Builder;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The signal that Ctrl-C sends.
pub(super) const INTERRUPT: u8 = SIGINT as u8;

/// Calls `told` with the number of each received signal.
///
/// # Errors
/// When no thread can be started to listen.
pub(super) fn hear(told: impl Fn(u8) + Send + 'static) -> io::Result<()> {
    let kept = kept();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let mut signals = Signals::new(wanted.filter(|signal| kept >> (signal - 1) & 1 == 0))?;
    let listen = move || {
        for signal in signals.forever() {
            told(u8::try_from(signal).unwrap_or(INTERRUPT));
        }
    };
    Builder::new().name("signals".to_owned()).spawn(listen).map(drop)
}

/// The signals that are ignored or have a handler, one bit each. A shell starts background programs with Ctrl-C
/// ignored, and nohup starts them with SIGHUP ignored, since these signals are then meant for other programs.
fn kept() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = |name: &str| {
        let digits = status.lines().find_map(|line| line.strip_prefix(name));
        digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
    };
    bits("SigIgn:").unwrap_or(0) | bits("SigCgt:").unwrap_or(0)
}
