//! Encryption, and how the server is checked.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::Error;

/// The files that a URL names.
pub(super) struct Files {
    pub(super) ca: Option<String>,
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
}

impl Files {
    pub(super) fn are_given(&self) -> bool {
        self.ca.is_some() || self.cert.is_some() || self.key.is_some()
    }
}

/// What encrypts, by mode and files.
pub(super) fn connector(mode: SslMode, files: &Files) -> Result<MakeRustlsConnect, Error> {
    // Named, not the process's default: that may not be set, or belong to someone else.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::rejected(format!("TLS cannot be used: {error}")))?;
    let builder = match (mode, &files.ca) {
        (_, Some(ca)) => builder.with_root_certificates(roots_of(ca)?),
        (SslMode::Require, None) => builder.with_root_certificates(system_roots()?),
        (_, None) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unchecked(provider))),
    };
    let config = match (&files.cert, &files.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            builder
                .with_client_auth_cert(certificates(cert)?, key)
                .map_err(|error| {
                    Error::rejected(format!("{cert} and its key cannot be used: {error}"))
                })?
        }
        _ => {
            return Err(Error::rejected(
                "the URL cannot be used: cert and key belong together, give both",
            ));
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots_of(file: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| unreadable(file, &error))?;
    }
    Ok(roots)
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(file, &error))?;
    if found.is_empty() {
        return Err(Error::rejected(format!("{file} holds no certificate")));
    }
    Ok(found)
}

fn unreadable(file: &str, error: &dyn std::fmt::Display) -> Error {
    Error::rejected(format!("{file} cannot be used: {error}"))
}

fn system_roots() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Error::rejected(
            "this system has no certificates to check the server by; name a file with ca=FILE",
        ));
    }
    Ok(roots)
}

/// For `sslmode=prefer` without `ca`: whoever answers is believed, as PostgreSQL's own tools do.
/// That the other side has the key of its certificate is checked all the same.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
