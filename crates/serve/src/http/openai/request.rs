//! Parsing of requests.

use serde_json::{Map, Value as Json};

use super::Refused;
use super::answer::Wording;
use crate::service::Order;
use crate::{Failure, Prompt, Style};

/// A parsed request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) order: Order,
    pub(super) stream: bool,
    /// Whether a stream ends with the number of tokens used.
    pub(super) with_usage: bool,
}

/// A request for the vectors of texts.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) model: String,
    pub(super) texts: Vec<String>,
    /// Whether the numbers are returned as little-endian bytes in Base64.
    pub(super) is_base64: bool,
    /// The requested length of a vector.
    pub(super) dimensions: Option<usize>,
}

/// Fields that do not affect the answer.
const NOTES: [&str; 9] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "verbosity",
];

/// Fields of unsupported features, and the values that disable them.
const LACKING: [(&str, &[&str]); 16] = [
    ("n", &["1"]),
    ("best_of", &["1"]),
    ("echo", &["false"]),
    ("suffix", &["\"\""]),
    // Of a completion, 0 asks for those of the chosen tokens.
    ("logprobs", &["false"]),
    ("top_logprobs", &["0"]),
    ("presence_penalty", &["0", "0.0"]),
    ("frequency_penalty", &["0", "0.0"]),
    ("logit_bias", &["{}"]),
    ("tools", &["[]"]),
    ("functions", &["[]"]),
    ("tool_choice", &["\"none\"", "\"auto\""]),
    ("function_call", &["\"none\"", "\"auto\""]),
    ("response_format", &[r#"{"type":"text"}"#]),
    ("modalities", &[r#"["text"]"#]),
    ("reasoning_effort", &["\"none\""]),
];

/// The most stop strings, as in OpenAI's API.
const MOST_STOPS: usize = 4;

/// The most prompts of one request.
const MOST_PROMPTS: usize = 64;

/// The most texts of one request for vectors, as in OpenAI's API.
const MOST_TEXTS: usize = 2048;

/// The tokens of a completion without a given number.
const COMPLETION: usize = 16;

/// The fields of a request, which are removed as they are read.
struct Fields(Map<String, Json>);

/// Reads a request for texts.
pub(super) fn writing(body: &[u8], wording: Wording) -> Result<Asked, Refused> {
    let (model, mut fields) = Fields::read(body)?;
    let prompts = match wording {
        Wording::Chat => vec![chat(&mut fields)?],
        Wording::Text => prompts(&mut fields)?,
    };
    let mut count = fields.count("max_tokens")?;
    if wording == Wording::Chat {
        count = fields.count("max_completion_tokens")?.or(count);
    } else {
        count = count.or(Some(COMPLETION));
    }
    let style = style(&mut fields)?;
    let stream = fields.truth("stream")?.unwrap_or(false);
    let with_usage = match fields.0.remove("stream_options") {
        None => false,
        Some(Json::Object(options)) => {
            let mut options = Fields(options.into_iter().filter(|(_, value)| !value.is_null()).collect());
            let with_usage = options.truth("include_usage")?.unwrap_or(false);
            // Texts of random lengths that hide those of the pieces.
            if options.truth("include_obfuscation")?.unwrap_or(false) {
                let message = "stream_options.include_obfuscation is not offered here: leave it out";
                return Err(Refused::field("stream_options", message));
            }
            if let Some(name) = options.0.keys().next() {
                let message = format!(
                    "the field {:?} is not known: leave it out",
                    format!("stream_options.{name}")
                );
                return Err(Refused::field("stream_options", message));
            }
            with_usage
        }
        Some(_) => return Err(Refused::field("stream_options", "stream_options is no object")),
    };
    fields.finish()?;
    Ok(Asked {
        model,
        order: Order { prompts, count, style },
        stream,
        with_usage,
    })
}

/// Reads a request for vectors.
pub(super) fn reading(body: &[u8]) -> Result<Reading, Refused> {
    let (model, mut fields) = Fields::read(body)?;
    let texts = texts(fields.0.remove("input"))?;
    let is_base64 = match fields.text("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => {
            let message = "encoding_format is neither \"float\" nor \"base64\"";
            return Err(Refused::field("encoding_format", message));
        }
    };
    let dimensions = fields.count("dimensions")?;
    fields.finish()?;
    Ok(Reading {
        model,
        texts,
        is_base64,
        dimensions,
    })
}

/// A text or a list of texts.
fn texts(input: Option<Json>) -> Result<Vec<String>, Refused> {
    let wrong = |what: &str| Refused::field("input", format!("input {what}: give a text or a list of texts"));
    let is_tokens = |value: &Json| value.is_number() || value.is_array();
    match input {
        None => Err(wrong("is missing")),
        Some(Json::String(text)) => Ok(vec![text]),
        Some(Json::Array(all)) if all.is_empty() => Err(wrong("is empty")),
        Some(Json::Array(all)) if all.len() > MOST_TEXTS => Err(wrong(&format!("has more than {MOST_TEXTS} texts"))),
        // Clients create tokens with OpenAI's tokenizers, and would get the vectors of other texts.
        Some(Json::Array(all)) if all.iter().all(is_tokens) => Err(wrong("has tokens, which other tokenizers make")),
        Some(Json::Array(all)) => {
            let text = |value| match value {
                Json::String(text) => Some(text),
                _ => None,
            };
            let texts = all.into_iter().map(text).collect::<Option<_>>();
            texts.ok_or_else(|| wrong("has what is no text"))
        }
        Some(_) => Err(wrong("is neither")),
    }
}

fn style(fields: &mut Fields) -> Result<Style, Refused> {
    let usual = Style::default();
    let style = Style {
        temperature: fields.number("temperature", 0.0..=1e6)?.unwrap_or(usual.temperature),
        top_p: fields.number("top_p", f64::MIN_POSITIVE..=1.0)?.unwrap_or(usual.top_p),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(usual.min_p),
        repetition_penalty: fields
            .number("repetition_penalty", f64::MIN_POSITIVE..=1e6)?
            .unwrap_or(usual.repetition_penalty),
        top_k: fields.count("top_k")?,
        seed: match fields.0.remove("seed") {
            None => None,
            Some(seed) => {
                let whole = seed.as_u64().or_else(|| seed.as_i64().map(i64::cast_unsigned));
                Some(whole.ok_or_else(|| Refused::field("seed", "seed is no whole number"))?)
            }
        },
        stop: fields.stops()?,
    };
    match style.top_k {
        Some(0) => Err(Refused::field("top_k", "top_k is 0, which leaves no token")),
        _ => Ok(style),
    }
}

/// A text, tokens, or a list of these.
fn prompts(fields: &mut Fields) -> Result<Vec<Prompt>, Refused> {
    let wrong = |what: &str| {
        Refused::field(
            "prompt",
            format!("prompt {what}: give a text, tokens, or a list of these"),
        )
    };
    let one = |value: &Json| match value {
        Json::String(text) => Some(Prompt::Text(text.clone())),
        Json::Array(ids) => ids.iter().map(Json::as_i64).collect::<Option<_>>().map(Prompt::Tokens),
        _ => None,
    };
    let given = fields.0.remove("prompt").ok_or_else(|| wrong("is missing"))?;
    let several = match &given {
        Json::Array(all) if all.first().is_some_and(|first| !first.is_number()) => all.iter().map(one).collect(),
        other => one(other).map(|prompt| vec![prompt]),
    };
    match several {
        Some(prompts) if prompts.len() <= MOST_PROMPTS => Ok(prompts),
        Some(_) => Err(wrong(&format!("has more than {MOST_PROMPTS} texts"))),
        None => Err(wrong("is neither")),
    }
}

/// The messages, whose contents become texts.
fn chat(fields: &mut Fields) -> Result<Prompt, Refused> {
    let wrong = |what: String| Refused::field("messages", what);
    let messages = match fields.0.remove("messages") {
        Some(Json::Array(messages)) if !messages.is_empty() => messages,
        _ => return Err(wrong("messages is no list with a message".to_owned())),
    };
    let plain = |(number, message): (usize, Json)| {
        let Json::Object(mut message) = message else {
            return Err(wrong(format!("messages[{number}] is no object")));
        };
        match message.get("role").and_then(Json::as_str) {
            Some("system" | "user" | "assistant" | "tool") => {}
            // OpenAI's newer name for the role; templates know the older one.
            Some("developer") => drop(message.insert("role".to_owned(), "system".into())),
            _ => {
                return Err(wrong(format!(
                    "messages[{number}].role is none of system, user, assistant and tool"
                )));
            }
        }
        let content = text_of(message.get("content")).ok_or_else(|| {
            wrong(format!(
                "messages[{number}].content is no text, and no list of parts of the type text"
            ))
        })?;
        message.insert("content".to_owned(), content.into());
        Ok(Json::Object(message))
    };
    let messages = messages.into_iter().enumerate().map(plain);
    Ok(Prompt::Chat(messages.collect::<Result<_, _>>()?))
}

fn text_of(content: Option<&Json>) -> Option<String> {
    match content {
        // As in messages of an assistant that only calls tools.
        None | Some(Json::Null) => Some(String::new()),
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Array(parts)) => {
            let text = |part: &Json| {
                let is_text = part.get("type")? == "text";
                part.get("text")?.as_str().filter(|_| is_text).map(str::to_owned)
            };
            parts.iter().map(text).collect()
        }
        Some(_) => None,
    }
}

impl Fields {
    /// The model of a request, and the other fields.
    fn read(body: &[u8]) -> Result<(String, Self), Refused> {
        let json: Json =
            serde_json::from_slice(body).map_err(|e| Failure::invalid(format!("the body is no JSON: {e}")))?;
        let Json::Object(fields) = json else {
            return Err(Failure::invalid("the body is no JSON object").into());
        };
        // Fields that are null count as left out.
        let mut fields = Self(fields.into_iter().filter(|(_, value)| !value.is_null()).collect());
        let model = fields.text("model")?;
        let model = model.ok_or_else(|| Refused::field("model", "model is missing"))?;
        Ok((model, fields))
    }

    fn text(&mut self, name: &'static str) -> Result<Option<String>, Refused> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(Refused::field(name, format!("{name} is no text"))),
        }
    }

    fn truth(&mut self, name: &'static str) -> Result<Option<bool>, Refused> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Json::Bool(truth)) => Ok(Some(truth)),
            Some(_) => Err(Refused::field(name, format!("{name} is neither true nor false"))),
        }
    }

    fn count(&mut self, name: &'static str) -> Result<Option<usize>, Refused> {
        let Some(value) = self.0.remove(name) else {
            return Ok(None);
        };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count
            .map(Some)
            .ok_or_else(|| Refused::field(name, format!("{name} is {value}, and no whole number from 0 on")))
    }

    fn number(&mut self, name: &'static str, range: std::ops::RangeInclusive<f64>) -> Result<Option<f64>, Refused> {
        let Some(value) = self.0.remove(name) else {
            return Ok(None);
        };
        match value.as_f64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let least = if *range.start() > 0.0 { "above 0" } else { "from 0" };
                let message = format!("{name} is {value}, and no number {least} to {}", range.end());
                Err(Refused::field(name, message))
            }
        }
    }

    fn stops(&mut self) -> Result<Vec<String>, Refused> {
        let stops = match self.0.remove("stop") {
            None => Some(Vec::new()),
            Some(Json::String(stop)) => Some(vec![stop]),
            Some(Json::Array(stops)) => stops.iter().map(|stop| stop.as_str().map(str::to_owned)).collect(),
            Some(_) => None,
        };
        stops
            .filter(|stops| stops.len() <= MOST_STOPS && stops.iter().all(|stop| !stop.is_empty()))
            .ok_or_else(|| {
                Refused::field(
                    "stop",
                    format!("stop is no text and no list of up to {MOST_STOPS} texts"),
                )
            })
    }

    /// Fails if a field that requests something is left.
    fn finish(mut self) -> Result<(), Refused> {
        for (name, unwanted) in LACKING {
            if let Some(value) = self.0.remove(name)
                && !unwanted.contains(&&*value.to_string())
            {
                let message = format!("{name} is not offered here: leave it out");
                return Err(Refused::field(name, message));
            }
        }
        match self.0.keys().find(|name| !NOTES.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Failure::invalid(format!("the field {name:?} is not known: leave it out")).into()),
        }
    }
}
