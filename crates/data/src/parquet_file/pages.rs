//! The pages of a row group's columns, decompressed within limits: sizes that a page claims are not trusted.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::RowGroupReader;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::{ColumnDescPtr, Type};

use super::bounds::{Budget, Lists, Taken, differences, levels};

/// The most bytes of a decompressed page: this, or this many times its compressed size if that is more.
const MAX_PAGE: usize = 64 << 20;
const MAX_RATIO: usize = 64;

/// The most bytes of a row group's pages in memory: this, or this many times the bytes of the file if that is more.
const MAX_PAGES: u64 = 256 << 20;
const MAX_PAGES_PER_BYTE: u64 = 16;

/// The most elements of all lists in a row: this, or this many times the bytes of the file if that is more.
const MAX_ELEMENTS: u64 = 4 << 20;
const MAX_ELEMENTS_PER_BYTE: u64 = 4;

/// A row group of a file.
pub(super) struct Group {
    file: Arc<File>,
    length: u64,
    metadata: Arc<ParquetMetaData>,
    number: usize,
    budget: Arc<Budget>,
    /// Sum over all columns of the number of elements in the longest list.
    elements: Arc<AtomicU64>,
}

impl Group {
    pub(super) fn new(file: File, length: u64, metadata: Arc<ParquetMetaData>, number: usize) -> Self {
        Self {
            file: Arc::new(file),
            length,
            metadata,
            number,
            budget: Budget::new(MAX_PAGES.max(length.saturating_mul(MAX_PAGES_PER_BYTE))),
            elements: Arc::default(),
        }
    }
}

impl RowGroupReader for Group {
    fn metadata(&self) -> &RowGroupMetaData {
        self.metadata.row_group(self.number)
    }

    fn num_columns(&self) -> usize {
        self.metadata().num_columns()
    }

    fn get_column_page_reader(&self, i: usize) -> Result<Box<dyn PageReader>> {
        let column = self.metadata().column(i);
        // Pages are read as they are stored in the file, still compressed.
        let plain = column
            .clone()
            .into_builder()
            .set_compression(Compression::UNCOMPRESSED)
            .build()?;
        let rows = usize::try_from(self.metadata().num_rows())?;
        Ok(Box::new(Pages {
            pages: SerializedPageReader::new(Arc::clone(&self.file), &plain, rows, None)?,
            codec: column.compression(),
            column: column.column_descr_ptr(),
            rows: rows as u64,
            dictionary: None,
            widest: 0,
            budget: Arc::clone(&self.budget),
            lists: Lists::default(),
            counted: 0,
            elements: Arc::clone(&self.elements),
            most: MAX_ELEMENTS.max(self.length.saturating_mul(MAX_ELEMENTS_PER_BYTE)),
        }))
    }

    fn get_column_bloom_filter(&self, _: usize) -> Option<&Sbbf> {
        None
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_row_group(projection, self)
    }
}

/// A page with the range of its repetition levels, if they can be read, and the start of its values.
struct Parts {
    bytes: Vec<u8>,
    lists: Option<Range<usize>>,
    values: usize,
}

struct Pages {
    pages: SerializedPageReader<File>,
    codec: Compression,
    column: ColumnDescPtr,
    rows: u64,
    /// Memory of the dictionary, if there was one; without a dictionary, values that refer to it cannot be read.
    dictionary: Option<Taken>,
    /// Bytes of the longest value in the dictionary, which each element with that value copies.
    widest: u64,
    budget: Arc<Budget>,
    lists: Lists,
    /// The part of the longest list that is already counted in `elements`.
    counted: u64,
    elements: Arc<AtomicU64>,
    most: u64,
}

