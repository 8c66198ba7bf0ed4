//! Samples in tar shards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use polygrad_core::{Error, Result};
use serde::de::DeserializeOwned;

use crate::image::{Image, bad};
use crate::members::{Member, Members, quoted};
use crate::order::shuffled;
use crate::stream::Stream;

/// Default limit of the bytes of a sample.
const MAX_SAMPLE: u64 = 256 << 20;

/// Samples in tar files ("shards") in the format of the Python package webdataset: consecutive members whose names are
/// equal up to the first dot of the base name form one sample, for example `train/0001.jpg` and `train/0001.cls`. The
/// rest of the name, in lower case, is the name of the sample's part. Files whose base name has no dot, or begins with
/// one, belong to no sample.
///
/// One sample at a time is in memory. Shards compressed by gzip are read with the feature `gzip`, regardless of their
/// name.
///
/// ```
/// use polygrad_data::{DataLoaderConfig, WebDataset};
/// # use polygrad_core::Result;
/// # fn loader(shards: Vec<std::path::PathBuf>) -> Result<()> {
/// let samples = WebDataset::open(shards)?.shuffle_shards(0);
/// let config = DataLoaderConfig::from_stream(samples)
///     .shuffle(0)
///     .transform(|sample, _rng| Ok((sample.image("jpg")?.to_rgb(), sample.json::<usize>("cls")?)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WebDataset {
    shards: Vec<Arc<Path>>,
    seed: Option<u64>,
    max_sample_bytes: u64,
}

impl WebDataset {
    /// Uses shards in this order, each of which must exist, without reading them.
    ///
    /// # Errors
    /// When there are none, or one is not a file.
    pub fn open<P: AsRef<Path>>(shards: impl IntoIterator<Item = P>) -> Result<Self> {
        let shards: Vec<Arc<Path>> = shards.into_iter().map(|path| Arc::from(path.as_ref())).collect();
        if shards.is_empty() {
            return Err(Error::invalid("there are no shards to read"));
        }
        for shard in &shards {
            polygrad_core::open_file(shard)?;
        }
        Ok(Self {
            shards,
            seed: None,
            max_sample_bytes: MAX_SAMPLE,
        })
    }

    /// Shuffles the shards anew in each epoch, depending only on the seed and the epoch. Default: the given order.
    #[must_use]
    pub fn shuffle_shards(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Limit of a sample's size, for the contents and names of all its members; larger samples are an error. Default:
    /// 256 MiB.
    #[must_use]
    pub fn max_sample_bytes(mut self, bytes: u64) -> Self {
        self.max_sample_bytes = bytes;
        self
    }
}

/// Skipping samples reads at most 64 KiB of an uncompressed tar file for each header. An error ends the stream and
/// names shard and member: a member that is damaged, truncated, too large, a link instead of a file, or twice in its
/// sample, or a shard without samples.
impl Stream for WebDataset {
    type Item = Sample;

    fn examples(&self, epoch: u64) -> Result<Box<dyn Iterator<Item = Result<Sample>> + Send>> {
        let shards: Vec<Arc<Path>> = match self.seed {
            Some(seed) => {
                let order = shuffled(seed, epoch, self.shards.len());
                order.iter().map(|&i| Arc::clone(&self.shards[i as usize])).collect()
            }
            None => self.shards.clone(),
        };
        Ok(Box::new(Samples {
            shards: shards.into_iter(),
            shard: None,
            limit: self.max_sample_bytes,
        }))
    }
}

/// The parts of a sample, by the ends of its members' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    shard: Arc<Path>,
    key: String,
    parts: BTreeMap<String, Vec<u8>>,
}

impl Sample {
    /// The common beginning of its members' names, including folders: `train/0001`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The tar file that it comes from.
    pub fn shard(&self) -> &Path {
        &self.shard
    }

    /// All parts: `cls`, `jpg`, `seg.png`.
    pub fn parts(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.parts
    }

    /// The bytes of a part.
    ///
    /// # Errors
    /// When the sample has no part of this name; the error lists its parts.
    pub fn part(&self, name: &str) -> Result<&[u8]> {
        self.parts.get(name).map(Vec::as_slice).ok_or_else(|| {
            let names: Vec<String> = self.parts.keys().map(|name| quoted(name)).collect();
            bad(
                &self.shard,
                &format!(
                    "has a sample {} without {name:?}: it has [{}]",
                    quoted(&self.key),
                    names.join(", ")
                ),
            )
        })
    }

    /// A part as UTF-8 text.
    ///
    /// # Errors
    /// As [`Sample::part`], and when it is not UTF-8.
    pub fn text(&self, name: &str) -> Result<&str> {
        std::str::from_utf8(self.part(name)?).map_err(|_| self.unfit(name, "is not UTF-8"))
    }

