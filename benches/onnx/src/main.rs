//! One ONNX file in Polygrad's importer, in ONNX Runtime and in RTen, and the same model in PyTorch, each on one
//! thread, in turn: `cargo run --release -- [--seconds S] [--batch N] [model …]`. `--processor` takes the processor's
//! time, which other programs on the machine change little. `--profile` runs Polygrad's alone, for as long, and says
//! what a run takes. `--int8` times each file beside its quantized twin. `--export FOLDER` writes the files, and does
//! nothing else. `FILE.onnx …` in the place of models times these beside the first, or says with `--profile` where the
//! time goes.

mod clock;
mod engines;
mod files;
mod int8;
mod models;
mod torch;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clock::Clock;
use engines::{Engine, Native, OnnxRuntime, RTen};
use polygrad_core::{Error, Result};
use polygrad_cpu::{Cpu, CpuDevice, Kernels};
use polygrad_tensor::Device;
use torch::Torch;

/// The approximate time of one turn: its first run finds the caches filled by the previous turn.
const TURN: Duration = Duration::from_millis(4);

const BATCHES: [usize; 2] = [1, 64];

struct Arguments {
    seconds: f64,
    clock: Clock,
    profile: bool,
    int8: bool,
    export: Option<PathBuf>,
    batches: Vec<usize>,
    models: Vec<String>,
    files: Vec<PathBuf>,
}

fn arguments() -> Result<Arguments> {
    let mut out = Arguments {
        seconds: 4.0,
        clock: Clock::Wall,
        profile: false,
        int8: false,
        export: None,
        batches: BATCHES.to_vec(),
        models: Vec::new(),
        files: Vec::new(),
    };
    let mut given = std::env::args().skip(1);
    let number = |text: Option<String>| text.and_then(|text| text.parse::<f64>().ok());
    while let Some(word) = given.next() {
        match word.as_str() {
            "--seconds" => {
                out.seconds = number(given.next()).ok_or_else(|| Error::invalid("--seconds takes a number"))?
            }
            "--batch" => {
                let batch = number(given.next()).ok_or_else(|| Error::invalid("--batch takes a number"))?;
                out.batches = vec![batch as usize];
            }
            "--processor" => out.clock = Clock::Processor,
            "--profile" => out.profile = true,
            "--int8" => out.int8 = true,
            "--export" => {
                let folder = given.next().ok_or_else(|| Error::invalid("--export takes a folder"))?;
                out.export = Some(folder.into());
            }
            name if models::NAMES.contains(&name) => out.models.push(word),
            name if name.ends_with(".onnx") => out.files.push(name.into()),
            other => {
                return Err(Error::invalid(format!("there is no model {other:?}"))
                    .with_hint(format!("one of {}", models::NAMES.join(", "))));
            }
        }
    }
    if out.models.is_empty() {
        out.models = models::NAMES.map(str::to_owned).to_vec();
    }
    Ok(out)
}

/// A contestant: returns the time of this number of runs.
type Turn<'a> = Box<dyn FnMut(usize) -> Result<Duration> + 'a>;

fn turn<'a>(engine: &'a mut dyn Engine, clock: Clock) -> Turn<'a> {
    Box::new(move |runs| {
        let start = clock.now();
        for _ in 0..runs {
            engine.run()?;
        }
        Ok(clock.now().saturating_sub(start))
    })
}

/// The largest difference, relative to the largest value.
fn difference(a: &[f32], b: &[f32]) -> f64 {
    let largest = a.iter().fold(0f32, |m, v| m.max(v.abs()));
    let apart = a.iter().zip(b).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    if a.len() == b.len() {
        f64::from(apart / largest)
    } else {
        f64::INFINITY
    }
}

