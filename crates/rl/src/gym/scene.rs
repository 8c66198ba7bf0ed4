//! One environment of Gymnasium to watch.

use std::io;

use polygrad_core::Rng;

use super::hello::{Hello, Picture};
use super::process::Failure;
use super::worker::{Link, seed_of};
use crate::act::Scene;
use crate::{Canvas, Colour, Render};

/// Steps per second if the environment does not say.
const FPS: f64 = 30.0;

pub(super) struct GymScene {
    link: Link,
    pixels: Vec<Colour>,
    outcomes: Vec<super::memory::Outcome>,
}

impl Hello {
    /// Height and width of its pictures, if there are any.
    pub(super) fn picture_size(&self) -> Option<[usize; 2]> {
        match self.picture {
            Some(Picture::Size(size)) => Some(size),
            _ => None,
        }
    }
}

impl GymScene {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            pixels: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    fn extent(&self) -> [usize; 2] {
        self.link.hello.picture_size().unwrap_or([1, 1])
    }

    fn ask(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.link.process.tell(request);
        self.link.process.hear()?;
        let bytes = self.link.memory.read_picture().map_err(Failure::Memory)?;
        self.pixels.clear();
        self.pixels.extend(bytes.as_chunks().0);
        Ok(())
    }

    fn begin(&mut self, seed: u64, observations: &mut [f32]) -> Result<(), Failure> {
        let memory = |error: io::Error| Failure::Memory(error);
        let seeds = std::iter::repeat_n(seed, self.link.hello.agents);
        self.link.memory.write_seeds(seeds).map_err(memory)?;
        self.ask(b"r")?;
        self.link.memory.read_observations(observations).map_err(memory)
    }

    fn advance(&mut self, actions: &[f32], observations: &mut [f32]) -> Result<(), Failure> {
        self.link.memory.write_actions(actions).map_err(Failure::Memory)?;
        self.ask(b"s")?;
        let read = self.link.memory.read_step(&mut self.outcomes, observations);
        read.map_err(Failure::Memory)
    }
}

impl Scene for GymScene {
    fn agents(&self) -> usize {
        self.link.hello.agents
    }

    fn reset(&mut self, rng: &mut Rng, observations: &mut [f32]) -> Result<(), String> {
        self.begin(seed_of(rng), observations)
            .map_err(|failure| failure.to_string())
    }

    fn step(
        &mut self,
        actions: &[f32],
        _rng: &mut Rng,
        observations: &mut [f32],
        returns: &mut [f64],
    ) -> Result<bool, String> {
        let stepped = self.advance(actions, observations);
        stepped.map_err(|failure| failure.to_string())?;
        let sums = returns.iter_mut().zip(&self.outcomes);
        sums.for_each(|(sum, outcome)| *sum += outcome.reward);
        let first = self.outcomes.first().ok_or("says nothing of its step")?;
        Ok(first.ended())
    }

    fn undrawable(&self) -> Option<&str> {
        match &self.link.hello.picture {
            Some(Picture::None(why)) => Some(why),
            _ => None,
        }
    }

    fn render(&self) -> &dyn Render {
        self
    }
}

impl Render for GymScene {
    fn size(&self) -> [f32; 2] {
        let [height, width] = self.extent();
        [width as f32, height as f32]
    }

    fn fps(&self) -> f64 {
        self.link.hello.fps.filter(|fps| *fps > 0.0).unwrap_or(FPS)
    }

    fn render(&self, canvas: &mut Canvas) {
        let [height, width] = self.extent();
        if self.pixels.len() == height * width {
            canvas.image(width, &self.pixels);
        }
    }
}
