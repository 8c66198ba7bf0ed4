//! Fits a line without layers or optimizer, using only gradients: `cargo run --release --example linear_regression
//! [DEVICE]`.

use polygrad::prelude::*;

fn main() -> Result<()> {
    let device = Device::new(&std::env::args().nth(1).unwrap_or_else(|| "cpu".into()))?;
    polygrad::manual_seed(0);
    let x = Tensor::rand([256, 1], &device)?;
    let noise = (Tensor::randn([256, 1], &device)? * 0.05)?;
    let y = x.mul(3.0)?.sub(1.0)?.add(&noise)?;

    let mut slope = Tensor::var("slope", Tensor::zeros([1], &device)?)?;
    let mut offset = Tensor::var("offset", Tensor::zeros([1], &device)?)?;
    for step in 0..=300 {
        let loss = (&x * &slope + &offset - &y)?.square()?.mean_all()?;
        let gradients = loss.backward()?;
        for parameter in [&mut slope, &mut offset] {
            let change = gradients.require(parameter)?.mul(0.5)?;
            parameter.set(&parameter.detach().sub(change)?)?;
        }
        if step % 100 == 0 {
            println!(
                "step {step:3}  loss {:.5}  y = {:.3} x + {:.3}",
                loss.item()?,
                slope.item()?,
                offset.item()?
            );
        }
    }
    println!("wanted:               y = 3.000 x + -1.000");
    Ok(())
}
