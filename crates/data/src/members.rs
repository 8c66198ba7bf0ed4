//! The members of a tar file, one after another.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use polygrad_core::{Error, Result};
use tar::{EntryType, Header};

use crate::image::bad;
use crate::input::{Input, broken};

/// Size of a tar file's blocks, in bytes.
const BLOCK: u64 = 512;

/// The most bytes of an extension header, such as one with a longer name.
const MAX_EXTENSION: u64 = 1 << 20;

/// A file within the tar file; its bytes come next.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) size: u64,
}

/// Reads a tar file from start to end. Bytes that are not needed are skipped by seeking if possible.
pub(crate) struct Members {
    pub(crate) path: Arc<Path>,
    input: Input,
    /// Bytes after the current position, if known.
    left: Option<u64>,
    /// Unread bytes of the current member, and the padding of its last block.
    unread: u64,
    fill: u64,
    /// Name of the current member, for errors.
    name: String,
    ended: bool,
}

impl Members {
    /// # Errors
    /// A file that cannot be read, or is compressed while the feature `gzip` is off.
    pub(crate) fn open(path: &Arc<Path>) -> Result<Self> {
        let (input, length) = Input::open(path)?;
        Ok(Self {
            path: Arc::clone(path),
            left: matches!(input, Input::Plain(_)).then_some(length),
            input,
            unread: 0,
            fill: 0,
            name: String::new(),
            ended: false,
        })
    }

    /// The next file, skipping folders and the rest of the one before; `None` at the end.
    ///
    /// # Errors
    /// Damaged or truncated data, or a member that is not a file; the error names the tar file and the member.
    pub(crate) fn next(&mut self) -> Result<Option<Member>> {
        let (mut long_name, mut long_size) = (None, None);
        while !self.ended {
            self.skip(self.unread + self.fill)?;
            (self.unread, self.fill) = (0, 0);
            let Some(header) = self.header()? else {
                self.ended = true;
                break;
            };
            let kind = header.entry_type();
            let extends = matches!(
                kind,
                EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader
            );
            if !extends {
                self.name = match long_name.take() {
                    Some(name) => name,
                    None => self.text(&header.path_bytes(), "the name of a member")?,
                };
            }
            let size = match long_size.take_if(|_| !extends) {
                Some(size) => size,
                None => header
                    .entry_size()
                    .map_err(|_| self.damaged("has a size that is no number in the header"))?,
            };
            self.begin(size)?;
            match kind {
                EntryType::GNULongName => {
                    let name = self.extension()?;
                    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
                    long_name = Some(self.text(&name[..end], "the name of a member")?);
                }
                // The target of a link. The link itself is rejected when it comes.
                EntryType::GNULongLink => {}
                EntryType::XHeader | EntryType::XGlobalHeader => {
                    let records = self.extension()?;
                    let global = kind == EntryType::XGlobalHeader;
                    for (key, value) in self.records(&records)? {
                        match key.as_str() {
                            "path" | "size" if global => {
                                return Err(self.damaged("gives all members one path or size"));
                            }
                            "path" => long_name = Some(self.text(value, "the name of a member")?),
                            "size" => {
                                let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                                long_size = Some(size.ok_or_else(|| self.damaged("has a size that is no number"))?);
                            }
                            key if key.starts_with("GNU.sparse.") => return Err(self.refused("a sparse file")),
                            _ => {}
                        }
                    }
                }
                EntryType::Directory => {}
                EntryType::Regular | EntryType::Continuous => {
                    let name = self.name.clone();
                    return Ok(Some(Member { name, size }));
                }
                EntryType::Link | EntryType::Symlink => return Err(self.refused("a link")),
                EntryType::GNUSparse => return Err(self.refused("a sparse file")),
                _ => return Err(self.refused("neither a file nor a folder")),
            }
        }
        match long_name.is_some() || long_size.is_some() {
            true => Err(self.damaged("is followed by a header that announces another member, and the end")),
            false => Ok(None),
        }
    }

