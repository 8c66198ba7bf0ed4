//! Protobuf messages as trees of fields that can be changed and encoded again.

use polygrad_testing::fuzz::Random;

/// A field: its number and content.
struct Field {
    number: u64,
    content: Content,
}

enum Content {
    Varint(u64),
    Fixed(Vec<u8>, u64),
    Bytes(Vec<u8>),
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for i in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << (7 * i).min(63);
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

fn parse(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let mut take = |count: usize| {
            let (taken, rest) = (bytes.get(..count)?.to_vec(), &bytes[count..]);
            bytes = rest;
            Some(taken)
        };
        let content = match key & 7 {
            0 => Content::Varint(varint(&mut bytes)?),
            1 => Content::Fixed(take(8)?, 1),
            5 => Content::Fixed(take(4)?, 5),
            2 => {
                let count = varint(&mut bytes)? as usize;
                let (taken, rest) = (bytes.get(..count)?.to_vec(), &bytes[count..]);
                bytes = rest;
                Content::Bytes(taken)
            }
            _ => return None,
        };
        fields.push(Field {
            number: key >> 3,
            content,
        });
    }
    Some(fields)
}

fn print(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for Field { number, content } in fields {
        match content {
            Content::Varint(value) => {
                put_varint(&mut out, number << 3);
                put_varint(&mut out, *value);
            }
            Content::Fixed(bytes, wire) => {
                put_varint(&mut out, number << 3 | wire);
                out.extend(bytes);
            }
            Content::Bytes(bytes) => {
                put_varint(&mut out, number << 3 | 2);
                put_varint(&mut out, bytes.len() as u64);
                out.extend(bytes);
            }
        }
    }
    out
}

/// Numbers that tend to break code.
const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    11,
    16,
    127,
    1 << 16,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 40,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
    u64::MAX - 1,
];

/// A message with one field changed, at any depth; `None` if it is no message.
pub(crate) fn mutate(bytes: &[u8], other: &[u8], random: &mut Random, depth: usize) -> Option<Vec<u8>> {
    let mut fields = parse(bytes)?;
    if fields.is_empty() {
        return None;
    }
    let at = random.below(fields.len());
    if depth < 8
        && random.below(8) != 0
        && let Content::Bytes(inner) = &fields[at].content
        && let Some(changed) = mutate(inner, other, random, depth + 1)
    {
        fields[at].content = Content::Bytes(changed);
        return Some(print(&fields));
    }
    match random.below(8) {
        0 => drop(fields.remove(at)),
        1 => {
            let copy = Field {
                number: fields[at].number,
                content: fields[at].content.copy(),
            };
            fields.insert(at, copy);
        }
        2 => {
            let to = random.below(fields.len());
            fields.swap(at, to);
        }
        3 => fields[at].number = 1 + random.below(26) as u64,
        _ => match &mut fields[at].content {
            Content::Varint(value) => {
                *value = match random.below(3) {
                    0 => value.wrapping_add(random.below(5) as u64).wrapping_sub(2),
                    _ => NUMBERS[random.below(NUMBERS.len())],
                }
            }
            Content::Fixed(bytes, _) => {
                let i = random.below(bytes.len());
                bytes[i] = random.below(256) as u8;
            }
            Content::Bytes(bytes) => match random.below(4) {
                0 => bytes.truncate(random.below(bytes.len() + 1)),
                1 if !bytes.is_empty() => {
                    let i = random.below(bytes.len());
                    bytes[i] = random.below(256) as u8;
                }
                2 => put_varint(bytes, NUMBERS[random.below(NUMBERS.len())]),
                _ => {
                    let start = random.below(other.len() + 1);
                    let end = (start + random.below(64)).min(other.len());
                    *bytes = other[start..end].to_vec();
                }
            },
        },
    }
    Some(print(&fields))
}

impl Content {
    fn copy(&self) -> Self {
        match self {
            Self::Varint(value) => Self::Varint(*value),
            Self::Fixed(bytes, wire) => Self::Fixed(bytes.clone(), *wire),
            Self::Bytes(bytes) => Self::Bytes(bytes.clone()),
        }
    }
}
