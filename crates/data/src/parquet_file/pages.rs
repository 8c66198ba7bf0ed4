//! The pages of a row group's columns, decompressed within bounds: what a page says of itself is not believed.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::{Compression, Encoding};
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::RowGroupReader;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

/// A page is no larger than this when it is decompressed, or than so many times what it was.
const MAX_PAGE: usize = 64 << 20;
const MAX_RATIO: usize = 64;

/// The elements of all lists in a row are no more than this, or than so many times the bytes of the file.
const MAX_ELEMENTS: u64 = 4 << 20;
const MAX_ELEMENTS_PER_BYTE: u64 = 4;

/// A row group of a file.
pub(super) struct Group {
    pub(super) file: Arc<File>,
    pub(super) length: u64,
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) number: usize,
    /// Elements of lists in the pages that were read since it was last 0.
    pub(super) elements: Arc<AtomicU64>,
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
        // Pages come as they stand in the file.
        let plain = column
            .clone()
            .into_builder()
            .set_compression(Compression::UNCOMPRESSED)
            .build()?;
        let rows = usize::try_from(self.metadata().num_rows())?;
        Ok(Box::new(Pages {
            pages: SerializedPageReader::new(Arc::clone(&self.file), &plain, rows, None)?,
            codec: column.compression(),
            dictionary: false,
            elements: (column.column_descr().max_rep_level() > 0).then(|| Arc::clone(&self.elements)),
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

struct Pages {
    pages: SerializedPageReader<File>,
    codec: Compression,
    /// Whether there was one, without which values that are numbers of its entries cannot be read.
    dictionary: bool,
    elements: Option<Arc<AtomicU64>>,
    most: u64,
}

impl Pages {
    fn unpack(&mut self, page: &mut Page) -> Result<()> {
        let values = u64::from(page.num_values());
        let encoded = matches!(page.encoding(), Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
        if page.is_data_page() && encoded && !self.dictionary {
            return Err(ParquetError::General(
                "a page that needs a dictionary, of which there is none".to_owned(),
            ));
        }
        match page {
            Page::DictionaryPage { buf, .. } => {
                *buf = decompress(self.codec, buf)?.into();
                if values > buf.len() as u64 {
                    let what = format!("a dictionary of {values} values in {} bytes", buf.len());
                    return Err(ParquetError::General(what));
                }
                self.dictionary = true;
                return Ok(());
            }
            Page::DataPage { buf, .. } => *buf = decompress(self.codec, buf)?.into(),
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                ..
            } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                let Some(levels) = usize::try_from(levels).ok().filter(|&levels| levels <= buf.len()) else {
                    return Err(ParquetError::General(
                        "levels that are longer than their page".to_owned(),
                    ));
                };
                // A page of nothing but nulls may have no values to decompress.
                if *is_compressed && levels < buf.len() {
                    let values = decompress(self.codec, &buf[levels..])?;
                    *buf = [&buf[..levels], &values].concat().into();
                }
            }
        }
        match &self.elements {
            Some(elements) if elements.fetch_add(values, Ordering::Relaxed) + values > self.most => Err(
                ParquetError::General(format!("more than {} elements in the lists of a row", self.most)),
            ),
            _ => Ok(()),
        }
    }
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

fn decompress(codec: Compression, bytes: &[u8]) -> Result<Vec<u8>> {
    let most = MAX_PAGE.max(bytes.len().saturating_mul(MAX_RATIO));
    let too_large = || ParquetError::General(format!("a page of more than {most} bytes, from {}", bytes.len()));
    let failed = |e: &dyn std::fmt::Display| ParquetError::General(format!("a page that cannot be decompressed: {e}"));
    let mut unpacked = Vec::new();
    let mut read = |from: &mut dyn Read| {
        from.take(most as u64 + 1)
            .read_to_end(&mut unpacked)
            .map_err(|e| failed(&e))
    };
    match codec {
        Compression::UNCOMPRESSED => return Ok(bytes.to_vec()),
        Compression::SNAPPY => {
            if snap::raw::decompress_len(bytes).map_err(|e| failed(&e))? > most {
                return Err(too_large());
            }
            return snap::raw::Decoder::new().decompress_vec(bytes).map_err(|e| failed(&e));
        }
        Compression::GZIP(_) => read(&mut flate2::read::MultiGzDecoder::new(bytes))?,
        Compression::ZSTD(_) => {
            let mut source = bytes;
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(&mut source).map_err(|e| failed(&e))?;
            read(&mut decoder)?
        }
        other => {
            return Err(ParquetError::NYI(format!(
                "columns compressed by {other:?}: snappy, gzip and zstd are read"
            )));
        }
    };
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
            let error = decompress(codec, &bytes).unwrap_err().to_string();
            assert!(error.contains("a page of more than 67108864 bytes, from"), "{error}");
        }
        let sound = [&zstd[..6], &[0x0b, 0, 0, b'x']].concat();
        assert_eq!(
            decompress(Compression::ZSTD(ZstdLevel::default()), &sound).unwrap(),
            b"x"
        );
    }
}
