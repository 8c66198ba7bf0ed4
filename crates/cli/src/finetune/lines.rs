//! Examples in lines of JSON, converted to tokens.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use polygrad::Device;
use polygrad::backend::HostTensor;
use polygrad::data::{DataLoader, DataLoaderConfig};
use polygrad::text::TextFormat;

use super::base::Base;
use super::goal::Goal;
use super::prompts::{self, Completion, Packed};
use super::texts::{Encode, Texts};
use super::{Settings, jsonl};
use crate::failure::{Failure, Result, Shown};
use crate::task::Batch;

/// The most texts among which an anchor's own text is searched.
const CANDIDATES: usize = 4096;

/// The examples of a run.
pub(crate) struct Lines {
    train: Arc<Vec<Example>>,
    validation: Arc<Vec<Example>>,
    /// The numbers of training and validation examples.
    pub(super) counts: [usize; 2],
    /// The length of the longest row, in input tokens.
    pub(super) width: usize,
    /// Notices about truncated or omitted lines.
    pub(super) cuts: Vec<String>,
    /// Whether there are any chats, which use the model's template.
    pub(super) has_chats: bool,
    /// The names of the classes, by index.
    pub(super) labels: Vec<String>,
}

#[derive(Clone)]
enum Example {
    Completion(Completion),
    Packed(Packed),
    Texts(Texts),
}

impl Lines {
    /// Reads the files of a run whose model starts as `base`.
    ///
    /// # Errors
    /// If a file cannot be read or a line is not an example (the failure has its number); if there are too few examples
    /// or only one class; if the tokenizer has more tokens than the model.
    pub(super) fn load(settings: &Settings, base: &Base) -> Result<Self> {
        let (format, goal) = (base.format()?, &settings.goal);
        let data = settings.data()?;
        let read = |path| Found::read(path, settings, &format, base);
        let mut train = read(data)?;
        let least = if *goal == Goal::Embed { 2 } else { 1 };
        let mut validation = match &settings.validation {
            Some(path) => read(path)?,
            None => train.split_off(least),
        };
        train.must_be_alike(&validation, goal)?;
        if train.examples.len() < least || validation.examples.len() < least {
            let mut said = format!("{} has too few examples to learn from and to judge by", data.shown());
            for cut in train.cuts(settings.context) {
                said += &format!("; {cut}");
            }
            let fix = match goal {
                Goal::Text => "give at least two lines with a completion, or more of them with --validation",
                Goal::Classify(_) => "give at least two lines, or others to judge by with --validation",
                Goal::Embed => "give at least four lines, or two and two others to judge by with --validation",
            };
            return Err(Failure::new(said).fix(fix));
        }
        let labels = match goal {
            Goal::Classify(_) => train.classes(&base.labels())?,
            Goal::Text | Goal::Embed => Vec::new(),
        };
        for found in [&mut train, &mut validation] {
            found.number(&labels, goal)?;
        }
        Ok(Self::of(train, validation, labels, settings))
    }

    /// Reads another file, all of whose lines are used to validate the model of a run.
    ///
    /// # Errors
    /// Those of [`Lines::load`]; if the model does not know a label.
    pub(super) fn judging(path: &Path, settings: &Settings) -> Result<Self> {
        let (base, goal) = (Settings::base(settings)?, &settings.goal);
        let mut found = Found::read(path, settings, &base.format()?, &base)?;
        if found.examples.is_empty() {
            return Err(Failure::new(format!("{} has no examples", path.shown())).fix(goal.form()));
        }
        let labels = match goal {
            Goal::Classify(labels) => labels.clone(),
            Goal::Text | Goal::Embed => Vec::new(),
        };
        found.number(&labels, goal)?;
        found.must_be_alike(&found, goal)?;
        let none = found.part(Vec::new());
        Ok(Self::of(none, found, labels, settings))
    }

    fn of(train: Found<'_>, validation: Found<'_>, labels: Vec<String>, settings: &Settings) -> Self {
        let counts = [train.examples.len(), validation.examples.len()];
        let mut cuts = train.cuts(settings.context);
        if validation.path != train.path {
            cuts.extend(validation.cuts(settings.context));
        }
        let has_chats = train.has_chats || validation.has_chats;
        let [train, validation] = [train, validation].map(|found| match settings.pack {
            true => packed(found.examples, settings.context),
            false => found.examples,
        });
        let all = train.iter().chain(&validation);
        Self {
            counts,
            width: all.map(Example::width).max().unwrap_or(1),
            cuts,
            has_chats,
            labels,
            train: Arc::new(train),
            validation: Arc::new(validation),
        }
    }

