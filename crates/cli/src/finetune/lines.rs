//! Examples in lines of JSON, as tokens.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use polygrad::Device;
use polygrad::Error;
use polygrad::data::{DataLoader, DataLoaderConfig};
use polygrad::nn::open_file;
use polygrad::text::{TextFormat, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

use super::Settings;
use crate::failure::{Failure, Result, Shown};
use crate::task::Batch;

/// What targets are that nothing is learnt from.
const MASKED: i64 = -100;

/// A longer line is none.
const LONGEST: usize = 1 << 24;

/// What a line with a prompt has.
#[derive(Deserialize)]
struct Line {
    prompt: String,
    completion: String,
}

/// Tokens, and which of them are learnt.
#[derive(Clone)]
struct Example {
    tokens: Vec<i64>,
    learnt: Vec<bool>,
}

/// The examples of a run.
pub(crate) struct Lines {
    train: Arc<Vec<Example>>,
    validation: Arc<Vec<Example>>,
    /// The longest example, in tokens that are seen.
    width: usize,
    /// What was cut or left out.
    pub(super) cuts: Vec<String>,
    /// Whether there are any by the model's template.
    pub(super) has_chats: bool,
}

impl Lines {
    /// Reads the files of a run; examples have at most `context` tokens, and end with `end`.
    ///
    /// # Errors
    /// A file that cannot be read, a line that is no example, by its number; too few examples; a tokenizer with more
    /// tokens than the model's `vocabulary`.
    pub(super) fn load(
        settings: &Settings,
        format: &TextFormat,
        (context, vocabulary, end): (usize, usize, Option<i64>),
    ) -> Result<Self> {
        let (mut cuts, mut has_chats) = (Vec::new(), false);
        let mut read = |path: &Path| -> Result<Vec<Example>> {
            let found = examples(path, format, context, end)?;
            has_chats |= found.has_chats;
            cuts.extend(found.cuts(path, context));
            found.must_be_of(path, vocabulary)?;
            Ok(found.examples)
        };
        let data = settings.data()?;
        let mut train = read(data)?;
        let validation = match &settings.validation {
            Some(path) => read(path)?,
            None => train.split_off(train.len().saturating_sub((train.len() / 10).max(1))),
        };
        if train.is_empty() || validation.is_empty() {
            let mut said = format!("{} has too few examples to learn from and to judge by", data.shown());
            for cut in cuts {
                said += &format!("; {cut}");
            }
            return Err(
                Failure::new(said).fix("give at least two lines with a completion, or more of them with --validation")
            );
        }
        let width = train
            .iter()
            .chain(&validation)
            .map(|example| example.tokens.len() - 1)
            .max();
        Ok(Self {
            train: Arc::new(train),
            validation: Arc::new(validation),
            width: width.unwrap_or(1),
            cuts,
            has_chats,
        })
    }

    /// How many examples there are to learn from, and to judge by.
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.train.len(), self.validation.len()]
    }

    /// Batches of tokens and of those that follow them, filled up to one width.
    pub(super) fn loaders(
        &self,
        settings: &Settings,
        device: &Device,
    ) -> Result<(DataLoader<Batch>, DataLoader<Batch>)> {
        let config = |examples: &Arc<Vec<Example>>| {
            let (width, all) = (self.width, Arc::clone(examples));
            let rows = move |at: usize| all[at].rows(width);
            DataLoaderConfig::new((0..examples.len()).collect::<Vec<usize>>())
                .batch_size(settings.training.batch_size)
                .transform(move |at, _| Ok(rows(at)))
        };
        let train = config(&self.train).shuffle(settings.training.seed).build(device)?;
        Ok((train, config(&self.validation).build(device)?))
    }
}

impl Example {
    /// What is seen, and what is to follow each token.
    fn rows(&self, width: usize) -> (Vec<i64>, Vec<i64>) {
        let count = self.tokens.len() - 1;
        let mut seen = self.tokens[..count].to_vec();
        let next = |at: usize| {
            if self.learnt[at + 1] {
                self.tokens[at + 1]
            } else {
                MASKED
            }
        };
        let mut next: Vec<i64> = (0..count).map(next).collect();
        seen.resize(width, 0);
        next.resize(width, MASKED);
        (seen, next)
    }
}

/// The examples of a file.
struct Found {
    examples: Vec<Example>,
    /// The lines that lost their end, and those of which nothing was left to learn: how many, and the first.
    cut: (usize, usize),
    lost: (usize, usize),
    has_chats: bool,
}

impl Found {
    fn cuts(&self, path: &Path, context: usize) -> Vec<String> {
        let say = |(count, first): (usize, usize), what: &str| {
            (count > 0).then(|| format!("{}: lines {what}: {count}, from line {first} on", path.shown()))
        };
        let cut = say(self.cut, &format!("that lost what is behind their {context} tokens"));
        let lost = say(
            self.lost,
            &format!("left out, since their prompt alone has {context} tokens or more"),
        );
        cut.into_iter().chain(lost).collect()
    }

