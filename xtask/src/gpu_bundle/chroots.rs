//! Tests the bundle on minimal systems.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;

struct System {
    name: &'static str,
    mirror: &'static str,
}

const SYSTEMS: [System; 2] = [
    System {
        name: "bookworm",
        mirror: "http://deb.debian.org/debian",
    },
    System {
        name: "jammy",
        mirror: "http://archive.ubuntu.com/ubuntu",
    },
];

/// The parts to run there, after a limit in minutes: without a card, only to check that the report is complete.
const PARTS: [&str; 4] = ["5", "devices", "smoke", "train-cpu"];

/// Mounts /proc, which a running system has.
const LINE: &str =
    r#"mount -t proc proc /proc; cd /tmp; rm -rf polygrad-report-*; sh "$@"; status=$?; umount /proc; exit $status"#;

/// Runs the bundle in each system. The reports are in the chroots, which stay in the cache folder.
///
/// # Errors
/// Without debootstrap, root or a network, or if the bundle does not run.
pub(super) fn run(bundle: &Path) -> Result<(), String> {
    for System { name, mirror } in SYSTEMS {
        let root = cache::folder()?.join("chroots").join(name);
        // Removing this folder is debootstrap's last step.
        if !root.join("bin/true").exists() || root.join("debootstrap").exists() {
            let _ = std::fs::remove_dir_all(&root);
            println!("making {} with debootstrap", root.display());
            // Debian only has the keys of its own archive, and nothing of this leaves the chroot.
            let mut command = Command::new("debootstrap");
            command
                .args(["--variant=minbase", "--no-check-gpg", name])
                .arg(&root)
                .arg(mirror);
            done(command, "apt-get install debootstrap, and be root")?;
        }
        let inside = PathBuf::from("/gpu-bundle");
        let place = root.join("gpu-bundle");
        let _ = std::fs::remove_dir_all(&place);
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(bundle).arg(&place);
        done(copy, "make room on the disk")?;
        println!("in {name}:");
        let mut command = Command::new("chroot");
        command.arg(&root).args(["sh", "-c", LINE, "sh"]);
        command.arg(inside.join("run.sh")).args(PARTS);
        done(command, "read what it printed above")?;
    }
    Ok(())
}

fn done(mut command: Command, fix: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}\n  fix: {fix}")),
        Err(error) => Err(format!("{command:?} cannot be started: {error}\n  fix: {fix}")),
    }
}
