//! Finds the parts of a chat's text that the assistant says.

use std::ops::Range;

use polygrad_tensor::{Error, Result};
use serde_json::Value;

use super::{ChatTemplate, OP};

/// Marks around the assistant's words. Unicode reserves these code points for use within a program.
const MARKS: [char; 2] = ['\u{FDD0}', '\u{FDD1}'];

/// The template, with its `{% generation %}` and `{% endgeneration %}`, which are not Jinja, replaced by blocks that
/// write a mark; and whether it has any.
pub(super) fn with_marks(source: &str) -> (String, bool) {
    let (mut out, mut rest, mut found) = (String::with_capacity(source.len()), source, false);
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let end = start + length + 2;
        let inner = &rest[start + 2..end - 2];
        let (left, inner) = dash(inner, inner.strip_prefix(['-', '+']), 0);
        let (right, inner) = dash(inner, inner.strip_suffix(['-', '+']), inner.len().saturating_sub(1));
        // Two blocks, so that the space on each side is kept or trimmed as with the original block.
        let blocks = match inner.trim() {
            "generation" => {
                format!("{{%{left} if true -%}}{{{{ generation_begins }}}}{{%- if true {right}%}}")
            }
            "endgeneration" => {
                format!("{{%{left} endif -%}}{{{{ generation_ends }}}}{{%- endif {right}%}}")
            }
            _ => rest[start..end].to_owned(),
        };
        found |= inner.trim() == "generation";
        out += &rest[..start];
        out += &blocks;
        rest = &rest[end..];
    }
    (out + rest, found)
}

/// The sign at `at` and the text `without` it, if there is such a sign.
fn dash<'a>(inner: &'a str, without: Option<&'a str>, at: usize) -> (&'a str, &'a str) {
    without.map_or(("", inner), |without| (&inner[at..=at], without))
}

/// Finds them by the marks that the template writes.
pub(super) fn by_marks(template: &ChatTemplate, messages: &[Value]) -> Result<(String, Vec<Range<usize>>)> {
    if template.render(messages, false)?.contains(MARKS) {
        return Err(Error::invalid("a message has U+FDD0 or U+FDD1, which are no characters").with_op(OP));
    }
    let [begins, ends] = MARKS.map(String::from);
    let marked = template.marked(messages, false, [&begins, &ends])?;
    let (mut text, mut spans, mut from) = (String::with_capacity(marked.len()), Vec::new(), None);
    for c in marked.chars() {
        match (c, from) {
            (c, None) if c == MARKS[0] => from = Some(text.len()),
            (c, Some(start)) if c == MARKS[1] => {
                spans.push(start..text.len());
                from = None;
            }
            (c, _) if MARKS.contains(&c) => {
                return Err(Error::invalid("the template has one {% generation %} within another").with_op(OP));
            }
            (c, _) => text.push(c),
        }
    }
    Ok((text, spans))
}

/// Finds them by the text that each message of the assistant adds.
pub(super) fn by_prefixes(template: &ChatTemplate, messages: &[Value]) -> Result<(String, Vec<Range<usize>>)> {
    let text = template.render(messages, false)?;
    let mut spans = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        if message["role"] != "assistant" {
            continue;
        }
        let [before, with] = [
            template.render(&messages[..number], true)?,
            template.render(&messages[..=number], false)?,
        ];
        if !(with.starts_with(&before) && text.starts_with(&with)) {
            let what = format!("the text of the chat up to message {number} is not how the text of all of it begins");
            return Err(Error::invalid(what).with_op(OP).with_hint(
                "mark what the assistant says with {% generation %} and {% endgeneration %} in chat_template.jinja, or \
                 give each chat one message of the assistant, at its end",
            ));
        }
        spans.push(before.len()..with.len());
    }
    Ok((text, spans))
}
