//! Three hosts on a bridge, as network namespaces of this machine.

use std::env;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{ended, start};

const SIZE: usize = 3;
const PORT: u16 = 29_500;

/// Whether this process may create namespaces.
pub(crate) fn allowed() -> bool {
    let name = format!("pgtry{}", std::process::id());
    let may = ip(&format!("netns add {name}")).is_ok();
    may && ip(&format!("netns del {name}")).is_ok()
}

fn ip(words: &str) -> Result<(), String> {
    let run = Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status();
    match run {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("ip {words}: {other:?}")),
    }
}

/// The hosts and their bridge, which are removed on drop. Names of interfaces have at most 15 letters.
struct Hosts {
    id: u32,
}

impl Hosts {
    fn new() -> Result<Self, String> {
        let hosts = Self {
            id: std::process::id() % 100_000,
        };
        let bridge = hosts.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("link set {bridge} up"))?;
        for rank in 0..SIZE {
            let (host, link) = (hosts.host(rank), hosts.link(rank));
            ip(&format!("netns add {host}"))?;
            ip(&format!("link add {link} type veth peer name eth0 netns {host}"))?;
            ip(&format!("link set {link} master {bridge} up"))?;
            let own = address(rank);
            ip(&format!("-n {host} address add {own}/24 dev eth0"))?;
            ip(&format!("-n {host} link set eth0 up"))?;
            ip(&format!("-n {host} link set lo up"))?;
        }
        Ok(hosts)
    }

    fn bridge(&self) -> String {
        format!("pgb{}", self.id)
    }

    fn host(&self, rank: usize) -> String {
        format!("pgh{}x{rank}", self.id)
    }

    fn link(&self, rank: usize) -> String {
        format!("pgl{}x{rank}", self.id)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for rank in 0..SIZE {
            let _ = ip(&format!("link del {}", self.link(rank)));
            let _ = ip(&format!("netns del {}", self.host(rank)));
        }
        let _ = ip(&format!("link del {}", self.bridge()));
    }
}

fn address(rank: usize) -> String {
    format!("10.213.0.{}", rank + 1)
}

/// Runs a rank on each host, and cuts the link to the last one while they work. No packet announces that.
pub(crate) fn cut() -> Result<(), String> {
    let hosts = Hosts::new()?;
    let program = env::current_exe().map_err(|e| e.to_string())?;
    let begin = |rank| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &hosts.host(rank)]).arg(&program);
        command.env("GLOO_SOCKET_IFNAME", "eth0");
        start(command, &format!("cut-{}", SIZE - 1), (rank, SIZE), (&address(0), PORT))
    };
    let ranks: Vec<_> = (0..SIZE).map(begin).collect::<Result<_, _>>()?;
    // Until they have met.
    std::thread::sleep(Duration::from_secs(4));
    ip(&format!("link set {} down", hosts.link(SIZE - 1)))?;
    let ends: Vec<_> = ranks.into_iter().map(ended).collect();
    for (rank, end) in ends.into_iter().enumerate() {
        let (succeeds, text) = end?;
        if !succeeds {
            return Err(format!("rank {rank}: {text}"));
        }
    }
    Ok(())
}
