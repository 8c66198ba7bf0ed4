//! JSON as Python writes it.

use std::io;

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The filter `tojson`: `json.dumps(value, ensure_ascii=False, indent=indent)`.
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(count) => {
            let indent = " ".repeat(count.min(64));
            let pretty = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, pretty))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Spaced)),
    };
    let failed = |error: &dyn std::fmt::Display| Error::new(ErrorKind::BadSerialization, error.to_string());
    written.map_err(|e| failed(&e))?;
    String::from_utf8(out).map_err(|e| failed(&e))
}

/// A single line, with a space after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
