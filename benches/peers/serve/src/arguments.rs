//! The command line.

use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;

use crate::{Error, USAGE};

/// The options of `load`.
pub struct Load {
    /// HOST:PORT.
    pub address: String,
    /// Including its leading slash.
    pub path: String,
    pub body: Bytes,
    pub headers: Vec<(String, String)>,
    pub grpc: bool,
    pub clients: usize,
    /// Arrivals per second; if absent, each client sends its next request after an answer.
    pub rate: Option<f64>,
    pub seconds: Duration,
    pub warmup: Duration,
    pub deadline: Option<Duration>,
}

/// The options of a server.
pub struct Serve {
    pub port: u16,
    pub width: usize,
}

fn number<T: FromStr>(word: &str, value: &str) -> Result<T, Error> {
    value
        .parse()
        .map_err(|_| format!("{word} takes a number, not {value:?}").into())
}

fn span(word: &str, value: &str, unit: f64) -> Result<Duration, Error> {
    let count: f64 = number(word, value)?;
    Duration::try_from_secs_f64(count * unit).map_err(|e| format!("{word} {value}: {e}").into())
}

/// Each option with its value.
fn options(words: &[String]) -> Result<Vec<(&str, &str)>, Error> {
    let mut found = Vec::new();
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        let value = match word {
            "--grpc" => "",
            _ => rest.next().ok_or_else(|| format!("{word} wants a value\n{USAGE}"))?,
        };
        found.push((word, value));
    }
    Ok(found)
}

impl Load {
    pub fn read(words: &[String]) -> Result<Self, Error> {
        let mut asked = Self {
            address: String::new(),
            path: String::new(),
            body: Bytes::new(),
            headers: Vec::new(),
            grpc: false,
            clients: 1,
            rate: None,
            seconds: Duration::from_secs(5),
            warmup: Duration::from_secs(1),
            deadline: None,
        };
        for (word, value) in options(words)? {
            match word {
                "--url" => {
                    let rest = value.strip_prefix("http://").unwrap_or(value);
                    let (address, path) = rest.split_once('/').ok_or("--url wants HOST:PORT/PATH")?;
                    (asked.address, asked.path) = (address.to_owned(), format!("/{path}"));
                }
                "--body" => {
                    let read = std::fs::read(value).map_err(|e| format!("cannot read {value}: {e}"))?;
                    asked.body = read.into();
                }
                "--header" => {
                    let (name, value) = value.split_once(": ").ok_or("--header wants 'NAME: VALUE'")?;
                    asked.headers.push((name.to_owned(), value.to_owned()));
                }
                "--grpc" => asked.grpc = true,
                "--clients" => asked.clients = number(word, value)?,
                "--rate" => asked.rate = Some(number(word, value)?),
                "--seconds" => asked.seconds = span(word, value, 1.0)?,
                "--warmup" => asked.warmup = span(word, value, 1.0)?,
                "--deadline-ms" => asked.deadline = Some(span(word, value, 1e-3)?),
                _ => return Err(format!("there is no option {word}\n{USAGE}").into()),
            }
        }
        if asked.address.is_empty() || asked.clients == 0 || asked.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0)
        {
            return Err(format!("load wants --url, at least one of --clients, and a --rate above 0\n{USAGE}").into());
        }
        Ok(asked)
    }
}

impl Serve {
    pub fn read(words: &[String]) -> Result<Self, Error> {
        let mut asked = Self { port: 0, width: 64 };
        for (word, value) in options(words)? {
            match word {
                "--port" => asked.port = number(word, value)?,
                "--width" => asked.width = number(word, value)?,
                _ => return Err(format!("there is no option {word}\n{USAGE}").into()),
            }
        }
        match asked.port {
            0 => Err(format!("--port is missing\n{USAGE}").into()),
            _ => Ok(asked),
        }
    }
}