    /// Fails where a token is unknown to the model.
    fn must_be_of(&self, path: &Path, vocabulary: usize) -> Result<()> {
        let largest = self
            .examples
            .iter()
            .flat_map(|example| &example.tokens)
            .max()
            .copied()
            .unwrap_or(0);
        match usize::try_from(largest).is_ok_and(|largest| largest < vocabulary) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "tokenizer.json makes token {largest} of {}, and the model has {vocabulary} tokens",
                path.shown()
            ))
            .fix("take tokenizer.json and config.json from the same model")),
        }
    }
}

fn examples(path: &Path, format: &TextFormat, context: usize, end: Option<i64>) -> Result<Found> {
    let mut found = Found {
        examples: Vec::new(),
        cut: (0, 0),
        lost: (0, 0),
        has_chats: false,
    };
    let mut file = BufReader::new(open_file(path)?.0);
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let read = file.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut bytes);
        if read.map_err(|e| Failure::io("read", path, &e))? == 0 {
            break;
        }
        let bad = |what: &str| {
            Failure::new(format!("{}, line {line}: {what}", path.shown())).fix(
                r#"write each line as {"prompt": "…", "completion": "…"} or {"messages": [{"role": "user", …}, …]}"#,
            )
        };
        if bytes.len() > LONGEST {
            return Err(bad("it is too long"));
        }
        let text = std::str::from_utf8(&bytes).map_err(|e| bad(&e.to_string()))?;
        let text = text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            continue;
        }
        let (example, is_chat) = example(text, format, end).map_err(|what| bad(&what))?;
        found.has_chats |= is_chat;
        found.add(example, line, context);
    }
    Ok(found)
}

/// What a line says, and whether it is a chat.
fn example(text: &str, format: &TextFormat, end: Option<i64>) -> std::result::Result<(Example, bool), String> {
    // It counts the lines of this text alone.
    let json = |e: serde_json::Error| e.to_string().replace(" at line 1 column ", " at column ");
    let fields: Value = serde_json::from_str(text).map_err(json)?;
    match fields.get("messages") {
        None => {
            let line: Line = serde_json::from_str(text).map_err(json)?;
            let example = completion(&line, &format.tokenizer, end)?;
            Ok((example, false))
        }
        Some(_) if fields.get("prompt").is_some() || fields.get("completion").is_some() => {
            Err("it has messages and a prompt or completion".to_owned())
        }
        Some(messages) => {
            let messages = messages.as_array().ok_or("its messages are no list")?;
            let example = chat(messages, format)?;
            Ok((example, true))
        }
    }
}

fn completion(line: &Line, tokenizer: &Tokenizer, end: Option<i64>) -> std::result::Result<Example, String> {
    if line.completion.is_empty() {
        return Err("the completion is empty, so that there is nothing to learn".to_owned());
    }
    let encoded = |text: &str, special: bool| tokenizer.encode(text, special).map_err(|e| e.message().to_owned());
    let mut tokens = encoded(&line.prompt, true)?;
    let from = tokens.len();
    tokens.extend(encoded(&line.completion, false)?);
    tokens.extend(end);
    let learnt = (0..tokens.len()).map(|at| at >= from).collect();
    Ok(Example { tokens, learnt })
}

fn chat(messages: &[Value], format: &TextFormat) -> std::result::Result<Example, String> {
    let said = |error: Error| match error.hint() {
        Some(hint) => format!("{}: {hint}", error.message()),
        None => error.message().to_owned(),
    };
    let Some(template) = &format.template else {
        return Err(
            "it is a chat, and the model's folder has no template of chats, such as chat_template.jinja".to_owned(),
        );
    };
    let (text, spans) = template.render_spans(messages).map_err(said)?;
    let (tokens, learnt) = format.tokenizer.encode_spans(&text, &spans).map_err(said)?;
    match learnt.iter().skip(1).any(|&is_learnt| is_learnt) {
        true => Ok(Example { tokens, learnt }),
        false => Err("the assistant says nothing, so that there is nothing to learn".to_owned()),
    }
}

impl Found {
    /// Takes an example, cut to its first `context` tokens.
    fn add(&mut self, Example { mut tokens, mut learnt }: Example, line: usize, context: usize) {
        let note = |(count, first): &mut (usize, usize)| {
            (*count, *first) = (*count + 1, if *count == 0 { line } else { *first })
        };
        let is_cut = tokens.len() > context;
        tokens.truncate(context);
        learnt.truncate(context);
        // The first token follows none.
        let has_rest = learnt.iter().skip(1).any(|&is_learnt| is_learnt);
        match (is_cut, has_rest) {
            (true, true) => note(&mut self.cut),
            (true, false) => note(&mut self.lost),
            (false, _) => {}
        }
        if has_rest {
            self.examples.push(Example { tokens, learnt });
        }
    }
}