impl Pages {
    fn unpack(&mut self, page: &mut Page) -> Result<()> {
        let values = u64::from(page.num_values());
        let encoding = page.encoding();
        let encoded = matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
        if page.is_data_page() && encoded && self.dictionary.is_none() {
            return damaged("a page that needs a dictionary, of which there is none");
        }
        let repeated = self.column.max_rep_level();
        if page.is_data_page() && repeated == 0 && values > self.rows {
            return damaged(format!("a page of {values} values for {} rows", self.rows));
        }
        if let Page::DictionaryPage { buf, .. } = page {
            let bytes = self.decompress(buf)?;
            let (width, cell) = self.widths();
            if values.saturating_mul(width) > bytes.len() as u64 {
                return damaged(format!("a dictionary of {values} values in {} bytes", bytes.len()));
            }
            self.widest = match self.column.physical_type() {
                Physical::BYTE_ARRAY => longest(&bytes),
                _ => width,
            };
            self.dictionary = Some(self.budget.take(bytes.len() as u64 + values * cell)?);
            *buf = bytes.into();
            return Ok(());
        }
        let parts = self.parts(page)?;
        match parts.lists {
            Some(_) if repeated == 0 => {}
            Some(lists) => self.lists.follow(&parts.bytes[lists], repeated, values),
            None => self.lists.assume(values),
        }
        self.count_elements()?;
        let lengths = self.check_encoding(encoding, &parts.bytes[parts.values..], values)?;
        let taken = self.budget.take(parts.bytes.len() as u64 + lengths)?;
        match page {
            Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = taken.hold(parts.bytes);
            }
        }
        Ok(())
    }

    /// A decompressed data page.
    fn parts(&self, page: &Page) -> Result<Parts> {
        let values = u64::from(page.num_values());
        let (repeated, defined) = (self.column.max_rep_level(), self.column.max_def_level());
        let parts = match page {
            Page::DataPage {
                buf,
                def_level_encoding,
                rep_level_encoding,
                ..
            } => {
                let bytes = self.decompress(buf)?;
                let lists = levels(&bytes, 0, repeated, *rep_level_encoding, values);
                let nulls =
                    (lists.as_ref()).and_then(|lists| levels(&bytes, lists.end, defined, *def_level_encoding, values));
                lists.zip(nulls).map(|(lists, nulls)| Parts {
                    lists: (*rep_level_encoding == Encoding::RLE).then_some(lists),
                    values: nulls.end,
                    bytes,
                })
            }
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                ..
            } => {
                let lists = *rep_levels_byte_len as usize;
                let levels = lists.saturating_add(*def_levels_byte_len as usize);
                match buf.split_at_checked(levels) {
                    // A page that contains only nulls may have no values to decompress.
                    Some((front, packed)) if *is_compressed && !packed.is_empty() => {
                        Some([front, &self.decompress(packed)?].concat())
                    }
                    Some(_) => Some(buf.to_vec()),
                    None => None,
                }
                .map(|bytes| Parts {
                    lists: Some(0..lists),
                    values: levels,
                    bytes,
                })
            }
            Page::DictionaryPage { .. } => None,
        };
        parts.ok_or_else(|| ParquetError::General("levels that are longer than their page".to_owned()))
    }

    /// The least bytes of a value in a dictionary, and the memory that each one takes besides these.
    fn widths(&self) -> (u64, u64) {
        let cell = size_of::<ByteArray>() as u64;
        match self.column.physical_type() {
            Physical::BOOLEAN => (1, 0),
            Physical::INT32 | Physical::FLOAT => (4, 0),
            Physical::INT64 | Physical::DOUBLE => (8, 0),
            Physical::INT96 => (12, 0),
            Physical::BYTE_ARRAY => (4, cell),
            Physical::FIXED_LEN_BYTE_ARRAY => (self.column.type_length().max(1) as u64, cell),
        }
    }

    /// Checks that no encoding has more values than its page; returns the memory that decoded lengths take.
    fn check_encoding(&self, encoding: Encoding, bytes: &[u8], values: u64) -> Result<u64> {
        match encoding {
            Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY => match differences(bytes) {
                Some(count) if count > values => damaged(format!("{encoding} of {count} values in a page of {values}")),
                Some(count) if encoding == Encoding::DELTA_LENGTH_BYTE_ARRAY => Ok(4 * count),
                _ => Ok(0),
            },
            Encoding::DELTA_BYTE_ARRAY => Err(ParquetError::NYI(format!(
                "the column {:?} in the encoding {encoding}: write it plain or with a dictionary",
                self.column.path().string()
            ))),
            _ => Ok(0),
        }
    }

    /// Adds this column's longest list to the elements of a row, and checks their limits.
    fn count_elements(&mut self) -> Result<()> {
        let more = self.lists.longest - self.counted;
        self.counted = self.lists.longest;
        // Memory of a row: fields of structs include their names.
        let names: usize = self.column.path().parts().iter().map(String::len).sum();
        let each = self.widest + (names + size_of::<Field>()) as u64;
        let bytes = self.lists.longest.saturating_mul(each);
        if bytes > 2 * self.budget.most() {
            return damaged(format!("a row whose lists take {bytes} bytes"));
        }
        match self.elements.fetch_add(more, Ordering::Relaxed) + more > self.most {
            true => damaged(format!("more than {} elements in the lists of a row", self.most)),
            false => Ok(()),
        }
    }

    /// Decompresses within the remaining budget of the row group.
    fn decompress(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let left = usize::try_from(self.budget.left()).unwrap_or(usize::MAX);
        decompress(
            self.codec,
            bytes,
            MAX_PAGE.max(bytes.len().saturating_mul(MAX_RATIO)).min(left),
        )
    }
}

