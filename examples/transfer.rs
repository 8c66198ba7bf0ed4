//! Learns new classes from a few images, starting with weights trained on other classes: `cargo run --release --example
//! transfer [WEIGHTS]`.
//!
//! WEIGHTS is torchvision's ResNet-18 as safetensors; docs/how-to/images.md has the two lines of Python that write it.
//! Without a file, a smaller ResNet is first trained on six kinds of clothing and saved, and its file is used instead.

#[path = "support/fashion_mnist.rs"]
mod fashion_mnist;

use std::path::{Path, PathBuf};

use polygrad::nn::Linear;
use polygrad::nn::loss::cross_entropy;
use polygrad::nn::models::{ResNet, ResNetConfig};
use polygrad::optim::Adam;
use polygrad::prelude::*;
use polygrad::tensor::{InterpolateMode, Resize};

/// The new classes, learned from few images; pretraining uses those below.
const NEW: std::ops::Range<i64> = 6..10;
const IMAGES_PER_CLASS: usize = 5;

/// Images and their labels.
type Data = (Tensor, Tensor);

/// The images of some classes, at most `most` of each, with labels counted from 0.
fn of_classes((images, labels): &Data, classes: std::ops::Range<i64>, most: usize) -> Result<Data> {
    let all = labels.to_vec::<i64>()?;
    let mut rows = Vec::new();
    for class in classes.clone() {
        let ours = (0_i64..).zip(&all).filter(|(_, label)| **label == class);
        rows.extend(ours.map(|(row, _)| row).take(most));
    }
    let rows = Tensor::new(rows, &images.device())?;
    let labels = labels.index_select(0, &rows)?.sub(classes.start)?;
    Ok((images.index_select(0, &rows)?, labels))
}

/// Grey images in the form that torchvision's weights expect: three channels, larger, and normalised with the mean and
/// deviation of ImageNet.
fn as_imagenet(images: &Tensor) -> Result<Tensor> {
    let device = images.device();
    let mean = Tensor::new([0.485, 0.456, 0.406], &device)?.reshape((1, 3, 1, 1))?;
    let std = Tensor::new([0.229, 0.224, 0.225], &device)?.reshape((1, 3, 1, 1))?;
    let larger = images.interpolate(Resize::Size(&[64, 64]), InterpolateMode::Linear, false)?;
    larger.sub(mean)?.div(std)
}

fn train(model: &ResNet, mut optimizer: Adam, (x, y): &Data, epochs: usize) -> Result<()> {
    for _ in 0..epochs {
        for rows in Tensor::randperm(y.numel(), &x.device())?.split(32, 0)? {
            let loss = cross_entropy(&model.forward(&x.index_select(0, &rows)?)?, &y.index_select(0, &rows)?)?;
            optimizer.backward_step(loss)?;
        }
    }
    Ok(())
}

/// Prints the share of correctly classified images.
fn report(what: &str, model: &ResNet, (x, y): &Data) -> Result<()> {
    model.eval();
    let mut right = 0.0;
    for (x, y) in x.split(100, 0)?.iter().zip(y.split(100, 0)?) {
        right += no_grad(|| model.forward(x))?.argmax(1)?.eq(y)?.sum_all()?.item()?;
    }
    println!("{what:36} {:.1} %", 100.0 * right / y.numel() as f64);
    Ok(())
}

/// Trains a small ResNet on the first six classes and returns the file with its weights.
fn pretrain(config: &ResNetConfig, data: &Data, device: &Device) -> Result<PathBuf> {
    let data = of_classes(data, 0..NEW.start, 300)?;
    let model = ResNet::new(config, device)?;
    train(&model, Adam::new(model.parameters(), 2e-3)?, &data, 3)?;
    report("1,800 images of six other classes:", &model, &data)?;
    let path = std::env::temp_dir().join(format!("pretrained-{}.safetensors", std::process::id()));
    model.save(&path)?;
    Ok(path)
}

/// A network with the weights of a file, and a new last layer.
fn pretrained(config: &ResNetConfig, weights: &Path, device: &Device) -> Result<ResNet> {
    let mut model = ResNet::new(config, device)?;
    model.load(weights)?;
    model.fc = Linear::new(8 * config.width, NEW.count(), device)?;
    Ok(model)
}

fn main() -> Result<()> {
    let device = Device::new("cpu")?;
    polygrad::manual_seed(0);
    let train_images = fashion_mnist::load("train", &device)?;
    let test_images = fashion_mnist::load("t10k", &device)?;
    let file = std::env::args().nth(1).map(PathBuf::from);
    let config = match file {
        Some(_) => ResNetConfig::resnet18(1000),
        None => ResNetConfig {
            width: 8,
            in_channels: 1,
            small_images: true,
            ..ResNetConfig::resnet18(NEW.start as usize)
        },
    };
    let weights = match &file {
        Some(file) => file.clone(),
        None => pretrain(&config, &train_images, &device)?,
    };

    let mut data = of_classes(&train_images, NEW, IMAGES_PER_CLASS)?;
    let mut test = of_classes(&test_images, NEW, 100)?;
    if file.is_some() {
        (data.0, test.0) = (as_imagenet(&data.0)?, as_imagenet(&test.0)?);
    }
    let (few, many) = (data.1.numel(), test.1.numel());
    println!("four new classes, {few} images to learn from, {many} to test");

    // The baseline starts from random weights.
    let mut model = ResNet::new(&config, &device)?;
    model.fc = Linear::new(8 * config.width, NEW.count(), &device)?;
    train(&model, Adam::new(model.parameters(), 1e-3)?, &data, 60)?;
    report("from random weights:", &model, &test)?;

    // First only the new layer: the rest is frozen, and in evaluation mode its running statistics do not change.
    let model = pretrained(&config, &weights, &device)?;
    model.requires_grad(false);
    model.fc.requires_grad(true);
    model.eval();
    train(&model, Adam::new(model.fc.parameters(), 1e-2)?, &data, 20)?;
    report("the last layer of trained weights:", &model, &test)?;

    // Then all layers, with a small learning rate.
    model.requires_grad(true);
    train(&model, Adam::new(model.parameters(), 1e-4)?, &data, 10)?;
    report("and then all layers:", &model, &test)?;

    if file.is_none() {
        std::fs::remove_file(&weights).map_err(|e| Error::io("remove", &weights, e))?;
    }
    Ok(())
}
