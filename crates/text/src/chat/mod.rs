//! Turns chats into the texts that models were trained on, with the templates of their tokenizers.

mod clock;
mod json;
mod spans;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind as Fault, Output, State, Value as JinjaValue, context};
use polygrad_tensor::{Error, ErrorKind, Result};
use serde_json::Value;

const OP: &str = "chat_template";

/// The template's name in the environment.
const NAME: &str = "chat";

/// The most steps of a template: long chats take thousands of steps.
const MOST_STEPS: u64 = 20_000_000;

/// The keys of special tokens in `tokenizer_config.json` that templates may write.
const SPECIAL: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// Turns a chat into the text that a model was trained on, by the Jinja template that comes with its tokenizer.
///
/// A message is a JSON object with `role` (`system`, `user` or `assistant`) and `content`; further fields are passed to
/// the template, with the fields of objects in the order that `serde_json` keeps. The text contains its special tokens:
/// encode it with `special` false.
///
/// ```
/// use polygrad_text::ChatTemplate;
/// use serde_json::json;
/// # fn main() -> polygrad_tensor::Result<()> {
/// let template = ChatTemplate::new(
///     "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}\
///      {% if add_generation_prompt %}<assistant>{% endif %}",
/// )?
/// .token("eos_token", "</s>");
/// let chat = [json!({"role": "user", "content": "Hello"})];
/// assert_eq!(template.render(&chat, true)?, "<user>Hello</s><assistant>");
/// # Ok(())
/// # }
/// ```
pub struct ChatTemplate {
    environment: Environment<'static>,
    tokens: BTreeMap<String, String>,
    /// Whether the template marks the assistant's words itself.
    has_marks: bool,
}

impl ChatTemplate {
    /// Creates a template from its text.
    ///
    /// # Errors
    /// If it is not valid Jinja; the error has the line.
    pub fn new(source: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| failed(&e))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(MOST_STEPS));
        environment.set_formatter(as_python);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", json::tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", clock::strftime_now);
        let (source, has_marks) = spans::with_marks(source);
        environment.add_template_owned(NAME, source).map_err(|e| failed(&e))?;
        Ok(Self {
            environment,
            tokens: BTreeMap::new(),
            has_marks,
        })
    }

    /// Sets a special token by its name in templates, such as `bos_token`.
    #[must_use]
    pub fn token(mut self, name: impl Into<String>, token: impl Into<String>) -> Self {
        self.tokens.insert(name.into(), token.into());
        self
    }

    /// The template of a folder in the Hub's format: `chat_template.jinja`, otherwise `chat_template` in
    /// `tokenizer_config.json` (if there are several, the one called `default`), with the special tokens of the latter.
    /// `None` if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Option<Self>> {
        let read = |name: &str| {
            let path = folder.as_ref().join(name);
            let text = path.is_file().then(|| std::fs::read_to_string(&path));
            let text = text.transpose().map_err(|e| Error::io("read", &path, e))?;
            Ok::<_, Error>((path, text))
        };
        let (path, text) = read("tokenizer_config.json")?;
        let config: Value = text
            .map_or(Ok(Value::Null), |text| serde_json::from_str(&text))
            .map_err(|e| {
                Error::new(ErrorKind::Format, format!("{}: {e}", path.display()))
                    .with_op(OP)
                    .with_hint("get the file again from where the folder came from")
            })?;
        let own = read("chat_template.jinja")?.1;
        let Some(source) = own.or_else(|| named(&config["chat_template"])) else {
            return Ok(None);
        };
        let mut template = Self::new(&source).map_err(|e| {
            e.in_module(folder.as_ref().display().to_string())
                .with_hint("correct chat_template.jinja, or else the template in tokenizer_config.json")
        })?;
        for name in SPECIAL {
            let token = config[name].as_str().or_else(|| config[name]["content"].as_str());
            if let Some(token) = token {
                template = template.token(name, token);
            }
        }
        Ok(Some(template))
    }

    /// The files of a folder that [`ChatTemplate::from_folder`] may read.
    pub const FILES: [&str; 2] = ["chat_template.jinja", "tokenizer_config.json"];

    /// The text of a chat; with `add_generation_prompt`, up to the beginning of the assistant's next message.
    ///
    /// # Errors
    /// If a message is not an object with a role, or the template fails, for example because it rejects the order of
    /// roles.
    pub fn render(&self, messages: &[Value], add_generation_prompt: bool) -> Result<String> {
        self.marked(messages, add_generation_prompt, ["", ""])
    }

    /// The text of a chat, and the byte ranges in it that the assistant says. If the template has `{% generation %}`
    /// and `{% endgeneration %}`, these are the parts between them. Otherwise, they are the parts that each of the
    /// assistant's messages adds to the text of the messages before it, including the token after the message.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::render`]; if a template without those marks writes messages differently once others
    /// follow them.
    pub fn render_spans(&self, messages: &[Value]) -> Result<(String, Vec<Range<usize>>)> {
        match self.has_marks {
            true => spans::by_marks(self, messages),
            false => spans::by_prefixes(self, messages),
        }
    }

    fn marked(&self, messages: &[Value], add_generation_prompt: bool, marks: [&str; 2]) -> Result<String> {
        for (number, message) in messages.iter().enumerate() {
            if message["role"].as_str().is_none() {
                let text = format!("message {number} has no role");
                return Err(Error::invalid(text)
                    .with_op(OP)
                    .with_hint(r#"write each as {"role": "user", "content": "…"}"#));
            }
        }
        let template = self.environment.get_template(NAME).map_err(|e| failed(&e))?;
        let rest = context! {
            messages => Serde(messages),
            add_generation_prompt => add_generation_prompt,
            // The value of transformers if there are none.
            tools => (),
            documents => (),
            generation_begins => marks[0],
            generation_ends => marks[1],
        };
        template
            .render(context! { ..rest, ..Serde(&self.tokens) })
            .map_err(|e| failed(&e))
    }
}

/// The template, or the one called `default` of several.
fn named(template: &Value) -> Option<String> {
    let several = || template.as_array()?.iter().find(|entry| entry["name"] == "default");
    let text = template.as_str().or_else(|| several()?["template"].as_str());
    text.map(str::to_owned)
}

/// Writes None and booleans as Python does.
fn as_python(
    out: &mut Output<'_>,
    _: &mut State<'_, '_>,
    value: &JinjaValue,
) -> std::result::Result<(), minijinja::Error> {
    let written = match value.kind() {
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }),
        _ => write!(out, "{value}"),
    };
    written.map_err(minijinja::Error::from)
}

fn raise_exception(message: String) -> std::result::Result<JinjaValue, minijinja::Error> {
    Err(minijinja::Error::new(Fault::InvalidOperation, message))
}

fn failed(error: &minijinja::Error) -> Error {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let line = error
        .line()
        .map_or_else(String::new, |line| format!(" (line {line} of the template)"));
    Error::invalid(format!("{what}{line}")).with_op(OP)
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChatTemplate({:?})", self.tokens)
    }
}
