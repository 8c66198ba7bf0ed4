//! Deserialization of a row's cells with serde.

use parquet::record::Field;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// A cell or a nested value. A null is NaN for a number, and otherwise `None`.
pub(super) struct Cell(pub(super) Field);

impl<'de> Deserializer<'de> for Cell {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Field::Null => visitor.visit_unit(),
            Field::Bool(x) => visitor.visit_bool(x),
            Field::Byte(x) => visitor.visit_i8(x),
            Field::Short(x) => visitor.visit_i16(x),
            Field::Int(x) | Field::Date(x) | Field::TimeMillis(x) => visitor.visit_i32(x),
            Field::Long(x) | Field::TimeMicros(x) | Field::TimestampMillis(x) | Field::TimestampMicros(x) => {
                visitor.visit_i64(x)
            }
            Field::UByte(x) => visitor.visit_u8(x),
            Field::UShort(x) => visitor.visit_u16(x),
            Field::UInt(x) => visitor.visit_u32(x),
            Field::ULong(x) => visitor.visit_u64(x),
            Field::Float16(x) => visitor.visit_f32(x.to_f32()),
            Field::Float(x) => visitor.visit_f32(x),
            Field::Double(x) => visitor.visit_f64(x),
            decimal @ Field::Decimal(_) => match decimal.to_string().parse() {
                Ok(x) => visitor.visit_f64(x),
                Err(_) => Err(Error::custom(format!("{decimal} is no number"))),
            },
            Field::Str(text) => visitor.visit_string(text),
            Field::Bytes(bytes) => visitor.visit_byte_buf(bytes.data().to_vec()),
            Field::Group(row) => visitor.visit_map(Cells::new(row.into_columns())),
            Field::ListInternal(list) => {
                let elements = list.elements().iter().map(|element| Self(element.clone()));
                visitor.visit_seq(SeqDeserializer::new(elements))
            }
            Field::MapInternal(map) => {
                let entries = map.entries().iter().cloned();
                visitor.visit_map(MapDeserializer::new(
                    entries.map(|(key, value)| (Self(key), Self(value))),
                ))
            }
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Field::Null => visitor.visit_f64(f64::NAN),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Field::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Field::Str(name) => visitor.visit_enum(name.into_deserializer()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    /// Old writers do not mark text as such.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0 {
            Field::Bytes(bytes) => visitor.visit_str(bytes.as_utf8().map_err(|_| Error::custom("it is not UTF-8"))?),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0 {
            Field::Bytes(bytes) => visitor.visit_seq(SeqDeserializer::new(bytes.data().iter().copied())),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char bytes byte_buf unit unit_struct tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for Cell {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A row, or a nested struct: cells with their names.
pub(super) struct Cells {
    rest: std::vec::IntoIter<(String, Field)>,
    value: Option<(String, Field)>,
}

impl Cells {
    pub(super) fn new(cells: Vec<(String, Field)>) -> Self {
        let rest = cells.into_iter();
        Self { rest, value: None }
    }
}

impl<'de> MapAccess<'de> for Cells {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.value = self.rest.next();
        let name = self.value.as_ref().map(|(name, _)| name.as_str());
        name.map(|name| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, field) = self
            .value
            .take()
            .ok_or_else(|| Error::custom("a value without a name"))?;
        let null = matches!(field, Field::Null);
        seed.deserialize(Cell(field)).map_err(|e| match null {
            true => Error::custom(format!("{name:?} is null, which an Option takes")),
            false => Error::custom(format!("{name:?}: {e}")),
        })
    }
}