    /// A part as JSON: an object, or a number as in webdataset's `cls`.
    ///
    /// # Errors
    /// As [`Sample::part`], and when it is not JSON, or does not fit the type.
    pub fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        serde_json::from_slice(self.part(name)?).map_err(|e| self.unfit(name, &format!("does not fit: {e}")))
    }

    /// A part as a PNG or JPEG image, read as by [`Image::open`].
    ///
    /// # Errors
    /// As [`Sample::part`] and [`Image::open`].
    pub fn image(&self, name: &str) -> Result<Image> {
        Image::decode(self.part(name)?).map_err(|what| self.unfit(name, &what))
    }

    fn unfit(&self, name: &str, what: &str) -> Error {
        bad(
            &self.shard,
            &format!("has a member {} that {what}", quoted(&format!("{}.{name}", self.key))),
        )
    }
}

/// The samples of an epoch.
struct Samples {
    shards: std::vec::IntoIter<Arc<Path>>,
    shard: Option<Shard>,
    limit: u64,
}

struct Shard {
    members: Members,
    /// The first member of the next sample, unread: its key, its part and the member.
    first: Option<(String, String, Member)>,
    given: bool,
}

impl Samples {
    /// The next sample, without its parts' bytes unless they are `wanted`; after an error there is none.
    fn advance(&mut self, wanted: bool) -> Option<Result<Sample>> {
        let sample = self.sample(wanted).transpose();
        if !matches!(sample, Some(Ok(_))) {
            (self.shard, self.shards) = (None, Vec::new().into_iter());
        }
        sample
    }

    fn sample(&mut self, wanted: bool) -> Result<Option<Sample>> {
        loop {
            let shard = match (&mut self.shard, self.shards.as_slice()) {
                (Some(shard), _) => shard,
                (None, []) => return Ok(None),
                (none, [path, ..]) => none.insert(Shard {
                    members: Members::open(path)?,
                    first: None,
                    given: false,
                }),
            };
            match shard.sample(self.limit, wanted)? {
                Some(sample) => return Ok(Some(sample)),
                None if shard.given => {
                    self.shard = None;
                    self.shards.next();
                }
                None => return Err(bad(&shard.members.path, "has no samples")),
            }
        }
    }
}

impl Iterator for Samples {
    type Item = Result<Sample>;

    fn next(&mut self) -> Option<Result<Sample>> {
        self.advance(true)
    }

    fn nth(&mut self, n: usize) -> Option<Result<Sample>> {
        for _ in 0..n {
            match self.advance(false) {
                Some(Ok(_)) => {}
                ended => return ended,
            }
        }
        self.advance(true)
    }
}

impl Shard {
    fn sample(&mut self, limit: u64, wanted: bool) -> Result<Option<Sample>> {
        let first = match self.first.take() {
            Some(first) => Some(first),
            None => self.named()?,
        };
        let Some((key, mut name, mut member)) = first else {
            return Ok(None);
        };
        let (mut parts, mut left) = (BTreeMap::new(), limit);
        loop {
            let takes = member.size.saturating_add(member.name.len() as u64);
            left = left.checked_sub(takes).ok_or_else(|| {
                let what = format!(
                    "has {} bytes, and its sample more than the limit of {limit}",
                    member.size
                );
                let hint = "`max_sample_bytes` sets another limit";
                bad(
                    &self.members.path,
                    &format!("has a member {} that {what}", quoted(&member.name)),
                )
                .with_hint(hint)
            })?;
            let bytes = if wanted { self.members.read()? } else { Vec::new() };
            if parts.insert(name, bytes).is_some() {
                let what = format!("has a member {} that its sample has already", quoted(&member.name));
                return Err(bad(&self.members.path, &what));
            }
            match self.named()? {
                Some((other, next, following)) if other == key => (name, member) = (next, following),
                other => {
                    self.first = other;
                    break;
                }
            }
        }
        self.given = true;
        Ok(Some(Sample {
            shard: Arc::clone(&self.members.path),
            key,
            parts,
        }))
    }

    /// The next member that belongs to a sample, with the sample's key and the part's name.
    fn named(&mut self) -> Result<Option<(String, String, Member)>> {
        while let Some(member) = self.members.next()? {
            let base = member.name.rfind('/').map_or(0, |slash| slash + 1);
            if let Some((stem, part)) = member.name[base..].split_once('.')
                && !stem.is_empty()
            {
                let key = member.name[..base + stem.len()].to_owned();
                return Ok(Some((key, part.to_lowercase(), member)));
            }
        }
        Ok(None)
    }
}
