//! The bundle on systems that have nothing but their base.

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

/// What is run there, for so many minutes: without a card, that the report is whole.
const PARTS: [&str; 4] = ["5", "devices", "smoke", "train-cpu"];

/// A system that runs has /proc.
const LINE: &str =
    r#"mount -t proc proc /proc; cd /tmp; rm -rf polygrad-report-*; sh "$@"; status=$?; umount /proc; exit $status"#;

/// Runs the bundle in each; the reports lie in the chroots, which stay in the cache folder.
///
/// # Errors
/// Without debootstrap, root and a network, and where the bundle does not run.
pub(super) fn run(bundle: &Path) -> Result<(), String> {
    for System { name, mirror } in SYSTEMS {
        let root = cache::folder()?.join("chroots").join(name);
        // The last thing that debootstrap does.
        if !root.join("bin/true").exists() || root.join("debootstrap").exists() {
            let _ = std::fs::remove_dir_all(&root);
            println!("making {} with debootstrap", root.display());
            // A Debian knows the keys of its own archive alone, and nothing of this leaves the chroot.
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
