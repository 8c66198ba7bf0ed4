//! Samples in tar files: which members are read, skipped, and rejected with an error that names them.

use std::path::{Path, PathBuf};

use polygrad_core::Result;
use polygrad_data::{DataLoader, DataLoaderConfig, Sample, Stream, WebDataset};
use tar::{Builder, EntryType, Header};

fn source(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "sources", name].iter().collect()
}

fn header(name: &str, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_size(size);
    header.set_cksum();
    header
}

/// A member: its header, and its bytes in whole blocks.
fn member(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut bytes = [header.as_bytes(), data].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    member(&header(name, data.len() as u64), data)
}

/// Members, and the end of an archive.
fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [&members.concat()[..], &[0; 1024]].concat()
}

/// Writes shards with numbered samples.
fn shards(folder: &Path, counts: &[usize]) -> Vec<PathBuf> {
    let mut number = 0;
    let one = |(at, &count): (usize, &usize)| {
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(file(&format!("{number:04}.cls"), number.to_string().as_bytes()));
            members.push(file(
                &format!("{number:04}.bin"),
                &vec![number as u8; 300 * (number % 5)],
            ));
            number += 1;
        }
        let path = folder.join(format!("{at}.tar"));
        std::fs::write(&path, archive(&members)).unwrap();
        path
    };
    counts.iter().enumerate().map(one).collect()
}

fn number(sample: &Sample) -> usize {
    let number: usize = sample.json("cls").unwrap();
    assert_eq!(sample.key(), format!("{number:04}"));
    assert_eq!(sample.part("bin").unwrap(), vec![number as u8; 300 * (number % 5)]);
    number
}

#[test]
fn every_dialect_is_read() {
    for (name, folders, letters) in [("gnu", 25, 85), ("pax", 25, 85), ("ustar", 1, 85)] {
        let samples = WebDataset::open([source(&format!("{name}.tar.gz"))]).unwrap();
        let samples: Vec<Sample> = samples.examples(0).unwrap().collect::<Result<_>>().unwrap();
        assert_eq!(samples.len(), 5, "{name}");
        for (i, sample) in samples.iter().enumerate() {
            let folder = "train/".repeat(if i == 3 { folders } else { 1 });
            assert_eq!(
                sample.key(),
                format!("{folder}{}{i}", "x".repeat(if i == 4 { letters } else { 1 }))
            );
            assert_eq!(sample.parts().keys().collect::<Vec<_>>(), ["cls", "meta.json", "txt"]);
            assert_eq!(sample.text("txt").unwrap(), format!("text {i}, é"));
            assert_eq!(sample.json::<usize>("cls").unwrap(), i % 3);
            assert_eq!(sample.json::<serde_json::Value>("meta.json").unwrap()["i"], i);
        }
        let error = samples[0].part("jpg").unwrap_err().to_string();
        assert!(
            error.contains("has a sample \"train/x0\" without \"jpg\": it has [\"cls\", \"meta.json\", \"txt\"]"),
            "{error}"
        );
        let error = samples[0].json::<u8>("txt").unwrap_err().to_string();
        assert!(
            error.contains(".tar.gz has a member \"train/x0.txt\" that does not fit"),
            "{error}"
        );
        let error = samples[0].image("txt").unwrap_err().to_string();
        assert!(
            error.contains("\"train/x0.txt\" that is neither a PNG nor a JPEG file"),
            "{error}"
        );
    }
}

#[test]
fn members_of_no_sample_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let mut shard = Builder::new(Vec::new());
    shard.append_dir("a.d", folder.path()).unwrap();
    let bytes = [
        shard.into_inner().unwrap()[..512].to_vec(),
        file("README", b"none"),
        file("a.d/.hidden", b"none"),
        file("a.d/1.txt", b"one"),
        file("a.d/1.seg.PNG", b"two"),
        file("b.d/1.txt", b"three"),
        file("a.d/1.txt", b"four"),
    ];
    std::fs::write(&path, archive(&bytes)).unwrap();
    let samples = WebDataset::open([&path]).unwrap().examples(0).unwrap();
    let samples: Vec<Sample> = samples.collect::<Result<_>>().unwrap();
    let keys: Vec<&str> = samples.iter().map(Sample::key).collect();
    assert_eq!(keys, ["a.d/1", "b.d/1", "a.d/1"]);
    assert_eq!(
        (samples[0].part("seg.png").unwrap(), samples[0].shard()),
        (&b"two"[..], &*path)
    );
    assert_eq!(samples[2].text("txt").unwrap(), "four");
}

