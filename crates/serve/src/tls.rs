//! TLS connections.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polygrad_core::{Error, Result};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::watched::Watched;

/// The server's certificate and key. Clones are handles to the same pair.
#[derive(Clone)]
pub struct Tls(Arc<Watched<Arc<ServerConfig>>>);

impl Tls {
    /// Reads PEM files with the certificate chain and its key, and reads them again when they have changed. Open
    /// connections keep their certificate.
    ///
    /// # Errors
    /// Files that cannot be read, hold no certificate or key, or do not belong together.
    pub fn from_pem_files(certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self> {
        let paths = vec![certificates.into(), key.into()];
        Ok(Self(Arc::new(Watched::new(paths, |paths| read(&paths[0], &paths[1]))?)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.0.get()).as_ref().clone().into()
    }
}

fn read(certificates: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let unread = |path: &Path, what: &str, error| match error {
        pem::Error::Io(error) => Error::io("read", path, error),
        error => {
            let hint = format!("give a PEM file with the {what}, which has -----BEGIN in its first line");
            Error::invalid(format!("the {what} in {} cannot be read: {error}", path.display())).with_hint(hint)
        }
    };
    let chain =
        CertificateDer::pem_file_iter(certificates).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unread(certificates, "certificate", error))?;
    if chain.is_empty() {
        return Err(unread(certificates, "certificate", pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, "key", error))?;
    let unfit = |error| {
        let (certificates, key) = (certificates.display(), key.display());
        Error::invalid(format!("{certificates} and {key} cannot be used together: {error}")).with_hint(
            "take the key that the certificate was made for; the certificate itself comes before those that sign it",
        )
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(unfit)?;
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(unfit)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl fmt::Debug for Tls {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