/// The longest of byte arrays that are each preceded by their length.
fn longest(mut bytes: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(u64::from(length));
        bytes = rest.get(length as usize..).unwrap_or_default();
    }
    longest
}

fn damaged<T>(what: impl Into<String>) -> Result<T> {
    Err(ParquetError::General(what.into()))
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let mut page = self.pages.get_next_page()?;
        if let Some(page) = &mut page {
            self.unpack(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

fn decompress(codec: Compression, bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let too_large = || ParquetError::General(format!("a page of more than {most} bytes, from {}", bytes.len()));
    let failed = |e: &dyn std::fmt::Display| ParquetError::General(format!("a page that cannot be decompressed: {e}"));
    let mut unpacked = Vec::new();
    match codec {
        Compression::UNCOMPRESSED if bytes.len() > most => return Err(too_large()),
        Compression::UNCOMPRESSED => return Ok(bytes.to_vec()),
        Compression::SNAPPY => {
            if snap::raw::decompress_len(bytes).map_err(|e| failed(&e))? > most {
                return Err(too_large());
            }
            return snap::raw::Decoder::new().decompress_vec(bytes).map_err(|e| failed(&e));
        }
        Compression::GZIP(_) => {
            let decoder = flate2::read::MultiGzDecoder::new(bytes);
            let read = decoder.take(most as u64 + 1).read_to_end(&mut unpacked);
            read.map_err(|e| failed(&e))?;
        }
        Compression::ZSTD(_) => {
            let mut source = bytes;
            // There may be several frames.
            while !source.is_empty() && unpacked.len() <= most {
                let decoder = ruzstd::decoding::StreamingDecoder::new(&mut source).map_err(|e| failed(&e))?;
                let left = (most - unpacked.len()) as u64 + 1;
                decoder.take(left).read_to_end(&mut unpacked).map_err(|e| failed(&e))?;
            }
        }
        other => {
            return Err(ParquetError::NYI(format!(
                "columns compressed by {other:?}: snappy, gzip and zstd are read"
            )));
        }
    }
    match unpacked.len() > most {
        true => Err(too_large()),
        false => Ok(unpacked),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use parquet::basic::{GzipLevel, ZstdLevel};

    use super::*;

    #[test]
    fn pages_of_a_row_group_are_within_one_budget() {
        let schema = "message m { required binary a; required binary b; }";
        let file = tempfile::tempfile().unwrap();
        let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
        let properties = Arc::new(parquet::file::properties::WriterProperties::builder().build());
        let mut writer =
            parquet::file::writer::SerializedFileWriter::new(file.try_clone().unwrap(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            let cell = ByteArray::from(vec![7; 900]);
            let typed = column.typed::<parquet::data_type::ByteArrayType>();
            typed.write_batch(&[cell], None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        let metadata = Arc::new(writer.close().unwrap());
        let mut group = Group::new(file, 0, metadata, 0);
        group.budget = Budget::new(1500);
        let read = |column| group.get_column_page_reader(column).unwrap().get_next_page();
        let mut first = group.get_column_page_reader(0).unwrap();
        assert!(first.get_next_page().unwrap().is_some());
        let error = read(1).unwrap_err().to_string();
        assert!(error.contains("of more than"), "{error}");
        drop(first);
        assert!(read(1).is_ok());
        assert_eq!(group.budget.left(), 1500);
    }

    #[test]
    fn pages_that_grow_without_bounds_are_refused() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&vec![0; MAX_PAGE + 1]).unwrap();
        // A frame with a window of 1 MiB, and blocks of 128 KiB of one byte each.
        let block = [0x02, 0x00, 0x10, b'x'];
        let zstd = [
            &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x50][..],
            &block.repeat(MAX_PAGE >> 17),
            &[0x0b, 0, 0, b'x'],
        ]
        .concat();
        for (codec, bytes) in [
            (Compression::GZIP(GzipLevel::default()), gzip.finish().unwrap()),
            (Compression::ZSTD(ZstdLevel::default()), zstd.clone()),
            (Compression::SNAPPY, vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0]),
        ] {
            let error = decompress(codec, &bytes, MAX_PAGE).unwrap_err().to_string();
            assert!(error.contains("a page of more than 67108864 bytes, from"), "{error}");
        }
        let sound = [&zstd[..6], &[0x0b, 0, 0, b'x']].concat();
        let read = |bytes: &[u8]| decompress(Compression::ZSTD(ZstdLevel::default()), bytes, MAX_PAGE);
        assert_eq!(read(&sound).unwrap(), b"x");
        assert_eq!(read(&sound.repeat(2)).unwrap(), b"xx");
        let error = read(&[&sound[..], &[0; 9]].concat()).unwrap_err().to_string();
        assert!(error.contains("cannot be decompressed"), "{error}");
    }
}
