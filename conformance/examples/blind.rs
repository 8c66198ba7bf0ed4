//! How the suite judges zeros in the place of every recorded output and gradient: the table in `docs/conformance.md`,
//! and what is behind it.
//!
//! ```sh
//! cargo run --release -p polygrad-conformance --example blind
//! ```

fn main() -> polygrad_tensor::Result<()> {
    let found = polygrad_conformance::blind()?;
    for blind in &found {
        println!("{blind}");
    }
    for blind in &found {
        for key in &blind.pass {
            println!("{}: zeros pass for {key}", blind.dtype);
        }
        for (key, why) in &blind.not_carried {
            println!("{}: {key}: {why}", blind.dtype);
        }
    }
    Ok(())
}