#[test]
fn samples_are_passed_over_without_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path(), &[7, 1, 12]);
    let samples = WebDataset::open(&paths).unwrap();
    for skipped in 0..22 {
        let mut examples = samples.examples(0).unwrap();
        let rest: Vec<usize> = examples
            .nth(skipped)
            .into_iter()
            .chain(examples)
            .map(|s| number(&s.unwrap()))
            .collect();
        assert_eq!(rest, (skipped..20).collect::<Vec<_>>());
    }
    // Skipped data need not exist: a file of 8 GB, all of it a hole except for headers.
    let sparse = folder.path().join("sparse.tar");
    let mut file = std::fs::File::create(&sparse).unwrap();
    for (i, name) in ["1.bin", "2.bin", "3.bin"].iter().enumerate() {
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(i as u64 * ((4 << 30) + 512))).unwrap();
        std::io::Write::write_all(&mut file, header(name, if i < 2 { 4 << 30 } else { 0 }).as_bytes()).unwrap();
    }
    file.set_len((8 << 30) + 3 * 512 + 1024).unwrap();
    let samples = WebDataset::open([sparse]).unwrap().max_sample_bytes(5 << 30);
    let begun = std::time::Instant::now();
    assert_eq!(samples.examples(0).unwrap().nth(2).unwrap().unwrap().key(), "3");
    assert!(begun.elapsed().as_secs_f64() < 0.5, "{:?}", begun.elapsed());
}

#[test]
fn shards_are_shuffled_by_seed_and_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path(), &[3; 8]);
    let order = |seed: Option<u64>, epoch| -> Vec<usize> {
        let samples = WebDataset::open(&paths).unwrap();
        let samples = match seed {
            Some(seed) => samples.shuffle_shards(seed),
            None => samples,
        };
        samples
            .examples(epoch)
            .unwrap()
            .map(|sample| number(&sample.unwrap()))
            .collect()
    };
    let all: Vec<usize> = (0..24).collect();
    assert_eq!((order(None, 0), order(None, 1)), (all.clone(), all.clone()));
    let mixed = order(Some(1), 0);
    assert_eq!(order(Some(1), 0), mixed);
    assert!(mixed != all && mixed != order(Some(1), 1) && mixed != order(Some(2), 0));
    assert!(
        mixed
            .chunks(3)
            .all(|shard| shard[0] % 3 == 0 && shard[2] == shard[0] + 2)
    );
    let mut sorted = mixed;
    sorted.sort_unstable();
    assert_eq!(sorted, all);
}

fn loader(paths: &[PathBuf], workers: usize, ranks: (usize, usize)) -> DataLoader<Vec<usize>> {
    let samples = WebDataset::open(paths).unwrap().shuffle_shards(7);
    let config = DataLoaderConfig::from_stream(samples)
        .batch_size(3)
        .shuffle(5)
        .shuffle_buffer(6);
    let config = config.workers(workers).shard(ranks.0, ranks.1);
    config
        .transform(|sample, _| Ok(number(&sample)))
        .build_with(Ok)
        .unwrap()
}

fn epoch(loader: &DataLoader<Vec<usize>>) -> Vec<Vec<usize>> {
    loader.iter().collect::<Result<_>>().unwrap()
}

#[test]
fn a_loader_resumes_and_shares_them() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path(), &[5, 9, 1, 8]);
    let alone = loader(&paths, 0, (0, 1));
    let whole = [epoch(&alone), epoch(&alone)].concat();
    assert_eq!(whole.len(), 2 * 8);
    for workers in [1, 3] {
        let together = loader(&paths, workers, (0, 1));
        assert_eq!([epoch(&together), epoch(&together)].concat(), whole);
    }
    for taken in 0..16 {
        let stopped = loader(&paths, 2, (0, 1));
        let mut batches = Vec::new();
        while batches.len() < taken {
            batches.extend(stopped.iter().take(taken - batches.len()).map(Result::unwrap));
        }
        let state = serde_json::to_string(&stopped.state()).unwrap();
        let other = loader(&paths, 1, (0, 1));
        other.set_state(serde_json::from_str(&state).unwrap());
        while other.state().epoch < 2 {
            batches.extend(epoch(&other));
        }
        assert_eq!(batches, whole, "after {taken} batches");
    }
    let mut shared: Vec<usize> = (0..3)
        .flat_map(|rank| epoch(&loader(&paths, 1, (rank, 3))).concat())
        .collect();
    shared.sort_unstable();
    assert_eq!(shared, (0..23).collect::<Vec<_>>());
}

/// Checks the error for a shard with these bytes, by reading and by skipping.
fn refused(bytes: &[u8], words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shard.tar");
    std::fs::write(&path, bytes).unwrap();
    let samples = WebDataset::open([&path]).unwrap().max_sample_bytes(5000);
    let read = samples.examples(0).unwrap().find_map(Result::err).expect("an error");
    let passed = samples.examples(0).unwrap().nth(100).expect("an error").unwrap_err();
    for error in [read.to_string(), passed.to_string()] {
        assert!(error.contains(words) && error.contains("shard.tar"), "{error}");
    }
    // The error also ends the iteration.
    let mut examples = samples.examples(0).unwrap();
    assert!(examples.by_ref().any(|sample| sample.is_err()) && examples.next().is_none());
}

