//! The virtual machine that executes pickles.

use std::collections::HashMap;

use polygrad_tensor::{Error, Result};

use super::{Heap, Object, Value, refused};
use crate::source::damaged;

/// The newest pickle protocol.
const MAX_PROTOCOL: u8 = 5;

/// Why a machine stopped before the pickle's end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// There are no more bytes.
    Short,
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Step<T> = std::result::Result<T, Stopped>;

/// A pickle machine on bytes that contain one pickle after another.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    pub(crate) heap: Heap,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    /// The states set as attributes of dicts.
    pub(crate) attributes: Vec<Value>,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            heap: Heap::default(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            attributes: Vec::new(),
        }
    }

    /// Number of bytes read so far.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Runs the next pickle, and returns its result.
    pub(crate) fn run(&mut self) -> Step<Value> {
        self.stack.clear();
        self.marks.clear();
        self.memo.clear();
        loop {
            let opcode = self.byte()?;
            if opcode == b'.' {
                return Ok(self.pop()?);
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: u8) -> Step<()> {
        match opcode {
            // PROTO, FRAME
            0x80 => match self.byte()? {
                version if version <= MAX_PROTOCOL => {}
                version => {
                    let what = format!("its pickle is of protocol {version}, and known are 0 to {MAX_PROTOCOL}");
                    return Err(Error::unsupported(what)
                        .with_hint("save it with pickle_protocol=2")
                        .into());
                }
            },
            0x95 => {
                self.take(8)?;
            }
            // MARK, POP, POP_MARK, DUP
            b'(' => {
                self.heap.count(1)?;
                self.marks.push(self.stack.len());
            }
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                self.marked()?;
            }
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'I' | b'J' | b'K' | b'L' | b'M' | b'F' | b'G' | 0x8a | 0x8b => self.number(opcode)?,
            b'S' | b'V' => self.text_line(opcode)?,
            b'U' | b'T' | b'X' | 0x8c | 0x8d | b'B' | b'C' | 0x8e | 0x96 => self.text(opcode)?,
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => self.stack_global()?,
            // Containers.
            b']' | 0x8f => self.make(Object::List(Vec::new()))?,
            b')' => self.make(Object::Tuple(Vec::new()))?,
            b'}' => self.make(Object::Dict(Vec::new()))?,
            b'l' | 0x91 => {
                let values = self.marked()?;
                self.make(Object::List(values))?;
            }
            b't' => {
                let values = self.marked()?;
                self.make(Object::Tuple(values))?;
            }
            b'd' => {
                let values = self.marked()?;
                self.make(Object::Dict(Vec::new()))?;
                self.set_items(values)?;
            }
            0x85..=0x87 => {
                let from = self.depth(usize::from(opcode - 0x84))?;
                let values = self.stack.split_off(from);
                self.heap.count(values.len())?;
                self.make(Object::Tuple(values))?;
            }
            b'a' => {
                let value = self.pop()?;
                self.append(vec![value])?;
            }
            b'e' | 0x90 => {
                let values = self.marked()?;
                self.append(values)?;
            }
            b's' => {
                let from = self.depth(2)?;
                let values = self.stack.split_off(from);
                self.set_items(values)?;
            }
            b'u' => {
                let values = self.marked()?;
                self.set_items(values)?;
            }
            // The memo: PUT, BINPUT, LONG_BINPUT, MEMOIZE, GET, BINGET, LONG_BINGET
            b'p' | b'q' | b'r' | 0x94 | b'g' | b'h' | b'j' => self.memo(opcode)?,
            // Calls: REDUCE, NEWOBJ, NEWOBJ_EX, BUILD, BINPERSID, PERSID
            b'R' | 0x81 => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                let made = self.heap.call(callable, arguments, opcode == 0x81)?;
                self.push(made)?;
            }
            0x92 => {
                let from = self.depth(3)?;
                let given = self.stack.split_off(from);
                let made = self.heap.foreign(given[0], &given[1..])?;
                self.push(made)?;
            }
            b'b' => {
                let (state, object) = (self.pop()?, self.top()?);
                self.build(object, state)?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.heap.storage(id)?;
                self.push(storage)?;
            }
            b'P' => {
                let id = self.line()?;
                let storage = self.heap.storage_of_line(id)?;
                self.push(storage)?;
            }
            // INST
            b'i' => {
                let (module, name) = (self.line()?, self.line()?);
                let why = "its pickle makes it with the opcode INST, which tensors and containers do not need";
                return Err(refused(&format!("{module}.{name}"), why).into());
            }
            other => return Err(unknown(other).into()),
        }
        Ok(())
    }

    // Reading the pickle's bytes.

    fn take(&mut self, count: usize) -> Step<&'a [u8]> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        let taken = taken.ok_or(Stopped::Short)?;
        self.at += count;
        Ok(taken)
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian unsigned number of `width` bytes; more than 64 bits exceed any length.
    fn unsigned(&mut self, width: usize) -> Step<usize> {
        let bytes = self.take(width)?;
        let number = bytes
            .iter()
            .rev()
            .fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        Ok(usize::try_from(number).unwrap_or(usize::MAX))
    }

    fn line_of_bytes(&mut self) -> Step<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == b'\n').ok_or(Stopped::Short)?;
        let line = self.take(end)?;
        self.at += 1;
        Ok(line)
    }

    fn line(&mut self) -> Step<&'a str> {
        let line = self.line_of_bytes()?;
        Ok(std::str::from_utf8(line).map_err(|_| damaged("its pickle has a line that is not UTF-8"))?)
    }

    // The stack.

    /// The index on the stack of the topmost `count` values, which must all be above the last mark.
    fn depth(&self, count: usize) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|&from| from >= floor);
        from.ok_or_else(|| damaged("its pickle takes more from its stack than is there"))
    }

    fn pop(&mut self) -> Result<Value> {
        let from = self.depth(1)?;
        let value = self.stack[from];
        self.stack.truncate(from);
        Ok(value)
    }

    fn top(&self) -> Result<Value> {
        Ok(self.stack[self.depth(1)?])
    }

    /// Counts pushed values, so that the stack cannot grow without limit.
    fn push(&mut self, value: Value) -> Result<()> {
        self.heap.count(1)?;
        self.stack.push(value);
        Ok(())
    }

    fn marked(&mut self) -> Result<Vec<Value>> {
        let mark = self
            .marks
            .pop()
            .ok_or_else(|| damaged("its pickle asks for a mark that it did not set"))?;
        let values = self.stack.split_off(mark);
        self.heap.count(values.len())?;
        Ok(values)
    }

    fn make(&mut self, object: Object) -> Result<()> {
        let made = self.heap.add(object)?;
        self.push(made)
    }

    // Groups of opcodes.

    fn number(&mut self, opcode: u8) -> Step<()> {
        let value = match opcode {
            b'J' => Value::Int(i64::from(self.unsigned(4)? as u32 as i32)),
            b'K' => Value::Int(self.unsigned(1)? as i64),
            b'M' => Value::Int(self.unsigned(2)? as i64),
            b'G' => {
                let bytes = self.take(8)?.first_chunk().copied().unwrap_or_default();
                Value::Float(f64::from_be_bytes(bytes))
            }
            b'I' => match self.line()? {
                "00" => Value::Bool(false),
                "01" => Value::Bool(true),
                text => return self.digits(text),
            },
            b'L' => {
                let text = self.line()?;
                return self.digits(text.strip_suffix('L').unwrap_or(text));
            }
            b'F' => Value::Float(self.line()?.parse().map_err(|_| no_number())?),
            _ => {
                let length = self.unsigned(if opcode == 0x8a { 1 } else { 4 })?;
                let bytes = self.take(length)?;
                if bytes.len() > 8 {
                    return Ok(self.make(Object::Large)?);
                }
                let sign = if bytes.last().is_some_and(|&byte| byte >= 128) {
                    255
                } else {
                    0
                };
                let mut wide = [sign; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                Value::Int(i64::from_le_bytes(wide))
            }
        };
        Ok(self.push(value)?)
    }

    /// An integer in decimal digits.
    fn digits(&mut self, text: &str) -> Step<()> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(no_number().into());
        }
        match text.parse() {
            Ok(number) => self.push(Value::Int(number))?,
            Err(_) => self.make(Object::Large)?,
        }
        Ok(())
    }

    /// A text on a line of its own, as in protocol 0: Python's `raw-unicode-escape`, or `repr` of Python 2's bytes.
    fn text_line(&mut self, opcode: u8) -> Step<()> {
        let wrong = || damaged("its pickle has a text that cannot be read");
        // Each byte is a character.
        let line: String = self.line_of_bytes()?.iter().map(|&byte| char::from(byte)).collect();
        let (line, escapes) = match opcode {
            b'V' => (line.as_str(), "uU"),
            _ => {
                let quote = line
                    .chars()
                    .next()
                    .filter(|c| matches!(c, '\'' | '"'))
                    .ok_or_else(wrong)?;
                let inner = line[1..].strip_suffix(quote).ok_or_else(wrong)?;
                (inner, "x\\'\"nrt")
            }
        };
        let (mut text, mut rest) = (String::new(), line.chars());
        while let Some(c) = rest.next() {
            let escape = rest.clone().next().filter(|&next| c == '\\' && escapes.contains(next));
            let Some(escape) = escape else {
                text.push(c);
                continue;
            };
            rest.next();
            let digits = match escape {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                'n' | 'r' | 't' => {
                    text.push(match escape {
                        'n' => '\n',
                        'r' => '\r',
                        _ => '\t',
                    });
                    continue;
                }
                other => {
                    text.push(other);
                    continue;
                }
            };
            let code = rest.as_str().get(..digits).ok_or_else(wrong)?;
            let code = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
            text.push(code.ok_or_else(wrong)?);
            rest = rest.as_str()[digits..].chars();
        }
        Ok(self.make(Object::Text(text))?)
    }

    fn text(&mut self, opcode: u8) -> Step<()> {
        let width = match opcode {
            b'U' | b'C' | 0x8c => 1,
            b'T' | b'B' | b'X' => 4,
            _ => 8,
        };
        let length = self.unsigned(width)?;
        let bytes = self.take(length)?;
        let made = match opcode {
            b'B' | b'C' | 0x8e | 0x96 => Object::Bytes,
            // Python 2's texts are bytes.
            b'U' | b'T' => Object::Text(String::from_utf8_lossy(bytes).into_owned()),
            _ => match std::str::from_utf8(bytes) {
                Ok(text) => Object::Text(text.to_owned()),
                Err(_) => return Err(damaged("its pickle has a text that is not UTF-8").into()),
            },
        };
        Ok(self.make(made)?)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        self.make(Object::Global(format!("{module}.{name}")))
    }

    fn stack_global(&mut self) -> Step<()> {
        let (name, module) = (self.pop()?, self.pop()?);
        let texts = self.heap.text(module).zip(self.heap.text(name));
        let (module, name) = texts.ok_or_else(|| damaged("its pickle names a global by what is no text"))?;
        let name = format!("{module}.{name}");
        Ok(self.make(Object::Global(name))?)
    }

    fn memo(&mut self, opcode: u8) -> Step<()> {
        let key = match opcode {
            b'q' | b'h' => self.unsigned(1)?,
            b'r' | b'j' => self.unsigned(4)?,
            b'p' | b'g' => self.line()?.parse().map_err(|_| no_number())?,
            _ => self.memo.len(),
        } as u32;
        match opcode {
            b'g' | b'h' | b'j' => {
                let value = self.memo.get(&key).copied();
                let value = value.ok_or_else(|| damaged("its pickle asks its memo for what it did not put there"))?;
                Ok(self.push(value)?)
            }
            _ => {
                self.heap.count(1)?;
                self.memo.insert(key, self.top()?);
                Ok(())
            }
        }
    }

    fn append(&mut self, mut values: Vec<Value>) -> Result<()> {
        let list = self.top()?;
        self.heap.count(values.len())?;
        match self.heap.get_mut(list) {
            Some(Object::List(list) | Object::Foreign { parts: list, .. }) => {
                list.append(&mut values);
                Ok(())
            }
            _ => Err(self.wrong("appends to", list)),
        }
    }

    fn set_items(&mut self, values: Vec<Value>) -> Result<()> {
        let dict = self.top()?;
        self.heap.count(values.len())?;
        let (pairs, rest) = values.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(damaged("its pickle has a key without a value"));
        }
        match self.heap.get_mut(dict) {
            Some(Object::Dict(dict)) => dict.extend(pairs.iter().map(|&[key, value]| (key, value))),
            Some(Object::Foreign { parts, .. }) => parts.extend(values),
            _ => return Err(self.wrong("sets an item of", dict)),
        }
        Ok(())
    }

    /// Gives an object its state: a foreign object gets one more part; a dict gets attributes, which are not among its
    /// items.
    fn build(&mut self, object: Value, state: Value) -> Result<()> {
        self.heap.count(1)?;
        match self.heap.get_mut(object) {
            Some(Object::Dict(_)) => self.attributes.push(state),
            Some(Object::Foreign { parts, .. }) => parts.push(state),
            _ => return Err(self.wrong("sets the attributes of", object)),
        }
        Ok(())
    }

    fn wrong(&self, does: &str, value: Value) -> Error {
        match self.heap.global(value) {
            Some(global) => refused(global, &format!("its pickle {does} it")),
            None => damaged(format!("its pickle {does} {}", self.heap.describe(value))),
        }
    }
}

#[cold]
fn no_number() -> Error {
    damaged("its pickle has a number that is none")
}

#[cold]
fn unknown(opcode: u8) -> Error {
    let name = match opcode {
        b'o' => "OBJ",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return damaged(format!("its pickle has the byte {opcode:#04x}, which is no opcode")),
    };
    Error::unsupported(format!(
        "its pickle has the opcode {name}, which tensors and containers do not need"
    ))
    .with_hint("save the state dict alone with torch.save")
}
