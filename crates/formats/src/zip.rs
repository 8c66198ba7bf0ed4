//! Zip archives: reading their entries at positions, and writing uncompressed ones.
//!
//! Source of the format: PKWARE, "APPNOTE.TXT", 6.3.10, sections 4.3 and 4.5.

use std::collections::HashSet;
use std::io::{self, BufReader, Read, Write};

use flate2::Crc;
use flate2::read::DeflateDecoder;
use polygrad_core::printable;
use polygrad_nn::files::unreadable;
use polygrad_tensor::{Error, Result};

use crate::source::{Region, Source, damaged};

const END: [u8; 4] = *b"PK\x05\x06";
const END_SIZE: usize = 22;
const END64: [u8; 4] = *b"PK\x06\x06";
const END64_SIZE: u64 = 56;
const LOCATOR64: [u8; 4] = *b"PK\x06\x07";
const LOCATOR64_SIZE: u64 = 20;
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const CENTRAL_SIZE: usize = 46;
const LOCAL: [u8; 4] = *b"PK\x03\x04";

/// The first bytes of an archive, with and without entries.
pub(crate) const BEGIN: &[u8] = &LOCAL;
pub(crate) const BEGIN_EMPTY: &[u8] = &END;
const LOCAL_SIZE: u64 = 30;

/// The longest comment at an archive's end.
const MAX_COMMENT: u64 = u16::MAX as u64;
/// The most bytes of a directory; an entry of usual length takes 100.
const MAX_DIRECTORY: u64 = 1 << 26;

/// The most bytes that deflate produces from one: 258 for a length and a distance of one bit each. Source: zlib's
/// "Technical Details".
const MAX_DEFLATED: u64 = 1032;

/// The extra field for sizes and offsets of 64 bits.
const ZIP64: u16 = 1;
/// The value of a 32-bit field whose actual value is in that extra field.
const ELSEWHERE: u32 = u32::MAX;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |&chunk| u16::from_le_bytes(chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |&chunk| u32::from_le_bytes(chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |&chunk| u64::from_le_bytes(chunk))
}

/// An entry of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) name: String,
    /// Its uncompressed size.
    pub(crate) size: u64,
    packed_size: u64,
    crc: u32,
    deflated: bool,
    header: u64,
}

/// The entries of an archive, in its order.
pub(crate) fn entries(source: &Source) -> Result<Vec<Packed>> {
    let tail_length = source.length.min(MAX_COMMENT + END_SIZE as u64);
    let tail_start = source.length - tail_length;
    let tail = source.bytes(tail_start, tail_length)?;
    let end = (0..=tail.len().saturating_sub(END_SIZE))
        .rev()
        .find(|&at| tail[at..].starts_with(&END) && at + END_SIZE + usize::from(u16_at(&tail, at + 20)) == tail.len());
    let end = end.ok_or_else(|| damaged("it begins as a zip archive and has no directory at its end"))?;
    let record = &tail[end..];
    let mut count = u64::from(u16_at(record, 10));
    let mut size = u64::from(u32_at(record, 12));
    let mut offset = u64::from(u32_at(record, 16));
    if let Some(locator) = (tail_start + end as u64).checked_sub(LOCATOR64_SIZE) {
        let locator = source.bytes(locator, LOCATOR64_SIZE)?;
        if locator.starts_with(&LOCATOR64) {
            let record = source.bytes(u64_at(&locator, 8), END64_SIZE)?;
            if !record.starts_with(&END64) {
                return Err(damaged("its zip64 record is not where it should be"));
            }
            (count, size, offset) = (u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48));
        }
    }
    if size > MAX_DIRECTORY || count > size / CENTRAL_SIZE as u64 {
        return Err(damaged(format!(
            "its directory would have {count} entries in {size} bytes, and at most {MAX_DIRECTORY} are read"
        )));
    }
    directory(&source.bytes(offset, size)?, count)
}