#[test]
fn what_cannot_be_read_is_named() {
    let good = || vec![file("1.txt", b"one"), file("2.txt", &[b'x'; 700])];
    let with = |last: Vec<u8>| archive(&[good(), vec![last]].concat());
    let of_kind = |kind| {
        let mut header = header("3.txt", 0);
        header.set_entry_type(kind);
        header.set_link_name("1.txt").unwrap();
        header.set_cksum();
        member(&header, b"")
    };
    let whole = archive(&good());
    refused(
        b"",
        "is no tar file, or damaged: its beginning is followed by the end of the file",
    );
    refused(&[0; 1024], "has no samples");
    refused(&archive(&[file("README", b"none")]), "has no samples");
    refused(b"\x89PNG and so on", "is truncated: it ends within its first header");
    refused(
        &[b'x'; 600],
        "its beginning is followed by a header whose checksum is wrong",
    );
    refused(
        &whole[..2 * 512 + 512 + 200],
        "the member \"2.txt\" is to have 700 bytes, but 200 are left of the file",
    );
    refused(
        &whole[..whole.len() - 1024],
        "the member \"2.txt\" is followed by the end of the file, without the mark",
    );
    refused(
        &whole[..2 * 512 + 100],
        "is truncated: it ends within or behind the member \"1.txt\"",
    );
    let mut flipped = whole.clone();
    flipped[1024 + 3] ^= 1;
    refused(
        &flipped,
        "the member \"1.txt\" is followed by a header whose checksum is wrong",
    );
    refused(
        &[&whole[..], &whole].concat(),
        "the last one of an archive, behind which the file goes on",
    );
    let petabytes = member(&header("3.txt", 5 << 50), b"");
    refused(
        &with(petabytes),
        "the member \"3.txt\" is to have 5629499534213120 bytes, but 1024 are left of the file",
    );
    refused(
        &with(member(&header("3.txt", u64::MAX), b"")),
        "the member \"3.txt\" is to have 18446744073709551615 bytes",
    );
    refused(
        &with(file("3.txt", &[0; 6000])),
        "has a member \"3.txt\" that has 6000 bytes, and its sample more than the limit of 5000",
    );
    let twice = [file("3.txt", b"a"), file("3.TXT", b"b")].concat();
    refused(&with(twice), "has a member \"3.TXT\" that its sample has already");
    for kind in [EntryType::Link, EntryType::Symlink] {
        refused(&with(of_kind(kind)), "has a member \"3.txt\" that is a link");
    }
    refused(
        &with(of_kind(EntryType::Fifo)),
        "has a member \"3.txt\" that is neither a file nor a folder",
    );
    refused(
        &with(of_kind(EntryType::GNUSparse)),
        "has a member \"3.txt\" that is a sparse file",
    );
    let pax = |records: &[u8]| {
        let mut header = header("pax", records.len() as u64);
        header.set_entry_type(EntryType::XHeader);
        header.set_cksum();
        member(&header, records)
    };
    refused(&with(pax(b"12 path=a.b\n")), "announces another member, and the end");
    refused(&with(pax(b"99 path=a.b\n")), "is followed by a damaged pax header");
    // A name of 4,000 letters, of which 200 are shown.
    let long = pax(format!("4011 path={}\n", "n".repeat(4000)).as_bytes());
    let link = format!("has a member \"{}\"... that is a link", "n".repeat(200));
    refused(&with([long, of_kind(EntryType::Symlink)].concat()), &link);
    refused(&with(pax(b"9 size=x\n")), "has a size that is no number");
    let larger = [pax(b"25 size=1125899906842624\n"), file("3.txt", b"a")].concat();
    refused(&with(larger), "the member \"3.txt\" is to have 1125899906842624 bytes");
    let mut text = header("x.txt", 1);
    text.as_old_mut().name[0] = 0xff;
    text.set_cksum();
    refused(&with(member(&text, b"a")), "has the name of a member that is not UTF-8");
    let error = WebDataset::open(Vec::<PathBuf>::new()).unwrap_err().to_string();
    assert!(error.contains("there are no shards"), "{error}");
    let error = WebDataset::open(["/nowhere.tar"]).unwrap_err().to_string();
    assert!(error.contains("cannot read /nowhere.tar"), "{error}");
}

#[test]
fn compressed_shards_are_held_to_the_same() {
    let pack = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    let whole = archive(&[file("1.txt", b"one"), file("2.txt", &[b'x'; 700])]);
    let lying = archive(&[file("1.txt", b"one"), member(&header("2.txt", 4000), b"")]);
    refused(
        &pack(&lying),
        "is truncated: it ends within or behind the member \"2.txt\"",
    );
    refused(
        &pack(&whole[..1300]),
        "is truncated: it ends within or behind the member \"1.txt\"",
    );
    let packed = pack(&whole);
    let mut flipped = packed.clone();
    let at = packed.len() - 6;
    flipped[at] ^= 1;
    refused(&flipped, "its gzip stream is damaged");
    refused(&packed[..packed.len() - 4], "is truncated");
}
