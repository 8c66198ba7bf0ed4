//! The memory use of a test, and the size of its files.

/// The most memory that this process ever held, in bytes.
pub fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("a peak");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}

/// The number of bytes to test with: `POLYGRAD_MEMORY_MB`, or `megabytes` by default.
pub fn size(megabytes: u64) -> u64 {
    let asked = std::env::var("POLYGRAD_MEMORY_MB").map(|text| text.parse().expect("POLYGRAD_MEMORY_MB is a number"));
    asked.unwrap_or(megabytes) << 20
}
