//! Writes one summary of each kind, and a run for MLflow, for scripts/read_summaries.py, which reads them with
//! TensorBoard and MLflow themselves: `cargo run -p polygrad-train --example summaries -- FOLDER`.

use std::path::PathBuf;

use polygrad_core::{Error, Result};
use polygrad_data::{DataLoaderConfig, Image};
use polygrad_nn::{Linear, Module, loss::mse_loss, optim::SGD};
use polygrad_tensor::{Device, Tensor};
use polygrad_train::{MeanAbsoluteError, MlflowLogger, Step, SummaryWriter, TrainerConfig};

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or_else(|| Error::invalid("give a folder"))?;
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder).map_err(|e| Error::io("create the folder", &folder, e))?;
    let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    let mut writer = SummaryWriter::create(folder.join("events.out.tfevents.1"))?;
    let hparams = [("lr", 0.25.into()), ("model", "cnn".into()), ("mirror", true.into())];
    writer.add_hparams(&hparams, &["loss/test"])?;
    for step in [1, 200, 1 << 40] {
        writer.add_scalars(&[("loss/test", 0.5), ("accuracy/test", 0.75)], step)?;
    }
    writer.add_histogram("weights", &Tensor::arange(0.0, 60.0, 1.0, &device)?, 2)?;
    writer.add_image("picture", &Image::new(3, 2, 4, (0..24).collect())?.to_png()?, 2)?;

    let numbers: Vec<([f32; 1], [f32; 1])> = (0..40).map(|i| ([i as f32 / 40.0], [i as f32 / 20.0])).collect();
    let loader = DataLoaderConfig::new(numbers).batch_size(4).build(&device)?;
    let model = Linear::new(1, 1, &device)?;
    let optimizer = SGD::new(model.parameters(), 0.1)?;
    let logger = MlflowLogger::open(folder.join("mlruns"), "lines: \"straight\"", "first")?.param("lr", 0.1)?;
    let config = TrainerConfig::epochs(3)
        .metric(MeanAbsoluteError::new())
        .callback(logger);
    let mut trainer = config.build(model, optimizer, |model: &Linear, (x, y): &(Tensor, Tensor)| {
        let predicted = model.forward(x)?;
        Ok(Step::new(mse_loss(&predicted, y)?).outputs(predicted, y))
    })?;
    trainer.fit(&loader, Some(&loader)).map(drop)
}