    /// The bytes of the member that [`Members::next`] returned last.
    ///
    /// # Errors
    /// When the file ends too early, or its compressed stream is damaged.
    pub(crate) fn read(&mut self) -> Result<Vec<u8>> {
        let size = std::mem::take(&mut self.unread);
        let mut bytes = Vec::new();
        // If the remaining length is known, memory is allocated at once; the size claimed by a compressed file is not
        // trusted.
        if let Some(left) = self.left
            && bytes.try_reserve_exact(size as usize).is_err()
        {
            return Err(self.damaged(&format!(
                "has {size} of {left} bytes, for which memory is not to be had"
            )));
        }
        let read = (&mut self.input).take(size).read_to_end(&mut bytes);
        read.map_err(|e| self.failed(e))?;
        match bytes.len() as u64 == size {
            true => {
                self.left = self.left.map(|left| left - size);
                Ok(bytes)
            }
            false => Err(self.failed(ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Prepares to read or skip the bytes after a header.
    fn begin(&mut self, size: u64) -> Result<()> {
        let whole = size.checked_next_multiple_of(BLOCK);
        let there = whole.filter(|&whole| self.left.is_none_or(|left| whole <= left));
        let Some(whole) = there else {
            let left = match self.left {
                Some(left) => format!("{left} are left of the file"),
                None => "no file has so many".to_owned(),
            };
            return Err(self.damaged(&format!("is to have {size} bytes, but {left}")));
        };
        (self.unread, self.fill) = (size, whole - size);
        Ok(())
    }

    fn skip(&mut self, count: u64) -> Result<()> {
        let skipped = match &mut self.input {
            // `begin` has checked that they exist.
            Input::Plain(file) => file.seek_relative(count as i64).map(|()| count),
            #[cfg(feature = "gzip")]
            Input::Gzip(stream) => std::io::copy(&mut stream.take(count), &mut std::io::sink()),
        };
        match skipped {
            Ok(skipped) if skipped == count => {
                self.left = self.left.map(|left| left - count);
                Ok(())
            }
            Ok(_) => Err(self.failed(ErrorKind::UnexpectedEof.into())),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// The bytes of an extension header.
    fn extension(&mut self) -> Result<Vec<u8>> {
        match self.unread > MAX_EXTENSION {
            true => Err(self.damaged("is followed by a header of more than 1 MiB")),
            false => self.read(),
        }
    }

    /// A header; `None` at the end of the archive, a block of zeros, after which nothing else is allowed.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        match self.block(header.as_mut_bytes())? {
            true => {}
            false => {
                return Err(self.damaged("is followed by the end of the file, without the mark of an archive's end"));
            }
        }
        if header.as_bytes().iter().all(|&b| b == 0) {
            let mut rest = [0; BLOCK as usize];
            while self.block(&mut rest)? {
                if rest != [0; BLOCK as usize] {
                    let error = self.damaged("is the last one of an archive, behind which the file goes on");
                    return Err(error.with_hint("archives that were put together are given one by one"));
                }
            }
            return Ok(None);
        }
        let mut summed = header.clone();
        summed.set_cksum();
        match (header.cksum(), summed.cksum()) {
            (Ok(said), Ok(is)) if said == is => Ok(Some(header)),
            _ => Err(self.damaged("is followed by a header whose checksum is wrong")),
        }
    }

    /// Fills a block; false at the end of the file.
    fn block(&mut self, block: &mut [u8; BLOCK as usize]) -> Result<bool> {
        let mut filled = 0;
        while filled < block.len() {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.failed(ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
        self.left = self.left.map(|left| left.saturating_sub(BLOCK));
        Ok(true)
    }

    /// The records of a pax header: `LENGTH KEY=VALUE\n`; a value may contain any bytes.
    fn records<'a>(&self, mut bytes: &'a [u8]) -> Result<Vec<(String, &'a [u8])>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let record = (|| {
                let space = bytes.iter().take(20).position(|&b| b == b' ')?;
                let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
                let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
                let equals = record.iter().position(|&b| b == b'=')?;
                bytes = &bytes[length..];
                Some((
                    String::from_utf8_lossy(&record[..equals]).into_owned(),
                    &record[equals + 1..],
                ))
            })();
            records.push(record.ok_or_else(|| self.damaged("is followed by a damaged pax header"))?);
        }
        Ok(records)
    }

    fn text(&self, bytes: &[u8], what: &str) -> Result<String> {
        String::from_utf8(bytes.to_vec()).map_err(|_| {
            let name = quoted(&String::from_utf8_lossy(bytes));
            bad(&self.path, &format!("has {what} that is not UTF-8: {name}"))
        })
    }

    /// An error that names the current member.
    pub(crate) fn damaged(&self, what: &str) -> Error {
        match self.name.as_str() {
            "" => bad(&self.path, &format!("is no tar file, or damaged: its beginning {what}")),
            name => bad(&self.path, &format!("is damaged: the member {} {what}", quoted(name))),
        }
    }

    fn refused(&self, what: &str) -> Error {
        bad(
            &self.path,
            &format!("has a member {} that is {what}", quoted(&self.name)),
        )
        .with_hint("shards hold whole files: `tar --dereference --hard-dereference` stores them in place of links")
    }

    fn failed(&self, error: std::io::Error) -> Error {
        let early = match self.name.as_str() {
            "" => "ends within its first header".to_owned(),
            name => format!("ends within or behind the member {}", quoted(name)),
        };
        broken(&self.path, error, &early)
    }
}

/// The name of a member for an error: its first 200 characters.
pub(crate) fn quoted(name: &str) -> String {
    match name.char_indices().nth(200) {
        Some((end, _)) => format!("{:?}...", &name[..end]),
        None => format!("{name:?}"),
    }
}
