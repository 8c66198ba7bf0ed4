//! Predicts house prices from a CSV file, and stops when validation no longer improves. The target is the logarithm of
//! the price, whose mean absolute error is approximately the relative error of the price if it is small: `cargo run
//! --release --example tabular [FILE]`.

use polygrad::data::{DataLoader, DataLoaderConfig, Dataset, Table, TableEncoder, random_split};
use polygrad::nn::{Dropout, Linear, loss::mse_loss};
use polygrad::optim::AdamW;
use polygrad::prelude::*;
use polygrad::train::{Callback, Control, Ended, Event, MeanAbsoluteError, Metric, Progress, Step, TrainerConfig};

const BATCH: usize = 64;
const PATIENCE: u64 = 20;

#[derive(Module)]
#[module(forward)]
struct Net {
    input: Linear,
    hidden: Linear,
    output: Linear,
    dropout: Dropout,
}

impl Net {
    fn new(features: usize, device: &Device) -> Result<Self> {
        Ok(Self {
            input: Linear::new(features, 64, device)?,
            hidden: Linear::new(64, 64, device)?,
            output: Linear::new(64, 1, device)?,
            dropout: Dropout::new(0.05)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.input.forward(x)?.relu()?;
        let x = self.dropout.forward(&self.hidden.forward(&x)?.relu()?)?;
        self.output.forward(&x)
    }
}

/// Prints a line every twenty epochs.
fn report() -> impl Callback {
    |event: Event<'_>, progress: &Progress<'_>| {
        if let Event::Epoch(Some(row)) = event
            && progress.epoch.is_multiple_of(20)
        {
            println!(
                "epoch {:3}  validation {}",
                progress.epoch,
                progress.figures(row.loss, &row.metrics)
            );
        }
        Ok(Control::Continue)
    }
}

/// Loss and metric of a batch, for any model.
fn step<M: Forward>(model: &M, (x, log_price): &(Tensor, Tensor)) -> Result<Step> {
    let predicted = model.forward(x)?;
    Ok(Step::new(mse_loss(&predicted, log_price)?).outputs(predicted, log_price))
}

fn main() -> Result<()> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/houses/houses.csv");
    let table = Table::read_csv(std::env::args().nth(1).unwrap_or_else(|| default.into()))?;
    let device = Device::new("cpu")?;
    polygrad::manual_seed(0);

    // 70 % of the rows for training, 15 % for validation, 15 % for testing.
    let count = table.rows();
    let (train, validation) = (count * 70 / 100, count * 15 / 100);
    let rows: Vec<usize> = (0..count).collect();
    let parts = random_split(rows, [train, validation, count - train - validation], 0)?;
    let [train, validation, test] = parts.map(|part| table.select(part.indices()));

    // Numbers get mean 0 and standard deviation 1, and words become columns, according to the training rows only. The
    // last column is the price.
    let names: Vec<&str> = table.names().iter().map(String::as_str).collect();
    let (&price, inputs) = names
        .split_last()
        .ok_or_else(|| Error::invalid("the table has no columns"))?;
    let train = train?;
    let encoder = TableEncoder::fit(&train, inputs)?;
    let centre = train.numbers(price)?.iter().map(|price| price.ln()).sum::<f64>() / train.rows() as f64;
    let load = |table: &Table| -> Result<DataLoader<(Tensor, Tensor)>> {
        let prices: Vec<[f32; 1]> = table
            .numbers(price)?
            .iter()
            .map(|price| [(price.ln() - centre) as f32])
            .collect();
        DataLoaderConfig::new(encoder.encode(table)?.zip(prices)?)
            .batch_size(BATCH)
            .shuffle(0)
            .build(&device)
    };
    let (train, validation, test) = (load(&train)?, load(&validation?)?, load(&test?)?);

    let net = Net::new(encoder.width(), &device)?;
    let optimizer = AdamW::new(net.parameters(), 2e-3)?;
    let options = TrainerConfig::epochs(500)
        .metric(MeanAbsoluteError::new())
        .monitor("mae");
    let mut trainer = options
        .early_stopping(PATIENCE)
        .restore_best(true)
        .callback(report())
        .build(net, optimizer, step)?;
    let summary = trainer.fit(&train, Some(&validation))?;
    if let (Ended::EarlyStopping, Some(best)) = (summary.ended, summary.best) {
        let (epochs, best) = (summary.epochs, 100.0 * best);
        println!("stopped at epoch {epochs}: nothing better than {best:.2} % for {PATIENCE} epochs");
    }

    // Two baselines: the mean price, and a linear model of the same inputs.
    let linear = Linear::new(encoder.width(), 1, &device)?;
    let optimizer = AdamW::new(linear.parameters(), 2e-2)?;
    let mut baseline = TrainerConfig::epochs(80)
        .metric(MeanAbsoluteError::new())
        .build(linear, optimizer, step)?;
    baseline.fit(&train, None)?;
    let mut mean = MeanAbsoluteError::new();
    for batch in &test {
        let (_, log_price) = batch?;
        // The prices are centred, so 0 is their mean.
        mean.update(&log_price.zeros_like()?, &log_price)?;
    }
    println!("test error, of the mean price   {:5.2} %", 100.0 * mean.value());
    println!(
        "test error, of a linear model   {:5.2} %",
        100.0 * baseline.evaluate(&test)?.1[0]
    );
    println!(
        "test error, of the network      {:5.2} %",
        100.0 * trainer.evaluate(&test)?.1[0]
    );
    Ok(())
}
