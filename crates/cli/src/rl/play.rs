//! `polygrad play`: shows how a policy plays.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::Path;

use polygrad::rl::zoo::EnvSpec;
use polygrad::rl::{Play, Policy, Space};

use super::replay::Replay;
use super::screen::Screen;
use super::{Settings, args};
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{say, short};
use crate::run::atomic::AtomicFile;
use crate::trained::{self, Trained};

/// How long the last picture of an episode stays, in milliseconds.
const PAUSE: u16 = 1000;

/// Plays episodes with a run's policy, or the recorded ones of a file. They are shown as pictures on a terminal and in
/// words elsewhere, and saved as a film with `--apng`.
///
/// # Errors
/// A run that is missing or damaged, a policy that computes NaN or infinity, an environment that does not reproduce the
/// recording, or a file that cannot be written; errors of the device.
pub(crate) fn command(args: &args::Play) -> Result<Outcome> {
    if let Some(file) = &args.replay {
        let replay = Replay::load(file)?;
        let spec = replay.spec()?;
        say(&format!(
            "{}: {} of {}",
            file.shown(),
            episodes(replay.episodes.len()),
            spec.name
        ));
        let source = Source::Replay(&replay);
        Show { spec, source }.show(args.apng.as_deref())?;
        return Ok(Outcome::Done);
    }
    let run = args.run.as_deref().unwrap_or_else(|| Path::new("."));
    let trained = trained::load::<Settings>(run, args.backend.as_deref(), args.threads)?;
    let Trained { config, device, model } = &trained;
    config.check_sample(args.sample)?;
    let spec = config.spec()?;
    say(&format!(
        "{}: {} in {}, on {device}",
        run.shown(),
        config.network(),
        spec.name
    ));
    let record = RefCell::new(Replay::new(&config.environment, config.gym.as_ref(), args.seed));
    let source = Source::Policy {
        args,
        model: &**model,
        record: &record,
    };
    Show { spec, source }.show(args.apng.as_deref())?;
    if let Some(file) = &args.record {
        record.borrow().save(file)?;
        say(&format!("recorded: {}", file.shown()));
    }
    Ok(Outcome::Done)
}

fn episodes(count: usize) -> String {
    match count {
        1 => "an episode".to_owned(),
        count => format!("{count} episodes"),
    }
}

/// The source of the actions.
enum Source<'a> {
    Policy {
        args: &'a args::Play,
        model: &'a dyn Policy,
        /// The recording of the last play.
        record: &'a RefCell<Replay>,
    },
    Replay(&'a Replay),
}

struct Show<'a> {
    spec: &'a EnvSpec,
    source: Source<'a>,
}

impl<'a> Show<'a> {
    fn show(&self, film: Option<&Path>) -> Result<()> {
        match film {
            Some(file) => self.film(file),
            None if std::io::stdout().is_terminal() && self.begin()?.drawable().is_ok() => self.pictures(),
            None => self.words(),
        }
    }

