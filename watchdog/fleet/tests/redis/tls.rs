//! `rediss://`, with a certificate of the test's own.

use std::path::Path;
use std::process::Command;

use watchdog_fleet::FleetStoreError;
use watchdog_tests::RedisServer;

use crate::guest::{FleetGuest, LONG};

/// Set in the second run of the test, which trusts the certificate: the trusted ones are read once a process.
const INNER: &str = "WATCHDOG_FLEET_TLS";

fn certificate(directory: &Path) -> [String; 2] {
    let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| directory.join(name).display().to_string());
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=store", "-addext", "subjectAltName=DNS:localhost"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &certificate]);
    assert!(command.output().expect("openssl runs").status.success());
    [key, certificate]
}

#[test]
fn certificate_is_verified() {
    if let Ok(port) = std::env::var(INNER) {
        FleetGuest::of(&format!("rediss://localhost:{port}"), "trusting", LONG).restate();
        let other_name = format!("rediss://127.0.0.1:{port}");
        let error = FleetGuest::of(&other_name, "trusting", LONG).try_restate().unwrap_err();
        assert!(matches!(error, FleetStoreError::Unreachable { .. }), "{error:?}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [key, certificate] = certificate(directory.path());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let arguments = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let Some(_server) = RedisServer::start(&[&arguments[..], &["--tls-auth-clients", "no"]].concat()) else { return };
    let url = format!("rediss://localhost:{port}");
    let error = FleetGuest::of(&url, "strange", LONG).try_restate().unwrap_err();
    assert!(matches!(error, FleetStoreError::Unreachable { .. }), "an unknown certificate: {error:?}");
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["tls::certificate_is_verified", "--exact"]).env(INNER, port).env("SSL_CERT_FILE", certificate);
    let output = again.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
