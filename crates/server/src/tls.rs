//! Encryption: rustls, with a certificate that is read again when its files change.
//!
//! A new pair that cannot be used is complained about and the old one stays: a half-copied file must not take a server
//! down. Connections keep the certificate that they began with.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, as they are at the moment.
#[derive(Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    now: RwLock<LoadedCertificate>,
}

#[derive(Clone, Debug)]
struct LoadedCertificate {
    /// What stood in the files, to see whether it still does.
    files: (Vec<u8>, Vec<u8>),
    config: Arc<ServerConfig>,
}

impl Tls {
    /// Reads both files.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, String> {
        let files = (read(cert)?, read(key)?);
        let config = build(&files.0, &files.1).map_err(|why| at(cert, key, &why))?;
        Ok(Tls {
            cert: cert.to_owned(),
            key: key.to_owned(),
            now: RwLock::new(LoadedCertificate { files, config }),
        })
    }

    /// What greets the next connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner).config))
    }

    /// Reads the files again if they have changed. True: there is a new certificate.
    pub fn refresh(&self) -> Result<bool, String> {
        let files = (read(&self.cert)?, read(&self.key)?);
        if files == self.now.read().unwrap_or_else(PoisonError::into_inner).files {
            return Ok(false);
        }
        let config = build(&files.0, &files.1).map_err(|why| at(&self.cert, &self.key, &why))?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = LoadedCertificate { files, config };
        Ok(true)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn at(cert: &Path, key: &Path, why: &str) -> String {
    format!("{} and {} cannot be used: {why}", cert.display(), key.display())
}

fn build(cert: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate is not PEM: {error}"))?;
    if chain.is_empty() {
        return Err("there is no certificate in the file".to_owned());
    }
    // What is wrong with a key is not repeated: the message might quote it.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| "there is no private key as PEM in the file".to_owned())?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
