//! Forecasts the next day of an hourly series with an LSTM, writes the model as ONNX, and runs the file:
//! `cargo run --release --features onnx --example forecast [EPOCHS]`.

use std::f64::consts::TAU;

use polygrad::nn::{LSTM, LSTMConfig, Linear, loss::mse_loss};
use polygrad::onnx::{Export, ExportOnnx, Input, OnnxModel};
use polygrad::optim::{Adam, OneCycleLR, Schedule};
use polygrad::prelude::*;

const PAST: usize = 72;
const DAY: usize = 24;

#[derive(Module)]
struct Forecaster {
    lstm: LSTM,
    head: Linear,
}

impl Forecaster {
    /// Maps `[batch, hours, 2]` to the next day's values `[batch, 24]`, as changes from the last day's.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (_, (hidden, _)) = self.lstm.forward(x, None)?;
        let last_day = x.i((.., -24.., 0))?;
        self.head.forward(&hidden.i(-1)?)? + last_day
    }
}

fn is_weekend(hour: usize) -> bool {
    hour / DAY % 7 >= 5
}

/// The hourly load of a power grid: days, weekends, drifting weather, and noise.
fn series(hours: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1_u64 << 24) as f64 - 0.5
    };
    let mut weather = 0.0;
    (0..hours)
        .map(|hour| {
            weather = 0.99 * weather + 0.2 * noise();
            let time = hour as f64 / DAY as f64;
            let business = if is_weekend(hour) { 0.5 } else { 1.0 };
            let day = business * ((TAU * (time - 0.3)).sin() + 0.5 * (2.0 * TAU * (time - 0.1)).sin());
            (day + weather + 0.1 * noise()) as f32
        })
        .collect()
}

/// Every third window that begins in a range of hours: the past `[n, 72, 2]` and the following day `[n, 24]`. The past
/// consists of each hour's load, and whether the same hour of the next day is on a weekend.
fn windows(series: &[f32], hours: std::ops::Range<usize>, device: &Device) -> Result<(Tensor, Tensor)> {
    let count = hours.len().div_ceil(3);
    let (mut past, mut next) = (Vec::new(), Vec::new());
    for start in hours.step_by(3) {
        past.extend((start..start + PAST).flat_map(|hour| [series[hour], f32::from(is_weekend(hour + DAY))]));
        next.extend_from_slice(&series[start + PAST..start + PAST + DAY]);
    }
    Ok((
        Tensor::from_vec(past, [count, PAST, 2], device)?,
        Tensor::from_vec(next, [count, DAY], device)?,
    ))
}

fn main() -> Result<()> {
    let epochs: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(12);
    let device = Device::new("cpu")?;
    polygrad::manual_seed(0);
    // 300 days for training, the 60 days after them for testing.
    let series = series(365 * DAY);
    let (x, y) = windows(&series, 0..300 * DAY - PAST - DAY, &device)?;
    let (test_x, test_y) = windows(&series, 300 * DAY..360 * DAY, &device)?;

    let model = Forecaster {
        lstm: LSTMConfig::new(2, 64).batch_first(true).build(&device)?,
        head: Linear::new(64, DAY, &device)?,
    };
    let mut optimizer = Adam::new(model.parameters(), 1e-2)?;
    let batches = x.dims()[0].div_ceil(64) as u64;
    let schedule = OneCycleLR::new(epochs * batches);
    let mut step = 0;
    for epoch in 1..=epochs {
        let mut total = 0.0;
        for rows in Tensor::randperm(x.dims()[0], &device)?.split(64, 0)? {
            schedule.apply(&mut optimizer, step)?;
            let loss = mse_loss(&model.forward(&x.index_select(0, &rows)?)?, &y.index_select(0, &rows)?)?;
            total += optimizer.backward_step(loss)?;
            step += 1;
        }
        println!("epoch {epoch}  training error {:.4}", total / batches as f64);
    }

    let forecast = no_grad(|| model.forward(&test_x))?;
    let yesterday = test_x.i((.., -24.., 0))?;
    let last_hour = test_x.i((.., -1.., 0))?.expand(test_y.shape())?;
    println!(
        "test error, as the last hour:      {:.4}",
        mse_loss(&last_hour, &test_y)?.item()?
    );
    println!(
        "test error, as the day before:     {:.4}",
        mse_loss(&yesterday, &test_y)?.item()?
    );
    println!(
        "test error, of the forecast:       {:.4}",
        mse_loss(&forecast, &test_y)?.item()?
    );

    // The length of the past and the number of series are variable in the file.
    let path = std::env::temp_dir().join(format!("forecast-{}.onnx", std::process::id()));
    let input = Input::new("past", DType::F32, ("batch", "hours", 2));
    let export = Export::new([input]).outputs(["next_day"]).bound("hours", 24..=1000);
    model.export_onnx(&path, &export, |x| model.forward(&x[0]))?;
    let file = OnnxModel::load(&path, &device)?;
    let again = file.forward(&[test_x])?.named("next_day")?;
    let difference = (again - &forecast)?.abs()?.amax(())?.item()?;
    let bytes = std::fs::metadata(&path).map_err(|e| Error::io("read", &path, e))?.len();
    println!(
        "the ONNX file, {} kB: largest difference from the model {difference:.1e}",
        bytes / 1000
    );
    std::fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
    assert!(difference < 1e-5);
    Ok(())
}