    /// The number of training rows: one per example, unless examples are packed.
    pub(super) fn rows(&self) -> usize {
        self.train.len()
    }

    /// Batches of inputs and targets, padded to one width.
    pub(super) fn loaders(
        &self,
        settings: &Settings,
        device: &Device,
    ) -> Result<(DataLoader<Batch>, DataLoader<Batch>)> {
        let size = settings.training.batch_size;
        let all = self.validation.len().min(CANDIDATES);
        let judged = if settings.goal == Goal::Embed { all } else { size };
        let config = |examples: &Arc<Vec<Example>>, size: usize| {
            let (width, all) = (self.width, Arc::clone(examples));
            DataLoaderConfig::new((0..examples.len()).collect::<Vec<usize>>())
                .batch_size(size)
                .transform(move |at, _| all[at].rows(width))
        };
        let train = config(&self.train, size).shuffle(settings.training.seed);
        Ok((train.build(device)?, config(&self.validation, judged).build(device)?))
    }

    /// Validation batches.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn validation(&self, settings: &Settings, device: &Device) -> Result<DataLoader<Batch>> {
        self.loaders(settings, device).map(|(_, validation)| validation)
    }
}

impl Example {
    fn width(&self) -> usize {
        match self {
            Self::Completion(example) => example.width(),
            Self::Packed(row) => row.width(),
            Self::Texts(texts) => texts.width(),
        }
    }

    fn largest(&self) -> i64 {
        let largest = match self {
            Self::Completion(example) => example.tokens.iter().max().copied(),
            Self::Packed(row) => row.largest(),
            Self::Texts(texts) => texts.ids().max().copied(),
        };
        largest.unwrap_or(0)
    }

    fn rows(&self, width: usize) -> polygrad::Result<(HostTensor, HostTensor)> {
        match self {
            Self::Completion(example) => example.rows(width),
            Self::Packed(row) => row.rows(width),
            Self::Texts(texts) => texts.rows(width),
        }
    }
}

/// Packs completions into rows of up to `width` tokens; other examples stay as they are.
fn packed(examples: Vec<Example>, width: usize) -> Vec<Example> {
    let (mut completions, mut rest) = (Vec::new(), Vec::new());
    for example in examples {
        match example {
            Example::Completion(example) => completions.push(example),
            other => rest.push(other),
        }
    }
    let rows = Packed::rows_of(completions, width).into_iter();
    rest.extend(rows.map(Example::Packed));
    rest
}

/// The number of lines, and the first of them.
#[derive(Clone, Copy, Default)]
struct Lost {
    count: usize,
    first: usize,
}

impl Lost {
    fn note(&mut self, line: usize) {
        if self.count == 0 {
            self.first = line;
        }
        self.count += 1;
    }
}

/// The examples of a file.
struct Found<'a> {
    path: &'a Path,
    examples: Vec<Example>,
    /// Lines whose end was truncated.
    cut: Lost,
    /// Lines with nothing left to learn.
    lost: Lost,
    has_chats: bool,
}

impl<'a> Found<'a> {
    fn read(path: &'a Path, settings: &Settings, format: &TextFormat, base: &Base) -> Result<Self> {
        let mut found = Self {
            path,
            examples: Vec::new(),
            cut: Lost::default(),
            lost: Lost::default(),
            has_chats: false,
        };
        let encode = Encode::new(&format.tokenizer, settings.context);
        jsonl::each(path, settings.goal.form(), |line, text| {
            let (texts, is_cut) = match settings.goal {
                Goal::Text => {
                    let (example, is_chat) = prompts::example(text, format, base.end)?;
                    found.has_chats |= is_chat;
                    found.add(example, line, settings.context);
                    return Ok(());
                }
                Goal::Classify(_) => Texts::labelled((line, text), &encode)?,
                Goal::Embed => Texts::group((line, text), &encode)?,
            };
            if is_cut {
                found.cut.note(line);
            }
            found.examples.push(Example::Texts(texts));
            Ok(())
        })?;
        found.must_be_of(base.sizes().1)?;
        Ok(found)
    }

