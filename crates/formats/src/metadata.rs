//! Metadata of files.

use std::fmt;

/// A value of a file's metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A bool.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A real number.
    Float(f64),
    /// A text.
    Text(String),
    /// An array.
    List(Vec<Value>),
}

impl Value {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is an integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::Int(number) => Some(number),
            Self::UInt(number) => i64::try_from(number).ok(),
            _ => None,
        }
    }

    /// The number, including integers.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::Int(number) => Some(number as f64),
            Self::UInt(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            _ => None,
        }
    }

    /// The elements, if it is an array.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }
}

/// Displays texts unquoted, and the first few elements of an array.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::UInt(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => f.write_str(value),
            Self::List(values) => {
                let shown: Vec<String> = values.iter().take(SHOWN).map(ToString::to_string).collect();
                let more = if values.len() > SHOWN { ", …" } else { "" };
                write!(f, "[{}{more}]", shown.join(", "))
            }
        }
    }
}

/// A file's metadata: values by name, in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(Vec<(String, Value)>);

impl Metadata {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// All names and values, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}
