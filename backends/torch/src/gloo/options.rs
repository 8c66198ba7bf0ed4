//! How the processes of a group find each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polygrad_core::{Error, Result};

use super::launcher::{Place, Said};

/// The rank of this process, and how it finds the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlooOptions {
    /// The rank of this process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// The host of the store through which they find each other.
    pub host: String,
    /// The store's port.
    pub port: u16,
    /// Whether rank 0 serves the store. If not, another process does, such as torchrun.
    pub serve: bool,
    /// The group's name: the same on every rank, and not used before in its store.
    pub group: String,
    /// The network interface, such as `eth0`. Default: the one to which the host's name resolves, or else the loopback.
    pub interface: Option<String>,
    /// The time limit of a collective, and of joining the group.
    pub timeout: Duration,
}

impl GlooOptions {
    /// The options from the launcher's environment variables: torchrun's `RANK`, `WORLD_SIZE`, `MASTER_ADDR`,
    /// `MASTER_PORT`, `TORCHELASTIC_USE_AGENT_STORE` and `TORCHELASTIC_RESTART_COUNT`; Open MPI's `mpirun`, Slurm's
    /// `srun` and Kubeflow's TrainJob use names of their own, in addition to which `MASTER_ADDR` and `MASTER_PORT` may
    /// be set. `GLOO_SOCKET_IFNAME` sets the interface, as in PyTorch.
    ///
    /// The first group of a process joins the first groups of the others, and so on.
    ///
    /// # Errors
    /// A missing or invalid variable.
    pub fn from_env(timeout: Duration) -> Result<Self> {
        static GROUPS: AtomicUsize = AtomicUsize::new(0);
        let options = Self::from_variables(|name| std::env::var(name).ok(), timeout)?;
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        let group = format!("{}/group_{number}", options.group);
        Ok(Self { group, ..options })
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>, timeout: Duration) -> Result<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let missing = |name: &str| {
            Error::invalid(format!("the variable {name} is not set")).with_hint(
                "start the processes with `torchrun --no-python --nproc-per-node 2 PROGRAM` or `srun -n 2 PROGRAM`, or \
                 give each of them RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
            )
        };
        let place = Place::find(variable)?;
        let place = place.ok_or_else(|| {
            missing(if variable("RANK").is_some() {
                "WORLD_SIZE"
            } else {
                "RANK"
            })
        })?;
        let agent = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let attempt = variable("TORCHELASTIC_RESTART_COUNT").unwrap_or_else(|| "0".to_owned());
        Ok(Self {
            rank: number(&place.rank)?,
            size: number(&place.size)?,
            host: place.host.ok_or_else(|| missing("MASTER_ADDR"))?,
            port: number(&place.port.ok_or_else(|| missing("MASTER_PORT"))?)?,
            serve: !agent,
            group: format!("polygrad/attempt_{attempt}"),
            interface: variable("GLOO_SOCKET_IFNAME"),
            timeout,
        })
    }

    /// # Errors
    /// An invalid rank.
    pub(super) fn check(&self) -> Result<()> {
        match self.rank < self.size {
            true => Ok(()),
            false => {
                let message = format!("there is no rank {} among {}", self.rank, self.size);
                Err(Error::invalid(message).with_hint("ranks are numbered from 0"))
            }
        }
    }
}

fn number<T: std::str::FromStr>((name, value): &Said) -> Result<T> {
    value
        .parse()
        .map_err(|_| Error::invalid(format!("the variable {name} is {value:?}, which is not what it can be")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changes: &[(&str, &str)]) -> Result<GlooOptions> {
        let mut all = vec![
            ("RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "host"),
            ("MASTER_PORT", "29500"),
        ];
        all.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        all.extend(changes);
        let variable = |name: &str| {
            let found = all.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        };
        GlooOptions::from_variables(variable, Duration::from_secs(1))
    }

    #[test]
    fn the_variables_are_torchruns() {
        let plain = read(&[]).unwrap();
        assert_eq!((plain.rank, plain.size, plain.port), (1, 2, 29500));
        assert!(plain.serve);
        let elastic = read(&[
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", "3"),
            ("GLOO_SOCKET_IFNAME", "eth0"),
        ]);
        let elastic = elastic.unwrap();
        assert!(!elastic.serve);
        assert_eq!(elastic.group, "polygrad/attempt_3");
        assert_eq!(elastic.interface.as_deref(), Some("eth0"));
    }

    #[test]
    fn what_is_missing_is_named() {
        for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
            let error = read(&[(name, "")]).unwrap_err();
            assert_eq!(error.message(), format!("the variable {name} is not set"));
            assert!(error.hint().unwrap().contains("torchrun --no-python"));
        }
        let error = read(&[("RANK", "-1")]).unwrap_err().to_string();
        assert!(error.contains("RANK is \"-1\""), "{error}");
        let of_slurm = [("RANK", ""), ("SLURM_PROCID", "x"), ("SLURM_STEP_NUM_TASKS", "2")];
        let error = read(&of_slurm).unwrap_err().to_string();
        assert!(error.contains("SLURM_PROCID is \"x\""), "{error}");
        let error = read(&[("RANK", "2")]).unwrap().check().unwrap_err().to_string();
        assert!(error.contains("no rank 2 among 2"), "{error}");
    }
}
