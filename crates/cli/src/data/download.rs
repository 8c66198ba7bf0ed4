//! Downloads the full Fashion-MNIST, once, into the user's cache folder.
//!
//! Its home serves plain HTTP, so what vouches for the files is their SHA-256, not the connection.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::failure::{Failure, Result};
use crate::progress;
use crate::run::atomic::AtomicFile;

/// Where the Fashion-MNIST project serves its files (<https://github.com/zalandoresearch/fashion-mnist#get-the-data>).
pub(crate) const FASHION_MNIST_HOME: &str = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/";

/// A file at the data set's home.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote<'a> {
    /// Its name there and here.
    pub(crate) name: &'a str,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// The SHA-256 of its bytes, in lower-case hexadecimal.
    pub(crate) sha256: &'a str,
}

/// The files at that home: the SHA-256 sums are those of the bytes whose MD5 sums the project publishes.
pub(crate) const FASHION_MNIST: [Remote<'static>; 4] = [
    Remote {
        name: "train-images-idx3-ubyte.gz",
        size: 26_421_880,
        sha256: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    },
    Remote {
        name: "train-labels-idx1-ubyte.gz",
        size: 29_515,
        sha256: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    },
    Remote {
        name: "t10k-images-idx3-ubyte.gz",
        size: 4_422_102,
        sha256: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    },
    Remote {
        name: "t10k-labels-idx1-ubyte.gz",
        size: 5_148,
        sha256: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
];

/// Downloads those of `files` that `folder` lacks, from `home` (which ends in a slash).
///
/// A file takes its name only after its checksum was found right, so whatever has the name is whole.
///
/// # Errors
/// No connection, an answer other than 200, a transfer that stalls or ends early, wrong bytes, a folder that cannot be
/// written; each says how to get the files by hand.
pub(crate) fn fetch_missing(home: &str, files: &[Remote<'_>], folder: &Path) -> Result<()> {
    let missing: Vec<&Remote<'_>> = files.iter().filter(|file| !folder.join(file.name).is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|e| Failure::io("create the folder", folder, &e))?;
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_per_read(Some(Duration::from_secs(60)))
        .build()
        .into();
    for file in missing {
        fetch(&agent, home, file, folder)?;
    }
    Ok(())
}

fn fetch(agent: &ureq::Agent, home: &str, file: &Remote<'_>, folder: &Path) -> Result<()> {
    let url = format!("{home}{}", file.name);
    let path = folder.join(file.name);
    let failed = |why: String| {
        Failure::new(format!("cannot download {url}: {why}")).fix(
            "try again later, or get the four files by hand: download them as \
             https://github.com/zalandoresearch/fashion-mnist tells and give their folder with --data DIR, or install \
             Debian's package dataset-fashion-mnist. Without --full the subset in the repository needs no download",
        )
    };
    let mut response = agent.get(&url).call().map_err(|e| failed(e.to_string()))?;
    // One byte more than expected is enough to see that there is too much.
    let mut body = response.body_mut().as_reader().take(file.size + 1);
    let mut sink = AtomicFile::create(&path)?;
    let bar = progress::download(file.name, file.size);
    let mut hash = Sha256::new();
    let mut received = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = body
            .read(&mut buffer)
            .map_err(|e| failed(format!("it broke off after {received} of {} bytes: {e}", file.size)))?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        sink.append(chunk)?;
        hash.update(chunk);
        received += chunk.len() as u64;
        bar.set_position(received);
    }
    bar.finish_and_clear();
    if received != file.size {
        return Err(failed(format!("it has {received} bytes or more, not {}", file.size)));
    }
    let sum: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if sum != file.sha256 {
        return Err(failed(format!("its SHA-256 is {sum}, not {}", file.sha256)));
    }
    sink.commit()
}

#[cfg(test)]
#[path = "download_tests.rs"]
mod tests;
