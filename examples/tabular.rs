//! Predicts house prices from a CSV file, and stops when validation no longer improves:
//! `cargo run --release --example tabular [FILE]`.

use std::collections::BTreeSet;

use polygrad::nn::{Dropout, Linear, loss::mse_loss};
use polygrad::optim::AdamW;
use polygrad::prelude::*;

const BATCH: usize = 64;
const PATIENCE: usize = 20;

#[derive(Module)]
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

/// Rows of numbers, the last of which is the price; a column of text becomes a column of zeros and ones for each word.
fn read_csv(path: &str) -> std::io::Result<Vec<Vec<f32>>> {
    let text = std::fs::read_to_string(path)?;
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let mut table = vec![Vec::new(); rows.len()];
    for column in 0..rows[0].len() {
        let words: BTreeSet<&str> = rows
            .iter()
            .map(|row| row[column])
            .filter(|word| word.parse::<f32>().is_err())
            .collect();
        for (values, row) in table.iter_mut().zip(&rows) {
            match row[column].parse() {
                Ok(number) if words.is_empty() => values.push(number),
                _ => values.extend(words.iter().map(|&word| f32::from(word == row[column]))),
            }
        }
    }
    Ok(table)
}

/// The mean relative error of predicted prices, where both are logarithms.
fn relative_error(predicted: &Tensor, log_price: &Tensor) -> Result<f64> {
    (predicted - log_price)?.exp()?.sub(1.0)?.abs()?.mean_all()?.item()
}

fn main() -> Result<()> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/houses/houses.csv");
    let path = std::env::args().nth(1).unwrap_or_else(|| default.into());
    let rows = read_csv(&path).map_err(|e| Error::io("read", path.as_ref(), e))?;
    let device = Device::new("cpu")?;
    polygrad::manual_seed(0);

    // One tensor for the table, shuffled: 70 % to train on, 15 % to validate, 15 % to test.
    let (count, features) = (rows.len(), rows[0].len() - 1);
    let table = Tensor::from_vec(rows.concat(), [count, features + 1], &device)?;
    let table = table.index_select(0, &Tensor::randperm(count, &device)?)?;
    let (x, log_price) = (table.narrow(1, 0, features)?, table.narrow(1, features, 1)?.log()?);
    let parts = [
        count * 70 / 100,
        count * 15 / 100,
        count - count * 70 / 100 - count * 15 / 100,
    ];
    let (x, y) = (x.split_with_sizes(&parts, 0)?, log_price.split_with_sizes(&parts, 0)?);

    // Mean 0 and standard deviation 1, by the training rows alone.
    let mean = x[0].mean_keepdim(0)?;
    let std = x[0].sub(&mean)?.square()?.mean_keepdim(0)?.sqrt()?;
    let x: Vec<Tensor> = x.iter().map(|x| (x - &mean)? / &std).collect::<Result<_>>()?;
    let centre = y[0].mean_all()?;

    let net = Net::new(features, &device)?;
    let mut optimizer = AdamW::new(net.parameters(), 2e-3)?;
    let (mut best, mut best_state, mut since_best) = (f64::INFINITY, net.state_dict()?, 0);
    for epoch in 1..=500 {
        net.train();
        let order = Tensor::randperm(parts[0], &device)?;
        for rows in order.split(BATCH, 0)? {
            let target = y[0].index_select(0, &rows)?.sub(&centre)?;
            let loss = mse_loss(&net.forward(&x[0].index_select(0, &rows)?)?, &target)?;
            optimizer.backward_step(loss)?;
        }
        net.eval();
        let validation = no_grad(|| relative_error(&net.forward(&x[1])?.add(&centre)?, &y[1]))?;
        if validation < best {
            (best, best_state, since_best) = (validation, net.state_dict()?, 0);
        } else {
            since_best += 1;
        }
        if epoch % 20 == 0 {
            println!("epoch {epoch:3}  validation error {:5.2} %", 100.0 * validation);
        }
        if since_best == PATIENCE {
            println!(
                "stopped at epoch {epoch}: nothing better than {:.2} % for {PATIENCE} epochs",
                100.0 * best
            );
            break;
        }
    }
    net.load_state_dict(&best_state, true)?;

    // Two baselines: the mean price, and a linear model of the same inputs.
    let linear = Linear::new(features, 1, &device)?;
    let mut optimizer = AdamW::new(linear.parameters(), 2e-2)?;
    for _ in 0..1000 {
        optimizer.backward_step(mse_loss(&linear.forward(&x[0])?, &y[0].sub(&centre)?)?)?;
    }
    println!(
        "test error, of the mean price   {:5.2} %",
        100.0 * relative_error(&centre, &y[2])?
    );
    let predicted = linear.forward(&x[2])?.add(&centre)?;
    println!(
        "test error, of a linear model   {:5.2} %",
        100.0 * relative_error(&predicted, &y[2])?
    );
    let predicted = no_grad(|| net.forward(&x[2]))?.add(&centre)?;
    println!(
        "test error, of the network      {:5.2} %",
        100.0 * relative_error(&predicted, &y[2])?
    );
    Ok(())
}
