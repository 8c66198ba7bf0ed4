//! The memory file that a process shares with us.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// Lengths of the parts of the shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    pub(super) rows: usize,
    pub(super) action: usize,
    pub(super) observation: usize,
    /// Bytes of a picture; 0 if none is drawn.
    pub(super) picture: usize,
}

/// A file that the process maps, and that we read and write by position. A system call for each of the few blocks of a
/// step costs little compared with waking a process, and needs no unsafe code. The parts that we send lie before those
/// that we receive.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
    widths: Widths,
    /// Where each part begins: actions, seeds, rewards, flags, observations, last observations, picture, end.
    places: [u64; 8],
    /// Bytes being read or written.
    buffer: Vec<u8>,
}

const SEEDS: usize = 1;
const REWARDS: usize = 2;
const OBSERVATIONS: usize = 4;
const FINALS: usize = 5;
const PICTURE: usize = 6;
const END: usize = 7;

/// The result of a row's step, except observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) reward: f64,
    pub(super) terminated: bool,
    pub(super) truncated: bool,
}

impl Outcome {
    pub(super) fn ended(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// An in-memory folder if the system has one.
fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// A new file in a folder, with all of its bytes allocated.
fn create(folder: &Path, size: u64) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("polygrad-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = match options.read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            file => file?,
        };
        // Zeros are written, instead of only setting the length, so that a lack of memory fails here and not at a later
        // access.
        match file.write_all_at(&vec![0; size as usize], 0) {
            Ok(()) => return Ok((file, path)),
            Err(error) => {
                fs::remove_file(&path).ok();
                return Err(error);
            }
        }
    }
}

impl Memory {
    /// The memory, the current path of its file, and the layout that the process is told.
    pub(super) fn create(widths: Widths) -> io::Result<(Self, PathBuf, Value)> {
        let rows = widths.rows as u64;
        let (action, observation) = (4 * rows * widths.action as u64, 4 * rows * widths.observation as u64);
        let lengths = [
            action,
            8 * rows,
            8 * rows,
            rows,
            observation,
            observation,
            widths.picture as u64,
        ];
        let mut places = [0; 8];
        for (i, length) in lengths.into_iter().enumerate() {
            places[i + 1] = (places[i] + length).next_multiple_of(8);
        }
        let (file, path) = create(&folder(), places[END]).or_else(|_| create(&std::env::temp_dir(), places[END]))?;
        let [actions, seeds, rewards, flags, observations, finals, picture, size] = places;
        let told = json!({
            "path": path, "size": size, "actions": actions, "seeds": seeds, "rewards": rewards, "flags": flags,
            "observations": observations, "finals": finals, "picture": picture,
            "action_len": widths.action, "observation_len": widths.observation, "picture_len": widths.picture,
        });
        let memory = Self {
            file,
            widths,
            places,
            buffer: Vec::new(),
        };
        Ok((memory, path, told))
    }

    /// Writes the actions of all rows.
    pub(super) fn write_actions(&mut self, actions: &[f32]) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend(actions.iter().flat_map(|x| x.to_ne_bytes()));
        self.file.write_all_at(&self.buffer, 0)
    }

    /// Writes the seed of each row's next episode.
    pub(super) fn write_seeds(&mut self, seeds: impl Iterator<Item = u64>) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend(seeds.flat_map(u64::to_ne_bytes));
        self.file.write_all_at(&self.buffer, self.places[SEEDS])
    }

    fn read(&mut self, place: u64, length: usize) -> io::Result<&[u8]> {
        self.buffer.resize(length, 0);
        self.file.read_exact_at(&mut self.buffer, place)?;
        Ok(&self.buffer)
    }

    /// Reads rewards, flags and the next observations.
    pub(super) fn read_step(&mut self, outcomes: &mut Vec<Outcome>, observations: &mut [f32]) -> io::Result<()> {
        let (rows, start) = (self.widths.rows, self.places[REWARDS]);
        let seen = (self.places[OBSERVATIONS] - start) as usize;
        let bytes = self.read(start, seen + 4 * observations.len())?;
        let (rewards, flags) = bytes.split_at(8 * rows);
        outcomes.clear();
        outcomes.extend(rewards.as_chunks().0.iter().zip(flags).map(|(reward, flag)| Outcome {
            reward: f64::from_ne_bytes(*reward),
            terminated: flag & 1 != 0,
            truncated: flag & 2 != 0,
        }));
        numbers(&bytes[seen..], observations);
        Ok(())
    }

    /// Reads the observations.
    pub(super) fn read_observations(&mut self, observations: &mut [f32]) -> io::Result<()> {
        numbers(
            self.read(self.places[OBSERVATIONS], 4 * observations.len())?,
            observations,
        );
        Ok(())
    }

    /// Reads the last observation of a row's ended episode.
    pub(super) fn read_final(&mut self, index: usize, observation: &mut [f32]) -> io::Result<()> {
        let place = self.places[FINALS] + (4 * index * observation.len()) as u64;
        numbers(self.read(place, 4 * observation.len())?, observation);
        Ok(())
    }

    /// Reads the rows of pixels, three bytes each.
    pub(super) fn read_picture(&mut self) -> io::Result<&[u8]> {
        self.read(self.places[PICTURE], self.widths.picture)
    }
}

fn numbers(bytes: &[u8], numbers: &mut [f32]) {
    let chunks = bytes.as_chunks().0;
    numbers
        .iter_mut()
        .zip(chunks)
        .for_each(|(x, bytes)| *x = f32::from_ne_bytes(*bytes));
}
