//! TLS settings made ready: files are read and checked once, before any connection is opened.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use super::{error::Error, options::NodeAddress};

/// What the settings say about TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Authorities to trust, in PEM. Default: the public ones.
    pub ca_file: Option<PathBuf>,
    /// The name to expect in every node's certificate. Default: the host of each node's address.
    pub server_name: Option<String>,
    /// Our own certificate and its key, in PEM, where Redis asks clients for one.
    pub certificate_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

/// TLS ready to use.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl Tls {
    pub fn load(options: &TlsOptions) -> Result<Self, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(settings)?
            .with_root_certificates(roots(options.ca_file.as_deref())?);
        let config = match (&options.certificate_file, &options.key_file) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| in_file(key, error))?;
                builder.with_client_auth_cert(certificates(certificate)?, private).map_err(settings)?
            }
            _ => {
                return Err(settings("a client certificate needs both its file and its key's file"));
            }
        };
        let server_name = match &options.server_name {
            Some(name) => Some(parse_name(name)?),
            None => None,
        };
        Ok(Self { config: Arc::new(config), server_name })
    }

    pub(super) fn connector(&self) -> TlsConnector {
        TlsConnector::from(self.config.clone())
    }

    /// The name that the certificate of `node` must carry.
    pub(super) fn server_name(&self, node: &NodeAddress) -> Result<ServerName<'static>, Error> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => parse_name(&node.host),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, Error> {
    let Some(file) = ca_file else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| in_file(file, error))?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| in_file(file, error))?;
    let certificates: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| in_file(file, error))?;
    if certificates.is_empty() {
        return Err(in_file(file, "no certificate in it"));
    }
    Ok(certificates)
}

fn parse_name(name: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name.to_owned()).map_err(|_| settings(format!("\"{name}\" cannot be a server name")))
}

fn in_file(file: &Path, error: impl fmt::Display) -> Error {
    settings(format!("{}: {error}", file.display()))
}

fn settings(reason: impl fmt::Display) -> Error {
    Error::TlsSettings { reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: TlsOptions, expected: &str) {
        let message = Tls::load(&options).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn unusable_settings_name_what_is_wrong() {
        check(TlsOptions { ca_file: Some("no/such/ca.pem".into()), ..Default::default() }, "no/such/ca.pem: ");
        check(TlsOptions { ca_file: Some("Cargo.toml".into()), ..Default::default() }, "Cargo.toml: no certificate");
        check(
            TlsOptions { key_file: Some("key.pem".into()), ..Default::default() },
            "both its file and its key's file",
        );
        check(TlsOptions { server_name: Some("a b".into()), ..Default::default() }, "\"a b\" cannot be");
        Tls::load(&TlsOptions::default()).unwrap();
    }
}
