//! Reads the environment variables of other launchers, under the names of torchrun.

use polygrad_core::{Error, Result};

/// The default port if no launcher gives one, which is PyTorch's.
const PORT: u16 = 29_500;
/// The first port for steps of Slurm, and the number of ports that they are spread over.
const SLURM_PORTS: (u64, u64) = (20_000, 20_000);

/// A variable's name and value.
pub(super) type Said = (&'static str, String);

/// The rank of this process, and the address of the others.
pub(super) struct Place {
    pub(super) rank: Said,
    pub(super) size: Said,
    pub(super) host: Option<String>,
    pub(super) port: Option<Said>,
}

impl Place {
    /// Reads the variables of torchrun, `mpirun` of Open MPI, `srun` of Slurm or a TrainJob of Kubeflow, in this order,
    /// since the earlier ones can be started within the later ones. `MASTER_ADDR` and `MASTER_PORT` override all of
    /// them. `None` without any of them.
    ///
    /// # Errors
    /// If a TrainJob asks for several processes on a node, since nothing would start them.
    pub(super) fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let Some(place) = Self::of_launcher(&variable)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            host: variable("MASTER_ADDR").or(place.host),
            port: said(&variable, "MASTER_PORT").or(place.port),
            ..place
        }))
    }

    fn of_launcher(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let pair = |rank, size| Some((said(&variable, rank)?, said(&variable, size)?));
        if let Some((rank, size)) = pair("RANK", "WORLD_SIZE") {
            let (host, port) = (None, None);
            return Ok(Some(Self { rank, size, host, port }));
        }
        if let Some((rank, size)) = pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") {
            let is_local = variable("OMPI_COMM_WORLD_LOCAL_SIZE").as_ref() == Some(&size.1);
            let host = is_local.then(|| "127.0.0.1".to_owned());
            let port = Some(("MASTER_PORT", PORT.to_string()));
            return Ok(Some(Self { rank, size, host, port }));
        }
        // A batch script has a rank, too, but is not a step of several tasks.
        if let Some((rank, size)) = pair("SLURM_PROCID", "SLURM_STEP_NUM_TASKS") {
            let host = variable("SLURM_STEP_NODELIST").map(|nodes| first_node(&nodes));
            let number = |name| variable(name).and_then(|text| text.parse::<u64>().ok());
            let (first, count) = SLURM_PORTS;
            // Steps of a job get ports far apart.
            let step = number("SLURM_STEP_ID").unwrap_or(0).wrapping_mul(1009);
            let port = number("SLURM_JOB_ID").map(|job| first + job.wrapping_add(step) % count);
            let port = port.map(|port| ("MASTER_PORT", port.to_string()));
            return Ok(Some(Self { rank, size, host, port }));
        }
        let Some((rank, size)) = pair("PET_NODE_RANK", "PET_NNODES") else {
            return Ok(None);
        };
        let many = variable("PET_NPROC_PER_NODE").filter(|count| count.parse().is_ok_and(|count: u32| count > 1));
        if let Some(many) = many {
            let message = format!("PET_NPROC_PER_NODE is {many}, and this is the only process of its node");
            let hint = "set numProcPerNode: 1 in the TrainJob, or start the processes by torchrun";
            return Err(Error::invalid(message).with_hint(hint));
        }
        let (host, port) = (variable("PET_MASTER_ADDR"), said(&variable, "PET_MASTER_PORT"));
        Ok(Some(Self { rank, size, host, port }))
    }
}

fn said(variable: impl Fn(&str) -> Option<String>, name: &'static str) -> Option<Said> {
    Some((name, variable(name)?))
}

/// The first node of a list in Slurm's format, such as `node[01-04,07],login`.
fn first_node(nodes: &str) -> String {
    let (mut first, mut rest) = (String::new(), nodes);
    while let Some(at) = rest.find(['[', ',']) {
        first.push_str(&rest[..at]);
        if rest[at..].starts_with(',') {
            return first;
        }
        let (numbers, behind) = rest[at + 1..].split_once(']').unwrap_or((&rest[at + 1..], ""));
        first.push_str(numbers.split(['-', ',']).next().unwrap_or_default());
        rest = behind;
    }
    first + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(known: &[(&str, &str)]) -> Result<Option<[String; 4]>> {
        let variable = |name: &str| Some(known.iter().find(|(known, _)| *known == name)?.1.to_owned());
        let place = Place::find(variable)?;
        let text = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        Ok(place.map(|place| {
            let port = place.port.map(|(_, port)| port);
            [place.rank.1, place.size.1, text(place.host), text(port)]
        }))
    }

    /// The variables of a step in Debian's Slurm 22.05, except those that are not read.
    const SLURM: [(&str, &str); 6] = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NODELIST", "node[07-08]"),
        ("SLURM_JOB_ID", "41234"),
        ("SLURM_STEP_ID", "0"),
    ];
    const OPEN_MPI: [(&str, &str); 3] = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ];
    const TRAIN_JOB: [(&str, &str); 5] = [
        ("PET_NODE_RANK", "1"),
        ("PET_NNODES", "2"),
        ("PET_NPROC_PER_NODE", "1"),
        ("PET_MASTER_ADDR", "job-node-0-0.job"),
        ("PET_MASTER_PORT", "29400"),
    ];

    #[test]
    fn every_launcher_is_understood() {
        let found = |known: &[(&str, &str)]| find(known).unwrap().unwrap();
        assert_eq!(found(&SLURM), ["3", "4", "node07", "21234"]);
        assert_eq!(found(&OPEN_MPI), ["1", "2", "127.0.0.1", "29500"]);
        assert_eq!(found(&TRAIN_JOB), ["1", "2", "job-node-0-0.job", "29400"]);
        // mpirun within a Slurm step, and torchrun within both.
        assert_eq!(
            found(&[&SLURM[..], &OPEN_MPI].concat()),
            ["1", "2", "127.0.0.1", "29500"]
        );
        let torchrun = [
            ("RANK", "0"),
            ("WORLD_SIZE", "8"),
            ("MASTER_ADDR", "a"),
            ("MASTER_PORT", "1"),
        ];
        assert_eq!(
            found(&[&SLURM[..], &OPEN_MPI, &torchrun].concat()),
            ["0", "8", "a", "1"]
        );
        assert_eq!(found(&[&SLURM[..], &torchrun[2..]].concat()), ["3", "4", "a", "1"]);
        // On several machines, mpirun does not tell which is the first.
        let apart = [OPEN_MPI[0], OPEN_MPI[1], ("OMPI_COMM_WORLD_LOCAL_SIZE", "1")];
        assert_eq!(found(&apart), ["1", "2", "none", "29500"]);
        // A batch script is not a step.
        assert_eq!(find(&SLURM[..2]).unwrap(), None);
        assert_eq!(find(&[]).unwrap(), None);
    }

    #[test]
    fn a_train_job_of_several_processes_is_told() {
        let many = TRAIN_JOB.map(|(name, value)| (name, if name == "PET_NPROC_PER_NODE" { "2" } else { value }));
        let error = find(&many).unwrap_err();
        assert!(error.message().contains("PET_NPROC_PER_NODE is 2") && error.hint().is_some());
    }

    #[test]
    fn lists_of_nodes_are_read() {
        for (nodes, first) in [
            ("vm", "vm"),
            ("a,b", "a"),
            ("node[01-04,07],login", "node01"),
            ("r[2,5]n[3-4]-x,b", "r2n3-x"),
            ("a[", "a"),
            ("", ""),
        ] {
            assert_eq!(first_node(nodes), first, "{nodes}");
        }
    }
}
