//! Learns XOR with a small network: `cargo run --release --example xor [DEVICE]`.

use polygrad::nn::{Linear, loss::mse_loss};
use polygrad::optim::Adam;
use polygrad::prelude::*;

#[derive(Module)]
struct Xor {
    hidden: Linear,
    output: Linear,
}

impl Xor {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.hidden.forward(x)?.tanh()?)?.sigmoid()
    }
}

fn main() -> Result<()> {
    let device = Device::new(&std::env::args().nth(1).unwrap_or_else(|| "cpu".into()))?;
    polygrad::manual_seed(0);
    let x = Tensor::new([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &device)?;
    let y = Tensor::new([[0.0], [1.0], [1.0], [0.0]], &device)?;
    let model = Xor {
        hidden: Linear::new(2, 8, &device)?,
        output: Linear::new(8, 1, &device)?,
    };
    let mut optimizer = Adam::new(model.parameters(), 0.05)?;
    for step in 0..=500 {
        let loss = optimizer.backward_step(mse_loss(&model.forward(&x)?, &y)?)?;
        if step % 100 == 0 {
            println!("step {step:3}  loss {loss:.6}");
        }
    }
    println!("{}", no_grad(|| model.forward(&x))?);
    Ok(())
}
