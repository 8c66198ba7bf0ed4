//! Runs the binary on small generated data.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The kinds of image: a bright bar at one of four heights.
const CLASSES: usize = 4;
const SIDE: usize = 8;

/// A folder of IDX files with 96 training and 40 test images of 8 × 8, and room for runs; it is removed on drop.
pub struct Scene {
    folder: tempfile::TempDir,
}

/// How a command ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn idx(dims: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, dims.len() as u8];
    file.extend(dims.iter().flat_map(|d| d.to_be_bytes()));
    file.extend(bytes);
    file
}

/// An image of class `class`; `noise` varies its background.
pub fn image(class: usize, noise: usize) -> Vec<u8> {
    let ground = |i: usize| ((i * 7919 + noise * 104_729) % 61) as u8;
    (0..SIDE * SIDE)
        .map(|i| {
            if i / SIDE / 2 == class {
                180 + ground(i)
            } else {
                ground(i)
            }
        })
        .collect()
}

impl Scene {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        for (split, count, first) in [("train", 96, 0), ("t10k", 40, 1000)] {
            let labels: Vec<u8> = (0..count).map(|i| (i % CLASSES) as u8).collect();
            let pixels: Vec<u8> = (0..count).flat_map(|i| image(i % CLASSES, first + i)).collect();
            let dims = [count as u32, SIDE as u32, SIDE as u32];
            fs::write(data.join(format!("{split}-images-idx3-ubyte")), idx(&dims, &pixels)).unwrap();
            fs::write(
                data.join(format!("{split}-labels-idx1-ubyte")),
                idx(&dims[..1], &labels),
            )
            .unwrap();
        }
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command with `line` as its arguments, in this folder, without a terminal.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polygrad"));
        // Otherwise the command assumes that cargo runs it.
        command.env_remove("CARGO");
        command
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, line: &str) -> Ended {
        self.command(line).output().unwrap().into()
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub fn ok(&self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "polygrad {line}\n{}{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    /// Runs a command that must fail with an error that contains all of `words` and a fix.
    pub fn fails(&self, line: &str, words: &[&str]) -> String {
        let ended = self.run(line);
        let text = ended.stderr;
        assert_eq!(ended.code, Some(1), "polygrad {line}\n{}{text}", ended.stdout);
        assert!(text.starts_with("error: ") && text.contains("\n  fix: "), "{text}");
        for word in words {
            assert!(text.contains(word), "polygrad {line}\n{text}\nshould contain {word}");
        }
        text
    }

    /// Trains the run `name` with `options`.
    pub fn train(&self, name: &str, options: &str) -> String {
        self.ok(&format!("train bars --data data --threads 1 --out {name} {options}"))
    }

    /// The lines of a run's metrics without their last column, the time.
    pub fn metrics(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name).join("metrics.csv")).unwrap();
        let timeless = |line: &str| line.rsplit_once(',').unwrap().0.to_owned();
        text.lines().map(timeless).collect()
    }

    /// Fails unless two runs have the same metrics and the same weights, to the last bit.
    pub fn same(&self, a: &str, b: &str) {
        assert_eq!(self.metrics(a), self.metrics(b));
        let model = |run: &str| self.read(&format!("{run}/model.safetensors"));
        assert!(model(a) == model(b), "the weights of {a} and {b} differ");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The command as a terminal starts it: tests in the background run with Ctrl-C ignored, which children inherit.
#[cfg(unix)]
pub fn heeding_ctrl_c(command: Command) -> Command {
    if !cfg!(target_os = "linux") {
        return command;
    }
    let mut reset = Command::new("env");
    reset
        .arg("--default-signal=INT")
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folder) = command.get_current_dir() {
        reset.current_dir(folder);
    }
    reset
}

/// Sends Ctrl-C to a running command.
#[cfg(unix)]
pub fn press_ctrl_c(child: &std::process::Child) {
    signal(child, "INT");
}

/// Sends the signal `name` to a running command.
#[cfg(unix)]
pub fn signal(child: &std::process::Child, name: &str) {
    let line = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
}

/// A grey PNG file.
pub fn png(path: &Path, side: u32, pixels: &[u8]) {
    let mut encoder = png::Encoder::new(fs::File::create(path).unwrap(), side, side);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
}
