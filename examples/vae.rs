//! A variational autoencoder that draws clothes: `cargo run --release --example vae [EPOCHS]`.

#[path = "support/fashion_mnist.rs"]
mod fashion_mnist;

use polygrad::nn::Linear;
use polygrad::nn::loss::{BCEWithLogitsLoss, Reduction};
use polygrad::optim::Adam;
use polygrad::prelude::*;

const PIXELS: usize = 28 * 28;
const LATENT: usize = 16;

#[derive(Module)]
struct Vae {
    encoder: Linear,
    mean: Linear,
    log_variance: Linear,
    decoder: Linear,
    pixels: Linear,
}

impl Vae {
    fn new(device: &Device) -> Result<Self> {
        Ok(Self {
            encoder: Linear::new(PIXELS, 256, device)?,
            mean: Linear::new(256, LATENT, device)?,
            log_variance: Linear::new(256, LATENT, device)?,
            decoder: Linear::new(LATENT, 256, device)?,
            pixels: Linear::new(256, PIXELS, device)?,
        })
    }

    fn encode(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let hidden = self.encoder.forward(x)?.relu()?;
        Ok((self.mean.forward(&hidden)?, self.log_variance.forward(&hidden)?))
    }

    /// Logits of the pixels.
    fn decode(&self, z: &Tensor) -> Result<Tensor> {
        self.pixels.forward(&self.decoder.forward(z)?.relu()?)
    }

    /// The negative evidence lower bound of an image, in nats: reconstruction and divergence.
    fn loss(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let (mean, log_variance) = self.encode(x)?;
        let noise = Tensor::randn(mean.shape(), &mean.device())?;
        let z = (&mean + log_variance.mul(0.5)?.exp()? * noise)?;
        let count = x.dims()[0] as f64;
        let bce = BCEWithLogitsLoss::default().reduction(Reduction::Sum);
        let reconstruction = bce.forward(&self.decode(&z)?, x)?.div(count)?;
        let divergence = (mean.square()? + log_variance.exp()? - log_variance)?
            .sub(1.0)?
            .sum_all()?;
        Ok((reconstruction, divergence.mul(0.5 / count)?))
    }
}

/// Draws images side by side, with one character for two pixels, one above the other.
fn draw(images: &Tensor) -> Result<()> {
    let shades: Vec<char> = " .:-=+*#%@".chars().collect();
    let count = images.dims()[0];
    let images = images.reshape((count, 14, 2, 28))?.mean(2)?.to_vec::<f32>()?;
    for row in 0..14 {
        for image in 0..count {
            let start = (image * 14 + row) * 28;
            let line = images[start..start + 28].iter();
            print!("{}", line.map(|&ink| shades[(ink * 9.99) as usize]).collect::<String>());
        }
        println!();
    }
    Ok(())
}

fn main() -> Result<()> {
    let epochs = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10);
    let device = Device::new("cpu")?;
    polygrad::manual_seed(0);
    let (images, _) = fashion_mnist::load("train", &device)?;
    let (test, _) = fashion_mnist::load("t10k", &device)?;
    let (images, test) = (images.flatten(1, -1)?, test.flatten(1, -1)?);

    // The baseline knows the average brightness of each pixel, but nothing about the image.
    let average = images.mean_keepdim(0)?.clamp(Some(1e-4), Some(1.0 - 1e-4))?;
    let logits = (average.log()? - average.neg()?.add(1.0)?.log()?)?.expand(test.shape())?;
    let bce = BCEWithLogitsLoss::default().reduction(Reduction::Sum);
    let baseline = bce.forward(&logits, &test)?.item()? / test.dims()[0] as f64;
    println!("nats an image, of the average image: {baseline:.1}");

    let vae = Vae::new(&device)?;
    let mut optimizer = Adam::new(vae.parameters(), 1e-3)?;
    for epoch in 1..=epochs {
        for rows in Tensor::randperm(images.dims()[0], &device)?.split(128, 0)? {
            let (reconstruction, divergence) = vae.loss(&images.index_select(0, &rows)?)?;
            optimizer.backward_step((reconstruction + divergence)?)?;
        }
        let (reconstruction, divergence) = no_grad(|| vae.loss(&test))?;
        let (reconstruction, divergence) = (reconstruction.item()?, divergence.item()?);
        println!(
            "epoch {epoch:2}  nats a test image {:.1} = reconstruction {reconstruction:.1} + divergence {divergence:.1}",
            reconstruction + divergence
        );
    }
    println!("test images, what the network makes of them, and what it draws by itself:");
    let shown = test.narrow(0, 0, 3)?;
    no_grad(|| {
        draw(&shown)?;
        draw(&vae.decode(&vae.encode(&shown)?.0)?.sigmoid()?)?;
        draw(&vae.decode(&Tensor::randn([3, LATENT], &device)?)?.sigmoid()?)
    })
}
