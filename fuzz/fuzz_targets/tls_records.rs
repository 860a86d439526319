//! Encrypted connections survive whatever a peer sends, and give out what it sent only.
#![no_main]

use std::sync::{Arc, LazyLock};

use net::tls::fuzz::Fixture;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .expect("they fit");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Fixture::new(server, client)
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| FIXTURE.run(data));