    /// Adds an example, truncated to its first `context` tokens.
    fn add(&mut self, mut example: Completion, line: usize, context: usize) {
        let (is_cut, has_rest) = example.cut(context);
        match (is_cut, has_rest) {
            (true, true) => self.cut.note(line),
            (true, false) => self.lost.note(line),
            (false, _) => {}
        }
        if has_rest {
            self.examples.push(Example::Completion(example));
        }
    }

    fn part(&self, examples: Vec<Example>) -> Self {
        Self { examples, ..*self }
    }

    /// Removes the last tenth of the examples, at least `least` of them, and returns them.
    fn split_off(&mut self, least: usize) -> Self {
        let count = self.examples.len();
        let last = self.examples.split_off(count.saturating_sub((count / 10).max(least)));
        self.part(last)
    }

    fn cuts(&self, context: usize) -> Vec<String> {
        let say = |Lost { count, first }: Lost, what: &str| {
            (count > 0).then(|| {
                format!(
                    "{}: lines {what}: {count}, the first is line {first}",
                    self.path.shown()
                )
            })
        };
        let cut = say(self.cut, &format!("truncated to {context} tokens"));
        let lost = say(
            self.lost,
            &format!("left out, since their prompt alone has {context} tokens or more"),
        );
        cut.into_iter().chain(lost).collect()
    }

    /// Fails if the model does not know a token.
    fn must_be_of(&self, vocabulary: usize) -> Result<()> {
        let largest = self.examples.iter().map(Example::largest).max().unwrap_or(0);
        match usize::try_from(largest).is_ok_and(|largest| largest < vocabulary) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the tokenizer makes token {largest} of {}, and the model has {vocabulary} tokens",
                self.path.shown()
            ))
            .fix("take the tokenizer and the weights from the same model")),
        }
    }

    fn texts(&self) -> impl Iterator<Item = &Texts> {
        self.examples.iter().filter_map(|example| match example {
            Example::Texts(texts) => Some(texts),
            Example::Completion(_) | Example::Packed(_) => None,
        })
    }

    /// The names of the classes: those of the base if it knows all labels in the file, otherwise these labels in order.
    fn classes(&self, known: &[String]) -> Result<Vec<String>> {
        let own: BTreeSet<&String> = self.texts().map(|texts| &texts.label).collect();
        if let (1, Some(only)) = (own.len(), own.first()) {
            return Err(Failure::new(format!(
                "all lines of {} that are learnt from have the label {only:?}, so that there is nothing to tell apart",
                self.path.shown()
            ))
            .fix(
                "give lines of at least two classes; mix them if they lie in order, or name a file with --validation",
            ));
        }
        match own.iter().all(|label| known.contains(label)) {
            true => Ok(known.to_vec()),
            false => Ok(own.into_iter().cloned().collect()),
        }
    }

    /// Assigns class indices to texts.
    fn number(&mut self, labels: &[String], goal: &Goal) -> Result<()> {
        let Goal::Classify(_) = goal else {
            return Ok(());
        };
        for example in &mut self.examples {
            let Example::Texts(texts) = example else {
                continue;
            };
            let class = labels.iter().position(|label| *label == texts.label);
            texts.class = class.ok_or_else(|| {
                let what = format!(
                    "the label {:?} is none that is learnt, which are {}",
                    texts.label,
                    labels.join(", ")
                );
                let fix = "correct the label, or give lines with it to learn from; mix lines that lie in order";
                jsonl::bad(self.path, texts.line, &what, fix)
            })?;
        }
        Ok(())
    }

    /// Fails unless either all lines or none have a negative text.
    fn must_be_alike(&self, other: &Self, goal: &Goal) -> Result<()> {
        let Some(first) = self.texts().next() else {
            return Ok(());
        };
        for found in [self, other] {
            if let Some(odd) = found.texts().find(|texts| texts.count() != first.count()) {
                let (has, others) = if odd.count() > first.count() {
                    ("a", "none")
                } else {
                    ("no", "one")
                };
                let what = format!(
                    "it has {has} negative, and line {} of {} has {others}",
                    first.line,
                    self.path.shown()
                );
                return Err(jsonl::bad(found.path, odd.line, &what, goal.form()));
            }
        }
        Ok(())
    }
}
