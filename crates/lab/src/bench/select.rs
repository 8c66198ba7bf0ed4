//! From names on the command line to what is measured.

use polygrad_console::failure::{Failure, Result};
use polygrad_workloads::{Case, cases, select, workloads};

use super::memory;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The time of a case.
    Timed(Case),
    /// The memory of the case of this name.
    Memory(&'static str),
}

/// The measurements for these names; everything if there are no names.
///
/// # Errors
/// An unknown name; the error lists the known ones.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<Chosen>> {
    if names.is_empty() {
        let timed = cases().into_iter().map(Chosen::Timed);
        return Ok(timed.chain(memory::CASES.map(Chosen::Memory)).collect());
    }
    let mut chosen = Vec::new();
    for name in names {
        match name.split_once('/').unwrap_or((name, "")) {
            ("memory", case) => chosen.extend(of_memory(case)?),
            ("build", _) => {
                return Err(
                    Failure::new("build is the time that cargo takes, which this program cannot measure")
                        .fix("run `cargo xtask bench build` in a checkout of Polygrad"),
                );
            }
            ("ppo", _) => {
                return Err(
                    Failure::new("ppo is not there yet: Polygrad has no reinforcement learning")
                        .fix("mlp-act and mlp-rl are its two halves: acting, and training"),
                );
            }
            (workload, _) if !workloads().contains(&workload) => {
                return Err(Failure::new(format!("no workload is called {workload:?}"))
                    .fix(format!("choose among {}, memory", workloads().join(", "))));
            }
            _ => chosen.extend(select(name)?.into_iter().map(Chosen::Timed)),
        }
    }
    Ok(chosen)
}

/// The case of this name. `what`, for the error, needs a single case.
///
/// # Errors
/// A name that is unknown or matches several cases.
pub(crate) fn one(name: &str, what: &str) -> Result<Case> {
    let several = match chosen(&[name.to_owned()])?[..] {
        [Chosen::Timed(case)] => return Ok(case),
        ref several => several.to_vec(),
    };
    let timed = several.iter().filter_map(|chosen| match chosen {
        Chosen::Timed(case) => Some(case.name().replace(' ', "/")),
        Chosen::Memory(_) => None,
    });
    let names: Vec<String> = timed.collect();
    if names.is_empty() {
        return Err(Failure::new(format!("{name} measures memory, and {what} time"))
            .fix("name the workload itself, such as gpt"));
    }
    Err(
        Failure::new(format!("{name} is {} cases, and {what} is of one", names.len()))
            .fix(format!("choose among {}", names.join(", "))),
    )
}

fn of_memory(case: &str) -> Result<Vec<Chosen>> {
    let means = |known: &&str| case.is_empty() || case == *known;
    let chosen: Vec<Chosen> = memory::CASES.into_iter().filter(means).map(Chosen::Memory).collect();
    match chosen.is_empty() {
        false => Ok(chosen),
        true => Err(Failure::new(format!("memory has no case {case:?}"))
            .fix(format!("choose among memory/{}", memory::CASES.join(", memory/")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_and_wrong_ones_say_what_there_is() {
        let count =
            |names: &[&str]| chosen(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).map(|c| c.len());
        assert_eq!(count(&[]), Ok(cases().len() + 2));
        assert_eq!(count(&["memory", "mlp-rl", "memory/gpt"]), Ok(5));
        for (name, words) in [
            ("mlp", "mlp-rl"),
            ("mlp-rl/x", "mlp-rl/adam"),
            ("memory/cnn", "memory/resnet"),
            ("build", "cargo xtask bench build"),
            ("ppo", "mlp-act"),
        ] {
            let error = count(&[name]).unwrap_err().to_string();
            assert!(error.contains("fix: ") && error.contains(words), "{error}");
        }
    }
}
