//! Facts about the machine.

use std::fs;
use std::process::Command;

use polygrad_core::{Availability, Registry};

/// A question, and the answer.
pub(super) type Fact = (&'static str, String);

/// Commands whose first lines are facts.
const ASKED: [(&str, &[&str]); 8] = [
    ("kernel", &["uname", "-srm"]),
    ("C library", &["ldd", "--version"]),
    (
        "card",
        &[
            "nvidia-smi",
            "--query-gpu=name,driver_version,memory.total,compute_cap",
            "--format=csv,noheader",
        ],
    ),
    (
        "CUDA of the driver",
        &["sh", "-c", "nvidia-smi | grep -o 'CUDA Version: [0-9.]*'"],
    ),
    (
        "Vulkan's drivers",
        &[
            "sh",
            "-c",
            "ls /usr/share/vulkan/icd.d /etc/vulkan/icd.d 2>/dev/null | grep json | tr '\\n' ' '",
        ],
    ),
    ("Python", &["sh", "-c", "${PYTHON:-python3} --version"]),
    (
        "PyTorch",
        &[
            "sh",
            "-c",
            "${PYTHON:-python3} -c 'import torch; c = torch.cuda; print(torch.__version__, \"CUDA\", torch.version.cuda, c.get_device_name() if c.is_available() else \"no card\")'",
        ],
    ),
    (
        "JAX",
        &[
            "sh",
            "-c",
            "${PYTHON:-python3} -c 'import jax; print(jax.__version__, jax.devices())'",
        ],
    ),
];

/// The devices that are tested.
pub(super) const DEVICES: [&str; 2] = ["cuda", "wgpu"];

/// The timeout of an answer, in seconds: importing Python's packages is slow.
const PATIENCE: &str = "60";

/// All known facts.
pub(super) fn facts() -> Vec<Fact> {
    let mut facts = vec![
        (
            "system",
            line("/etc/os-release", "PRETTY_NAME=").trim_matches('"').to_owned(),
        ),
        ("processor", processor()),
        ("memory", line("/proc/meminfo", "MemTotal:")),
    ];
    facts.extend(ASKED.map(|(name, words)| (name, answer(words))));
    for backend in DEVICES {
        facts.push((backend, device(backend).unwrap_or_else(|reason| reason)));
    }
    let libraries = std::env::var("POLYGRAD_LIBRARIES").unwrap_or_else(|_| "not looked for".to_owned());
    facts.push(("libraries", libraries));
    facts.push(("compute-sanitizer", sanitizer().unwrap_or_else(|| "none".to_owned())));
    facts
}

/// The path of NVIDIA's checker of memory accesses.
pub(super) fn sanitizer() -> Option<String> {
    let found = answer(&[
        "sh",
        "-c",
        "command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null",
    ]);
    found.starts_with('/').then_some(found)
}

/// Whether a Python package can use the card: one that cannot would end a whole benchmark at its start.
pub(super) fn has_package(facts: &[Fact], name: &str) -> bool {
    let found = facts.iter().find(|(known, _)| *known == name);
    found.is_some_and(|(_, answer)| {
        let card = !answer.ends_with("no card") && answer.to_ascii_lowercase().contains("cuda");
        card && answer.starts_with(|first: char| first.is_ascii_digit())
    })
}

/// Whether one of the libraries in the facts was found.
pub(super) fn has_library(facts: &[Fact], file: &str) -> bool {
    let libraries = facts.iter().find(|(known, _)| *known == "libraries");
    libraries.is_some_and(|(_, notes)| {
        let mut notes = notes.split("; ").filter_map(|note| note.split_once(": "));
        notes.any(|(known, note)| known == file && note != "not found")
    })
}

/// The description of a device.
///
/// # Errors
/// The reason why it is missing.
pub(super) fn device(backend: &str) -> Result<String, String> {
    let entries = Registry::global().entries();
    let Some(entry) = entries.iter().find(|entry| entry.name() == backend) else {
        return Err(format!("this program was built without {backend}"));
    };
    match entry.devices().into_iter().next() {
        None => Err("no device".to_owned()),
        Some(device) => match device.availability {
            Availability::Available => Ok(device.description),
            Availability::Unavailable(reason) => Err(reason),
        },
    }
}

fn processor() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let name = line("/proc/cpuinfo", "model name");
    format!("{}, {cores} cores", name.trim_start_matches(['\t', ':', ' ']))
}

/// The rest of the first line of a file that starts with `start`.
fn line(path: &str, start: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(start));
    found.unwrap_or("unknown").trim().to_owned()
}

/// The first line that a command prints, or a note that it failed.
fn answer(words: &[&str]) -> String {
    // With the libraries included in Python's packages, like the peers.
    let outer = std::env::var("POLYGRAD_OUTER_LIBRARY_PATH").unwrap_or_default();
    let mut command = Command::new("timeout");
    command.arg(PATIENCE).args(words).env("LD_LIBRARY_PATH", outer);
    let output = command.output();
    let text = match &output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout),
        _ => "none".into(),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines[..] {
        [] => "none".to_owned(),
        // One line for each card.
        _ if words[0] == "nvidia-smi" => lines.join("; "),
        _ => lines[0].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_a_card_is_not_timed() {
        for (answer, usable) in [
            ("2.13.0 CUDA 13.0 NVIDIA H100", true),
            ("2.13.0 CUDA 13.0 no card", false),
            ("0.10.2 [CudaDevice(id=0)]", true),
            ("0.10.2 [CpuDevice(id=0)]", false),
            ("none", false),
        ] {
            assert_eq!(has_package(&[("JAX", answer.to_owned())], "JAX"), usable, "{answer}");
        }
    }
}
