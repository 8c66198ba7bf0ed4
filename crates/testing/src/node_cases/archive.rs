//! Archives that scripts/onnx_cases.py and scripts/pytorch_exports.py write.

use std::fs::File;
use std::io::Read;

use polygrad_onnx::Value;
use polygrad_onnx::graph::Literal;
use polygrad_tensor::Result;

/// A value of a case in an archive.
pub enum Item {
    /// The tensor with this index.
    Tensor(usize),
    /// Several values in order.
    Sequence(Vec<Item>),
    /// No value.
    Absent,
}

impl Item {
    /// Adds `by` to all tensor indices.
    fn shift(&mut self, by: usize) {
        match self {
            Self::Tensor(number) => *number += by,
            Self::Sequence(items) => items.iter_mut().for_each(|item| item.shift(by)),
            Self::Absent => {}
        }
    }
}

/// One case: a model, inputs and the outputs for them.
pub struct Case {
    /// The name of the case.
    pub name: String,
    /// Whether it counts towards the bar for ordinary ops.
    pub ordinary: bool,
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance, in addition.
    pub atol: f64,
    /// The ONNX file.
    pub model: Vec<u8>,
    /// Sets of inputs and their outputs.
    pub sets: Vec<(Vec<Item>, Vec<Item>)>,
}

/// A file of cases.
pub struct Archive {
    blobs: Vec<Vec<u8>>,
    /// All cases.
    pub cases: Vec<Case>,
}

impl Archive {
    /// Reads an archive. It is part of the tests, so a damaged archive is a panic.
    pub fn read(name: &str) -> Self {
        let file = File::open(super::data().join(name)).expect("the archive of cases is checked in");
        let mut data = Vec::new();
        flate2::read::GzDecoder::new(file)
            .read_to_end(&mut data)
            .expect("the archive is whole");
        let mut reader = Reader(&data);
        assert_eq!(reader.take(8), b"ONNXCASE");
        let blobs = reader.list(|r| r.blob());
        let cases = reader.list(|r| Case {
            name: r.text(),
            ordinary: r.take(1) == [1],
            rtol: r.real(),
            atol: r.real(),
            model: r.blob(),
            sets: r.list(|r| (r.list(Reader::item), r.list(Reader::item))),
        });
        Self { blobs, cases }
    }

    /// The cases of two files.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let before = self.blobs.len();
        self.blobs.extend(other.blobs);
        self.cases.extend(other.cases.into_iter().map(|mut case| {
            let items = case
                .sets
                .iter_mut()
                .flat_map(|(inputs, outputs)| inputs.iter_mut().chain(outputs));
            items.for_each(|item| item.shift(before));
            case
        }));
        self
    }

    /// A value of one of its cases.
    ///
    /// # Errors
    /// A tensor that cannot be decoded.
    pub fn value(&self, item: &Item) -> Result<Value> {
        Ok(match item {
            Item::Tensor(blob) => Literal::decode(self.blobs[*blob].clone())?.1.into(),
            Item::Sequence(items) => Value::sequence(items.iter().map(|item| self.value(item)).collect::<Result<_>>()?),
            Item::Absent => Value::absent(),
        })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> usize {
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes")) as usize
    }

    fn real(&mut self) -> f64 {
        f64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    fn blob(&mut self) -> Vec<u8> {
        let count = self.number();
        self.take(count).to_vec()
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.blob()).expect("names are UTF-8")
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.number()).map(|_| read(self)).collect()
    }

    fn item(&mut self) -> Item {
        match self.take(1)[0] {
            0 => Item::Tensor(self.number()),
            1 => Item::Sequence(self.list(Self::item)),
            _ => Item::Absent,
        }
    }
}
