//! Some steps of an MLP 784-128-10 on 64 images of noise.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, linear, loss::cross_entropy, seq};

fn main() -> Result<()> {
    let device = Device::Cpu;
    let vars = VarMap::new();
    let builder = VarBuilder::from_varmap(&vars, DType::F32, &device);
    let model = seq()
        .add(linear(784, 128, builder.pp("fc1"))?)
        .add_fn(|x| x.relu())
        .add(linear(128, 10, builder.pp("fc2"))?);
    let mut optimizer = AdamW::new(vars.all_vars(), ParamsAdamW::default())?;
    let x = Tensor::randn(0f32, 1.0, (64, 784), &device)?;
    let target: Vec<u32> = (0..64).map(|i| i % 10).collect();
    let target = Tensor::from_vec(target, 64, &device)?;
    for step in 0..20 {
        let loss = cross_entropy(&model.forward(&x)?, &target)?;
        optimizer.backward_step(&loss)?;
        println!("{step} {:.4}", loss.to_scalar::<f32>()?);
    }
    Ok(())
}