    /// Starts from the first episode; the same each time.
    fn begin(&self) -> Result<Play<'a>> {
        Ok(match &self.source {
            Source::Policy { args, model, .. } => {
                let play = self.spec.play(*model, args.seed)?;
                if args.sample { play.sampled() } else { play }
            }
            Source::Replay(replay) => self.spec.replay(replay.seed)?,
        })
    }

    /// Plays all episodes. Calls `see` with every state, and whether it is the last of its episode.
    fn run(&self, mut see: impl FnMut(&Play<'_>, bool) -> Result<()>) -> Result<()> {
        let mut play = self.begin()?;
        let episodes = match &self.source {
            Source::Policy { args, record, .. } => {
                record.borrow_mut().episodes.clear();
                args.episodes
            }
            Source::Replay(replay) => replay.episodes.len(),
        };
        for episode in 0..episodes {
            play.reset()?;
            let mut ended = false;
            self.check(episode, &play, ended)?;
            see(&play, ended)?;
            while !ended {
                ended = match &self.source {
                    Source::Policy { .. } => play.step()?,
                    Source::Replay(replay) => replay.step(episode, &mut play)?,
                };
                self.check(episode, &play, ended)?;
                see(&play, ended)?;
            }
        }
        Ok(())
    }

    /// Records a state, or compares it with the recorded one.
    fn check(&self, episode: usize, play: &Play<'_>, ended: bool) -> Result<()> {
        match &self.source {
            Source::Policy { args, record, .. } => {
                if args.record.is_some() {
                    record.borrow_mut().take(play);
                }
                Ok(())
            }
            Source::Replay(replay) => replay.check(episode, play, ended),
        }
    }

    fn pictures(&self) -> Result<()> {
        let mut screen = Screen::default();
        let mut episode = 0;
        self.run(|play, ended| {
            let words = format!(
                "episode {}, step {}, return {}",
                episode + 1,
                play.steps(),
                returns(play)
            );
            screen.show(play, &words);
            episode += usize::from(ended);
            if ended {
                screen.leave();
            }
            Ok(())
        })
    }

    fn words(&self) -> Result<()> {
        let names = Names::new(self.spec);
        let mut episode = 0;
        self.run(|play, ended| {
            let seen = names.observation(play);
            match play.steps() {
                0 => {
                    episode += 1;
                    say(&format!("episode {episode}{seen}"));
                }
                step => say(&format!(
                    "step {step}: {}{seen}; return {}",
                    names.action(play),
                    returns(play)
                )),
            }
            if ended {
                say(&outcome(episode, play));
            }
            Ok(())
        })
    }

    /// The file starts with the number of pictures, so everything is played twice.
    fn film(&self, file: &Path) -> Result<()> {
        self.begin()?.drawable()?;
        let mut count = 0u32;
        self.run(|_, _| {
            count += 1;
            Ok(())
        })?;
        let mut bytes = Vec::new();
        let play = self.begin()?;
        let [width, height] = play.size().map(|extent| extent.round() as usize);
        let failed = |error: png::EncodingError| Failure::new(format!("cannot make {}: {error}", file.shown()));
        let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_animated(count, 0).map_err(failed)?;
        let rate = (1000.0 / play.fps()).round() as u16;
        let mut writer = encoder.write_header().map_err(failed)?;
        let (mut episode, mut seconds) = (0, 0.0);
        self.run(|play, ended| {
            let delay = if ended { PAUSE } else { rate };
            seconds += f64::from(delay) / 1000.0;
            writer.set_frame_delay(delay, 1000).map_err(failed)?;
            let picture = play.picture(width, height);
            writer
                .write_image_data(picture.pixels().as_flattened())
                .map_err(failed)?;
            if ended {
                episode += 1;
                say(&outcome(episode, play));
            }
            Ok(())
        })?;
        writer.finish().map_err(failed)?;
        let mut whole = AtomicFile::create(file)?;
        whole.append(&bytes)?;
        whole.commit()?;
        say(&format!(
            "{}: {count} pictures of {width} by {height}, {seconds:.1} s",
            file.shown()
        ));
        Ok(())
    }
}

fn outcome(episode: usize, play: &Play<'_>) -> String {
    format!(
        "episode {episode}: return {} after {} steps",
        returns(play),
        play.steps()
    )
}

/// The returns of all players, to four decimal places.
fn returns(play: &Play<'_>) -> String {
    let rounded = play.returns().iter().map(|x| short((x * 1e4).round() / 1e4 + 0.0));
    rounded.collect::<Vec<_>>().join(" and ")
}

/// The names of observations and actions.
struct Names {
    observations: &'static [&'static str],
    actions: &'static [&'static str],
}

impl Names {
    fn new(spec: &EnvSpec) -> Self {
        Self {
            observations: spec.observations,
            actions: spec.actions,
        }
    }

    /// The observation, if each of its numbers has a name.
    fn observation(&self, play: &Play<'_>) -> String {
        if play.observations().len() != self.observations.len() {
            return String::new();
        }
        let named = self.observations.iter().zip(play.observations());
        let named = named.map(|(name, x)| format!("{name} {x:.4}"));
        format!("; {}", named.collect::<Vec<_>>().join(", "))
    }

    fn action(&self, play: &Play<'_>) -> String {
        let named = play
            .actions()
            .iter()
            .enumerate()
            .map(|(i, x)| match play.action_space() {
                Space::Discrete { start, .. } => {
                    let name = self.actions.get((f64::from(*x) - *start as f64) as usize);
                    name.map_or_else(|| x.to_string(), |name| (*name).to_owned())
                }
                _ => format!("{} {x:.4}", self.actions.get(i).unwrap_or(&"action")),
            });
        let named: Vec<String> = match play.returns().len() {
            1 => named.collect(),
            _ => named
                .enumerate()
                .map(|(i, name)| format!("player {} {name}", i + 1))
                .collect(),
        };
        named.join(", ")
    }
}