fn directory(bytes: &[u8], count: u64) -> Result<Vec<Packed>> {
    let mut rest = bytes;
    let mut entries = Vec::new();
    let mut seen = HashSet::new();
    for _ in 0..count {
        let (entry, left) = central(rest)?;
        rest = left;
        if !seen.insert(entry.name.clone()) {
            return Err(damaged(format!("two entries are called {}", printable(&entry.name))));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// The first entry of the directory, and the bytes after it.
fn central(bytes: &[u8]) -> Result<(Packed, &[u8])> {
    let ends = || damaged("its directory is damaged");
    let lengths = [28, 30, 32].map(|at| usize::from(u16_at(bytes, at)));
    let [name_length, extra_length, comment_length] = lengths;
    let (entry, rest) = bytes
        .split_at_checked(CENTRAL_SIZE + name_length + extra_length + comment_length)
        .ok_or_else(ends)?;
    if !entry.starts_with(&CENTRAL) {
        return Err(ends());
    }
    let name = &entry[CENTRAL_SIZE..][..name_length];
    let name = String::from_utf8(name.to_owned()).map_err(|_| damaged("the name of an entry is not UTF-8"))?;
    let about = |what: &str| Error::unsupported(format!("its entry {} {what}", printable(&name)));
    if u16_at(entry, 8) & 1 != 0 {
        return Err(about("is encrypted").with_hint("save it without a password"));
    }
    let deflated = match u16_at(entry, 10) {
        0 => false,
        8 => true,
        other => {
            return Err(about(&format!(
                "is compressed by method {other}, and known are 0 (stored) and 8 (deflated)"
            ))
            .with_hint("save it without compression"));
        }
    };
    // Values that exceed the 32-bit fields are in the extra field, in this order.
    let mut wide = zip64(&entry[CENTRAL_SIZE + name_length..][..extra_length]).unwrap_or_default();
    let mut field = |at: usize| match u32_at(entry, at) {
        ELSEWHERE => {
            let (value, rest) = wide.split_at_checked(8).ok_or_else(ends)?;
            wide = rest;
            Ok(u64_at(value, 0))
        }
        value => Ok::<u64, Error>(u64::from(value)),
    };
    let (size, packed_size, header) = (field(24)?, field(20)?, field(42)?);
    if !deflated && size != packed_size {
        return Err(damaged(format!("its entry {} has two sizes", printable(&name))));
    }
    if deflated && size > packed_size.saturating_mul(MAX_DEFLATED) {
        return Err(damaged(format!(
            "its entry {} would be {size} bytes out of {packed_size}, which deflating cannot do",
            printable(&name)
        )));
    }
    let entry = Packed {
        size,
        packed_size,
        crc: u32_at(entry, 16),
        deflated,
        header,
        name,
    };
    Ok((entry, rest))
}

/// The content of the extra field with 64-bit numbers.
fn zip64(mut extra: &[u8]) -> Option<&[u8]> {
    loop {
        let (head, rest) = extra.split_at_checked(4)?;
        let (content, rest) = rest.split_at_checked(usize::from(u16_at(head, 2)))?;
        if u16_at(head, 0) == ZIP64 {
            return Some(content);
        }
        extra = rest;
    }
}

impl Packed {
    /// The offset of the content, according to the entry's own header.
    fn start(&self, source: &Source) -> Result<u64> {
        let wrong = || {
            damaged(format!(
                "its entry {} is not where its directory says",
                printable(&self.name)
            ))
        };
        let header = source.bytes(self.header, LOCAL_SIZE).map_err(|_| wrong())?;
        let name_length = u16_at(&header, 26);
        if !header.starts_with(&LOCAL) || usize::from(name_length) != self.name.len() {
            return Err(wrong());
        }
        let name = source.bytes(self.header + LOCAL_SIZE, u64::from(name_length))?;
        let start = self.header + LOCAL_SIZE + u64::from(name_length) + u64::from(u16_at(&header, 28));
        let end = start.checked_add(self.packed_size).filter(|&end| end <= source.length);
        match name == self.name.as_bytes() && end.is_some() {
            true => Ok(start),
            false => Err(wrong()),
        }
    }

    /// A reader of the content.
    pub(crate) fn open<'a>(&'a self, source: &'a Source) -> Result<Content<'a>> {
        let region = source.region(self.start(source)?, self.packed_size);
        Ok(Content {
            entry: self,
            from: match self.deflated {
                true => From::Deflated(Box::new(DeflateDecoder::new(BufReader::new(region)))),
                false => From::Stored(region),
            },
            crc: Some(Crc::new()),
            read: 0,
        })
    }

    /// The whole content, at most `most` bytes.
    pub(crate) fn content(&self, source: &Source, most: u64) -> Result<Vec<u8>> {
        if self.size > most {
            return Err(damaged(format!(
                "its entry {} has {} bytes, and at most {most} are read",
                printable(&self.name),
                self.size
            )));
        }
        // The directory's size of deflated content is not trusted.
        let mut bytes = Vec::new();
        let mut content = self.open(source)?;
        content
            .by_ref()
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(|e| self.about(e))?;
        content.finish()?;
        Ok(bytes)
    }

    fn about(&self, error: io::Error) -> Error {
        let error = unreadable(error);
        Error::new(
            error.kind(),
            format!("entry {}: {}", printable(&self.name), error.message()),
        )
        .with_hint("the file is damaged: fetch or save it again")
    }
}

#[derive(Debug)]
enum From<'a> {
    Stored(Region<'a>),
    Deflated(Box<DeflateDecoder<BufReader<Region<'a>>>>),
}

/// The content of an entry while it is read.
#[derive(Debug)]
pub(crate) struct Content<'a> {
    entry: &'a Packed,
    from: From<'a>,
    /// The checksum of everything read; `None` if bytes were skipped.
    crc: Option<Crc>,
    read: u64,
}

impl Content<'_> {
    /// Skips bytes. A small number is read, so that the checksum can still be compared.
    pub(crate) fn skip(&mut self, bytes: u64) -> Result<()> {
        const FEW: u64 = 1 << 16;
        match &mut self.from {
            From::Stored(region) if bytes > FEW => {
                region.skip(bytes);
                self.crc = None;
            }
            _ => {
                let skipped = io::copy(&mut self.by_ref().take(bytes), &mut io::sink());
                skipped.map_err(|e| self.entry.about(e))?;
            }
        }
        Ok(())
    }

    /// Compares the checksum if everything was read.
    pub(crate) fn finish(self) -> Result<()> {
        let entry = self.entry;
        match self.crc {
            // PyTorch writes 0 if checksums are disabled.
            Some(crc) if entry.crc != 0 && self.read == entry.size && crc.sum() != entry.crc => Err(damaged(format!(
                "its entry {} does not have the checksum that its directory says",
                printable(&entry.name)
            ))),
            _ => Ok(()),
        }
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.from {
            From::Stored(region) => region.read(buffer)?,
            From::Deflated(decoder) => decoder.read(buffer)?,
        };
        if let Some(crc) = &mut self.crc {
            crc.update(&buffer[..read]);
        }
        self.read += read as u64;
        Ok(read)
    }
}

/// The id of the padding extra field, as in PyTorch's writer, and the alignment of an entry's content, which allows
/// mapping it into memory.
const FILLER: u16 = u16::from_le_bytes(*b"FB");
const ALIGNMENT: u64 = 64;

/// Writes an archive with uncompressed entries.
pub(crate) struct Writer<W> {
    to: W,
    at: u64,
    entries: Vec<Written>,
}

struct Written {
    name: String,
    size: u64,
    crc: u32,
    header: u64,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(to: W) -> Self {
        Self {
            to,
            at: 0,
            entries: Vec::new(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Writes an entry whose content is the concatenation of these parts.
    pub(crate) fn entry(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let mut crc = Crc::new();
        parts.iter().for_each(|part| crc.update(part));
        let entry = Written {
            name: name.to_owned(),
            size: parts.iter().map(|part| part.len() as u64).sum(),
            crc: crc.sum(),
            header: self.at,
        };
        let wide = entry.size >= u64::from(ELSEWHERE);
        let mut extra = Vec::new();
        if wide {
            extra.extend([ZIP64, 16].map(u16::to_le_bytes).concat());
            extra.extend([entry.size; 2].map(u64::to_le_bytes).concat());
        }
        let common = entry.common(wide, 0).len();
        let before = LOCAL.len() + common + name.len() + extra.len() + 2 * size_of::<u16>();
        let start = self.at + before as u64;
        let filler = (start.next_multiple_of(ALIGNMENT) - start) as u16;
        extra.extend([FILLER, filler].map(u16::to_le_bytes).concat());
        extra.extend(std::iter::repeat_n(b'Z', filler.into()));
        self.put(&LOCAL)?;
        self.put(&entry.common(wide, extra.len()))?;
        self.put(name.as_bytes())?;
        self.put(&extra)?;
        parts.iter().try_for_each(|part| self.put(part))?;
        self.entries.push(entry);
        Ok(())
    }

    /// Writes the directory.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let (start, count) = (self.at, self.entries.len());
        for entry in std::mem::take(&mut self.entries) {
            let wide = entry.size.max(entry.header) >= u64::from(ELSEWHERE);
            let mut extra = Vec::new();
            if wide {
                extra.extend([ZIP64, 24].map(u16::to_le_bytes).concat());
                extra.extend([entry.size, entry.size, entry.header].map(u64::to_le_bytes).concat());
            }
            self.put(&CENTRAL)?;
            // Made by version 4.5, on no particular system.
            self.put(&45u16.to_le_bytes())?;
            self.put(&entry.common(wide, extra.len()))?;
            // No comment, first disk, no attributes.
            self.put(&[0; 10])?;
            self.put(&narrow(entry.header, wide).to_le_bytes())?;
            self.put(entry.name.as_bytes())?;
            self.put(&extra)?;
        }
        let (size, count) = (self.at - start, count as u64);
        let wide = start >= u64::from(ELSEWHERE) || count >= u64::from(u16::MAX);
        if wide {
            let record = self.at;
            self.put(&END64)?;
            self.put(&(END64_SIZE - 12).to_le_bytes())?;
            self.put(&[45u16, 45].map(u16::to_le_bytes).concat())?;
            self.put(&[0; 8])?;
            self.put(&[count, count, size, start].map(u64::to_le_bytes).concat())?;
            self.put(&LOCATOR64)?;
            self.put(&[0; 4])?;
            self.put(&record.to_le_bytes())?;
            self.put(&1u32.to_le_bytes())?;
        }
        let short = u16::try_from(count).unwrap_or(u16::MAX);
        self.put(&END)?;
        self.put(&[0, 0, short, short].map(u16::to_le_bytes).concat())?;
        self.put(&narrow(size, size >= u64::from(ELSEWHERE)).to_le_bytes())?;
        self.put(&narrow(start, wide).to_le_bytes())?;
        self.put(&[0; 2])
    }
}

impl Written {
    /// The common part of both headers, from the version to the length of the extra field.
    fn common(&self, wide: bool, extra: usize) -> Vec<u8> {
        let version: u16 = if wide { 45 } else { 20 };
        // Names are UTF-8; stored; 1980-01-01, the earliest possible date.
        let mut bytes = [version, 1 << 11, 0, 0, 33].map(u16::to_le_bytes).concat();
        let size = narrow(self.size, wide);
        bytes.extend([self.crc, size, size].map(u32::to_le_bytes).concat());
        bytes.extend([self.name.len() as u16, extra as u16].map(u16::to_le_bytes).concat());
        bytes
    }
}

/// A number in a 32-bit field, or the mark that it is elsewhere.
fn narrow(number: u64, elsewhere: bool) -> u32 {
    match u32::try_from(number) {
        Ok(number) if !elsewhere => number,
        _ => ELSEWHERE,
    }
}
