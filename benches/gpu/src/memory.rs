//! `memory`: what a card has in use while a program trains on it.

use std::process::Command;

use crate::trainer::Trainer;

const CASES: [&str; 2] = ["resnet", "gpt"];
/// After so many steps, memory that is kept for reuse has its size.
const STEPS: usize = 20;

/// Prints by how much the first card's memory grows while Polygrad trains, and then each peer that is named. Nobody
/// else may use the card.
///
/// # Errors
/// Without nvidia-smi, and when Polygrad does not train. What a peer cannot do is printed.
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

/// MiB of the first card.
fn used() -> Result<i64, String> {
    let output = Command::new("nvidia-smi")
        .args(["--query-gpu=memory.used", "--format=csv,noheader,nounits"])
        .output();
    let output = output.map_err(|error| format!("nvidia-smi cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.lines().next().and_then(|line| line.trim().parse().ok());
    number.ok_or_else(|| format!("nvidia-smi says {text:?} of the memory in use"))
}
