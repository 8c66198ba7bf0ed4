//! Checks the footer of a Parquet file before it is parsed, since the parser recurses for each level of the schema, and
//! allocates memory for the claimed number of children of a column.

/// The deepest nesting of a schema.
const MAX_DEPTH: usize = 64;

/// Bytes of Thrift's compact protocol.
struct Thrift<'a>(&'a [u8]);

// Types of the compact protocol.
const BOOLS: [u8; 2] = [1, 2];
const I8: u8 = 3;
const I32: u8 = 5;
const INTEGERS: std::ops::RangeInclusive<u8> = 4..=6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LISTS: std::ops::RangeInclusive<u8> = 9..=10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Whether the schema in a footer is a tree that can be traversed safely.
pub(super) fn sound(footer: &[u8]) -> bool {
    let mut sound = true;
    let walked = Thrift(footer).fields(&mut |thrift, id, kind| match (id, LISTS.contains(&kind)) {
        (2, true) => {
            let children = thrift.schema()?;
            sound &= tree(&children);
            Some(())
        }
        // The parser only looks at the id.
        (2, false) => None,
        _ => thrift.skip(kind, 0),
    });
    sound && walked.is_some()
}

/// Whether elements, given by their numbers of children, form one tree of limited depth.
fn tree(children: &[u64]) -> bool {
    // Number of children still to come at each level.
    let mut open: Vec<u64> = vec![1];
    for &count in children {
        match open.last_mut() {
            Some(left) => *left -= 1,
            None => return false,
        }
        if count > children.len() as u64 || open.len() > MAX_DEPTH {
            return false;
        }
        open.push(count);
        while open.last() == Some(&0) {
            open.pop();
        }
    }
    open.is_empty()
}

impl Thrift<'_> {
    fn take(&mut self, count: u64) -> Option<u8> {
        let count = usize::try_from(count).ok().filter(|&count| count <= self.0.len())?;
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(taken.first().copied().unwrap_or(0))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Calls `value` for each field of a struct with its id and type; `value` must consume the field.
    fn fields(&mut self, value: &mut dyn FnMut(&mut Self, u64, u8) -> Option<()>) -> Option<()> {
        let mut id = 0;
        loop {
            let head = self.take(1)?;
            if head == 0 {
                return Some(());
            }
            id = match head >> 4 {
                // Zigzag encoding, in which odd numbers are negative.
                0 => Some(self.varint()?).filter(|id| id.is_multiple_of(2))? >> 1,
                step => id + u64::from(step),
            };
            // The parser would truncate it.
            if id > i16::MAX as u64 {
                return None;
            }
            value(self, id, head & 15)?;
        }
    }

    /// The number of elements of a list, and their type.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.take(1)?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Some((count, head & 15))
    }

    /// The number of children of each element of the schema.
    fn schema(&mut self) -> Option<Vec<u64>> {
        let (count, kind) = self.list()?;
        let mut all = Vec::new();
        for _ in 0..count {
            let mut children = 0;
            if kind != STRUCT {
                return None;
            }
            self.fields(&mut |thrift, id, kind| match (id, kind) {
                (5, I32) => {
                    children = thrift.varint()? >> 1;
                    Some(())
                }
                (5, _) => None,
                _ => thrift.skip(kind, 0),
            })?;
            all.push(children);
        }
        Some(all)
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            _ if BOOLS.contains(&kind) => {}
            I8 => _ = self.take(1)?,
            DOUBLE => _ = self.take(8)?,
            BINARY => {
                let length = self.varint()?;
                self.take(length)?;
            }
            MAP => match self.varint()? {
                0 => {}
                count => {
                    let kinds = self.take(1)?;
                    for _ in 0..count {
                        self.element(kinds >> 4, depth)?;
                        self.element(kinds & 15, depth)?;
                    }
                }
            },
            STRUCT => self.fields(&mut |thrift, _, kind| thrift.skip(kind, depth + 1))?,
            _ if INTEGERS.contains(&kind) => _ = self.varint()?,
            _ if LISTS.contains(&kind) => {
                let (count, kind) = self.list()?;
                for _ in 0..count {
                    self.element(kind, depth)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Skips an element of a list or a map, in which a boolean takes a byte.
    fn element(&mut self, kind: u8, depth: usize) -> Option<()> {
        match BOOLS.contains(&kind) {
            true => self.take(1).map(|_| ()),
            false => self.skip(kind, depth + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer that contains only a schema of elements with these numbers of children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x29, 0xfc, children.len() as u8];
        for &count in children {
            bytes.extend([0x55, 2 * count, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn only_trees_are_walked() {
        assert!(sound(&footer(&[2, 0, 1, 0])));
        assert!(!sound(&footer(&[2, 0, 1])));
        assert!(!sound(&footer(&[1, 0, 0])));
        assert!(!sound(&footer(&[63, 0])));
        let deep = |depth| [vec![1; depth], vec![0]].concat();
        assert!(sound(&footer(&deep(60))));
        assert!(!sound(&footer(&deep(100))));
        // Ids that the parser takes for others: one beyond 16 bits, and a negative one; a number of children of another
        // type.
        let deep = footer(&deep(100));
        let as_another = |id: &[u8]| [&[0x09], id, &deep[1..]].concat();
        assert!(!sound(&as_another(&[0x04])), "id 2 in full");
        assert!(!sound(&as_another(&[0x84, 0x80, 0x08])));
        assert!(!sound(&[&[0x09, 0x05, 0x0c, 0x59], &deep[1..]].concat()));
        let mut wide = footer(&[0]);
        wide[3] = 0x56;
        assert!(!sound(&wide));
        let whole = footer(&[2, 0, 1, 0]);
        assert!((0..whole.len()).all(|end| !sound(&whole[..end])));
    }
}
