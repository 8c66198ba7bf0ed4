//! Downloads the full Fashion-MNIST, once, into the user's cache folder.
//!
//! Its home serves plain HTTP, so what vouches for the files is their SHA-256, not the connection.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use hmac_sha256::Hash;
use polygrad::backend::printable;

use crate::failure::{Failure, Result};
use crate::progress::Download;
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

/// The files at that address. Their SHA-256 sums are those of the bytes whose MD5 sums the project publishes.
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
/// A file only gets its name after its checksum was verified, so a file with that name is complete.
///
/// # Errors
/// Neither curl nor wget, no connection, an answer other than 200, a transfer that stalls or ends early, wrong bytes, a
/// folder that cannot be written. Each error says how to get the files by hand.
pub(crate) fn fetch_missing(home: &str, files: &[Remote<'_>], folder: &Path) -> Result<()> {
    let missing: Vec<&Remote<'_>> = files.iter().filter(|file| !folder.join(file.name).is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|e| Failure::io("create the folder", folder, &e))?;
    for file in missing {
        fetch(home, file, folder)?;
    }
    Ok(())
}

/// The programs that can download, the better one first, with options to write a file to standard output, follow
/// redirections, and give up if there is no answer or the transfer stalls.
const DOWNLOADERS: [(&str, &[&str]); 2] = [
    (
        "curl",
        &[
            "--silent",
            "--show-error",
            "--fail",
            "--location",
            "--proto",
            "=http,https",
            "--connect-timeout",
            "20",
            "--speed-limit",
            "1",
            "--speed-time",
            "60",
            "--",
        ],
    ),
    (
        "wget",
        &[
            "--no-verbose",
            "--tries=1",
            "--connect-timeout=20",
            "--read-timeout=60",
            "--output-document=-",
            "--",
        ],
    ),
];

/// A transfer in progress, which is terminated when this is dropped.
struct Transfer {
    program: &'static str,
    child: Child,
    body: ChildStdout,
}

impl Transfer {
    /// Starts the first of `programs` that is installed; `None` if there is none.
    fn start(url: &str, programs: &[(&'static str, &[&str])]) -> std::io::Result<Option<Self>> {
        for (program, options) in programs {
            let mut command = Command::new(program);
            command.args(*options).arg(url);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            match command.spawn() {
                Ok(mut child) => {
                    let Some(body) = child.stdout.take() else {
                        unreachable!("standard output is a pipe");
                    };
                    return Ok(Some(Self { program, child, body }));
                }
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// The program's own error message; `None` if it succeeded.
    fn failure(&mut self) -> std::io::Result<Option<String>> {
        let mut words = String::new();
        if let Some(stderr) = self.child.stderr.as_mut() {
            // The beginning of the message says what happened.
            stderr.take(1000).read_to_string(&mut words)?;
        }
        let status = self.child.wait()?;
        Ok((!status.success()).then(|| match words.trim() {
            "" => format!("{} ended with {status}", self.program),
            words => printable(words).to_string(),
        }))
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fetch(home: &str, file: &Remote<'_>, folder: &Path) -> Result<()> {
    let url = format!("{home}{}", file.name);
    let path = folder.join(file.name);
    let failed = |why: String| {
        Failure::new(format!("cannot download {url}: {why}")).fix(
            "try again later, or get the four files by hand: download them as \
             https://github.com/zalandoresearch/fashion-mnist tells and give their folder with --data DIR, or install \
             Debian's package dataset-fashion-mnist. Without --full the subset in the repository needs no download",
        )
    };
    let transfer = Transfer::start(&url, &DOWNLOADERS).map_err(|e| failed(e.to_string()))?;
    let mut transfer = transfer.ok_or_else(|| failed("neither curl nor wget is installed here".to_owned()))?;
    let mut sink = AtomicFile::create(&path)?;
    let mut progress = Download::new(file.name, file.size);
    let mut hash = Hash::new();
    let mut received = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let broken = |e: std::io::Error| failed(e.to_string());
        let read = transfer.body.read(&mut buffer).map_err(broken)?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
            if let Some(why) = transfer.failure().map_err(broken)? {
                return Err(failed(match received {
                    0 => why,
                    _ => format!("it broke off after {received} of {} bytes: {why}", file.size),
                }));
            }
            break;
        };
        sink.append(chunk)?;
        hash.update(chunk);
        received += chunk.len() as u64;
        if received > file.size {
            break;
        }
        progress.received(received);
    }
    drop(progress);
    if received > file.size {
        return Err(failed(format!("it has more than {} bytes", file.size)));
    }
    if received < file.size {
        return Err(failed(format!("it has {received} bytes, not {}", file.size)));
    }
    let sum = hex(hash);
    if sum != file.sha256 {
        return Err(failed(format!("its SHA-256 is {sum}, not {}", file.sha256)));
    }
    sink.commit()
}

/// A SHA-256 in lower-case hexadecimal.
fn hex(hash: Hash) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "download_tests.rs"]
mod tests;