/// Microseconds per run, turn by turn, for each contestant.
fn measure(mut turns: Vec<Turn<'_>>, seconds: f64) -> Result<Vec<Vec<f64>>> {
    let mut runs = Vec::new();
    for turn in &mut turns {
        turn(2)?;
        let one = turn(3)? / 3;
        runs.push((TURN.as_nanos() / one.as_nanos().max(1)).clamp(1, 10_000) as usize);
    }
    let mut times = vec![Vec::new(); turns.len()];
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end || times[0].len() < 9 {
        for (i, turn) in turns.iter_mut().enumerate() {
            times[i].push(turn(runs[i])?.as_secs_f64() * 1e6 / runs[i] as f64);
        }
    }
    Ok(times)
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    let device = Device::<Cpu>::from_inner(CpuDevice::new(1, Kernels::default())?).into_any();
    if let Some(folder) = &arguments.export {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        let export = |name: &String| models::export(name, folder, &device).map(drop);
        return arguments.models.iter().try_for_each(export);
    }
    if !arguments.files.is_empty() {
        return files::all(&arguments, &device);
    }
    let folder = std::env::temp_dir().join(format!("polygrad-bench-onnx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;
    let done = match arguments.int8 {
        true => int8::all(&arguments, &folder, &device),
        false => all(&arguments, &folder, &device),
    };
    let _ = std::fs::remove_dir_all(&folder);
    done
}

fn all(arguments: &Arguments, folder: &Path, device: &Device) -> Result<()> {
    println!(
        "| model | batch | native, µs | ort, µs | rten, µs | torch, µs | native / ort | native / rten | native / torch |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let clock = arguments.clock;
    let (mut losses, mut lines) = (Vec::new(), Vec::new());
    for name in &arguments.models {
        let exported = models::export(name, folder, device)?;
        for &batch in &arguments.batches {
            let inputs = exported.inputs(batch)?;
            let mut native = Native::load(&exported.onnx, &inputs, device)?;
            if arguments.profile {
                let times = measure(vec![turn(&mut native, clock)], arguments.seconds)?;
                println!("{name} at {batch}: {:.0} µs", clock.typical(&times[0]));
                continue;
            }
            let mut ort = OnnxRuntime::load(&exported.onnx, &inputs)?;
            let mut rten = RTen::load(&exported.onnx, &inputs)?;
            let mut torch = Torch::start(name, &exported.weights, &inputs, folder);
            let ours = native.logits()?;
            let mut apart = vec![difference(&ort.logits()?, &ours), difference(&rten.logits()?, &ours)];
            let mut turns = [&mut native as &mut dyn Engine, &mut ort, &mut rten]
                .into_iter()
                .map(|engine| turn(engine, clock))
                .collect::<Vec<_>>();
            match &mut torch {
                Ok(torch) => {
                    apart.push(difference(&torch.logits()?, &ours));
                    if lines.is_empty() {
                        lines.push(format!("PyTorch {}", torch.version()?));
                    }
                    turns.push(Box::new(|runs| torch.time(runs, clock)));
                }
                Err(error) if lines.is_empty() => lines.push(format!("PyTorch is left out: {error}")),
                Err(_) => {}
            }
            let times = measure(turns, arguments.seconds)?;
            let typical: Vec<f64> = times.iter().map(|times| clock.typical(times)).collect();
            let micros = |i: usize| typical.get(i).map_or("-".to_owned(), |m| format!("{m:.0}"));
            let ratio = |i: usize| {
                typical
                    .get(i)
                    .map_or("-".to_owned(), |m| format!("{:.2}", typical[0] / m))
            };
            println!(
                "| {name} | {batch} | {} | {} | {} | {} | {} | {} | {} |",
                micros(0),
                micros(1),
                micros(2),
                micros(3),
                ratio(1),
                ratio(2),
                ratio(3)
            );
            for (i, (peer, limit)) in [("ort", 1.2), ("rten", 1.0)].into_iter().enumerate() {
                if typical[0] > limit * typical[i + 1] {
                    losses.push(format!("{name} at {batch}: {} of {peer}'s time", ratio(i + 1)));
                }
            }
            if let Some(worst) = apart.iter().find(|&&apart| !(apart < 1e-4)) {
                losses.push(format!("{name} at {batch}: outputs differ by {worst:.1e}"));
            }
        }
    }
    lines.iter().chain(&losses).for_each(|line| println!("{line}"));
    Ok(())
}
