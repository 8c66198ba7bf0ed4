//! `memory`: the memory of a card that is in use while a program trains on it.

use std::process::Command;

use crate::trainer::Trainer;

const CASES: [&str; 2] = ["resnet", "gpt"];
/// After this number of steps, the memory cached for reuse has its final size.
const STEPS: usize = 20;

/// Prints how much the first card's memory use grows while Polygrad trains, and then each named peer. No other program
/// may use the card.
///
/// # Errors
/// If nvidia-smi is missing, or Polygrad does not train. Failures of peers are printed.
pub(crate) fn command(peers: &[&str]) -> Result<(), String> {
    println!(
        "MiB of the card in use during step {STEPS}, less those before the program started, its kernels and libraries included"
    );
    for case in CASES {
        println!("{case:<8} {:>8}  polygrad", grown(case, || Trainer::ours("cuda"))?.1);
        for names in peers {
            for name in names.split(',') {
                match grown(case, || Trainer::peer(name)) {
                    Ok((name, grown)) => println!("{case:<8} {grown:>8}  {name}"),
                    Err(reason) => println!("{case:<8}   failed  {name}: {reason}"),
                }
            }
        }
    }
    Ok(())
}

fn grown(case: &str, start: impl FnOnce() -> Result<Trainer, String>) -> Result<(String, i64), String> {
    let before = used()?;
    let mut trainer = start()?;
    trainer.losses(case, STEPS)?;
    Ok((trainer.name.clone(), used()? - before))
}

/// MiB in use on the first card.
fn used() -> Result<i64, String> {
    let output = Command::new("nvidia-smi")
        .args(["--query-gpu=memory.used", "--format=csv,noheader,nounits"])
        .output();
    let output = output.map_err(|error| format!("nvidia-smi cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.lines().next().and_then(|line| line.trim().parse().ok());
    number.ok_or_else(|| format!("nvidia-smi says {text:?} of the memory in use"))
}
