//! Three hosts in network namespaces, one of which is cut off while they work.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use polygrad_conformance::libtest_mimic::Failed;

use crate::{FOLDER, Kind, Launcher, ROLE};

/// The longest time for MPI to start, and to notice the cut. The communicator's time limit is 5 s.
const PATIENCE: Duration = Duration::from_secs(40);

/// Checks that network namespaces can be made here.
///
/// # Errors
/// The reason if they cannot.
pub(crate) fn possible() -> Result<(), String> {
    Hosts::new(0)
        .map(drop)
        .map_err(|e| format!("network namespaces (root and iproute2): {e}"))
}

/// Checks that ranks 0 and 1 name rank 2, whose host is cut off, and rank 2 names one of them.
pub(crate) fn cut_off(launcher: &Launcher) -> Result<(), Failed> {
    let hosts = Hosts::new(3)?;
    let folder = tempfile::tempdir()?;
    let agent = hosts.agent(folder.path())?;
    let log = std::fs::File::create(folder.path().join("log"))?;
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &hosts.name(1), "unshare", "--uts", "sh", "-c"]);
    command.args(["hostname node1; exec \"$@\"", "sh"]).arg(&launcher.path);
    command.env(ROLE, "cut").env(FOLDER, folder.path());
    let list = |after: &str| [1, 2, 3].map(|host| format!("{}{after}", address(host))).join(",");
    match launcher.kind {
        Kind::Mpich => {
            // Otherwise MPICH would notice that the hosts are one machine, and use shared memory.
            command
                .env("POLYGRAD_MPI_LIBRARY", launcher.library())
                .env("UCX_TLS", "tcp,self");
            command.args([
                "-launcher",
                "ssh",
                "-launcher-exec",
                &agent,
                "-ppn",
                "1",
                "-hosts",
                &list(""),
            ]);
        }
        Kind::OpenMpi4 | Kind::OpenMpi5 => {
            let starts = if launcher.kind == Kind::OpenMpi4 {
                "plm_rsh_agent"
            } else {
                "plm_ssh_agent"
            };
            command.args([
                "--allow-run-as-root",
                "--mca",
                starts,
                &agent,
                "--mca",
                "btl",
                "self,tcp",
            ]);
            command.args(["--mca", "btl_tcp_if_include", "10.99.0.0/24", "--host", &list(":1")]);
            command.args(["-x", ROLE, "-x", FOLDER]);
        }
    }
    command.args(["-n", "3"]).arg(std::env::current_exe()?);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let found = || ["0", "1", "2"].map(&read);
    let runs = within(PATIENCE, || found().iter().all(|found| found == "runs"));
    let cut = hosts.cut(3);
    let seen = runs && within(PATIENCE, || found().iter().all(|found| found.starts_with("names")));
    // The launcher may wait for a host that it can no longer reach.
    drop(hosts);
    let _ = child.kill();
    child.wait()?;
    cut?;
    let found = found();
    let named = found[..2].iter().all(|found| found.starts_with("names Some(2)"));
    match seen && named && !found[2].starts_with("names None") {
        true => Ok(()),
        false => Err(format!("{found:#?}\n{}", read("log")).into()),
    }
}

fn within(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn address(host: usize) -> String {
    format!("10.99.0.{host}")
}

fn ip(line: &str) -> Result<String, String> {
    let output = Command::new("ip")
        .args(line.split(' '))
        .output()
        .map_err(|e| format!("ip: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("ip {line}: {}", text(&output.stderr))),
    }
}

/// The hosts' namespaces. Namespace 0 is the switch between the others.
struct Hosts {
    name: String,
    count: usize,
}

impl Hosts {
    fn new(count: usize) -> Result<Self, String> {
        static MADE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let made = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("pg{}-{made}-", std::process::id());
        let hosts = Self { name, count };
        for host in 0..=count {
            ip(&format!("netns add {}", hosts.name(host)))?;
            ip(&format!("-n {} link set lo up", hosts.name(host)))?;
        }
        let switch = hosts.name(0);
        ip(&format!("-n {switch} link add switch type bridge"))?;
        ip(&format!("-n {switch} link set switch up"))?;
        for host in 1..=count {
            let name = hosts.name(host);
            ip(&format!(
                "link add eth0 netns {name} type veth peer name port{host} netns {switch}"
            ))?;
            ip(&format!("-n {switch} link set port{host} master switch up"))?;
            ip(&format!("-n {name} addr add {}/24 dev eth0", address(host)))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        Ok(hosts)
    }

    fn name(&self, host: usize) -> String {
        format!("{}{host}", self.name)
    }

    fn cut(&self, host: usize) -> Result<(), String> {
        ip(&format!("-n {} link set port{host} down", self.name(0))).map(drop)
    }

    /// Writes a script that replaces ssh: it starts a program on a host.
    fn agent(&self, folder: &Path) -> std::io::Result<String> {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.join("agent");
        let text = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=${{1##*.}}\nshift\n\
             exec ip netns exec {}$host unshare --uts sh -c \"hostname node$host; $*\"\n",
            self.name
        );
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
        Ok(path.display().to_string())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..=self.count {
            let name = self.name(host);
            for process in ip(&format!("netns pids {name}")).unwrap_or_default().lines() {
                let _ = Command::new("kill").args(["-9", process]).status();
            }
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
