//! How much memory this machine has.

use std::sync::OnceLock;

/// The assumed size if it is unknown.
const UNKNOWN: usize = 16 << 30;

/// Three quarters of the machine's memory, or of the limit of this process's control group.
pub(super) fn most() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let machine = std::fs::read_to_string("/proc/meminfo").ok();
        let machine = machine.as_deref().and_then(total);
        let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
        // A control group without a limit says "max".
        let group = group.and_then(|text| text.trim().parse().ok());
        let least = machine.into_iter().chain(group).min().unwrap_or(UNKNOWN);
        least / 4 * 3
    })
}

/// The bytes of the line `MemTotal: 16384 kB`.
fn total(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        assert_eq!(total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(most() > 1 << 20);
    }
}
