//! `serve --tls-cert --tls-key`: HTTPS.

use crate::common::Scene;

#[cfg(not(feature = "tls"))]
#[test]
fn tls_needs_its_feature() {
    Scene::new().fails(
        "serve model.onnx --tls-cert cert.pem --tls-key key.pem",
        &["--tls-cert", "not in this build", "build with `--features tls`"],
    );
}

#[cfg(feature = "tls")]
mod secured {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::Arc;

    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    use super::Scene;
    use crate::serve::{Served, request};

    /// Writes a certificate for localhost and its key, and returns the certificate.
    fn certify(scene: &Scene, name: &str) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        scene.write(&format!("{name}.pem"), made.cert.pem().as_bytes());
        scene.write(&format!("{name}-key.pem"), made.signing_key.serialize_pem().as_bytes());
        made.cert.der().clone()
    }

    /// The answer to a client that trusts a certificate.
    fn ask(served: &Served, trusted: CertificateDer<'static>, request: &str) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(client, TcpStream::connect(&served.address)?);
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    #[test]
    fn a_model_is_served_by_https_alone() {
        let scene = Scene::new();
        scene.train("bars", "--epochs 1 --model mlp");
        let (certificate, other) = (certify(&scene, "own"), certify(&scene, "other"));
        scene.write("tokens", b"secret\n");
        let files = "--tls-cert own.pem --tls-key own-key.pem --token-file tokens";
        let served = Served::new(&scene, &format!("bars {files}"));
        for words in ["serving on https://127.0.0.1:", "  curl --cacert own.pem -H"] {
            assert!(served.said.contains(words), "{}", served.said);
        }
        let (model, body) = served.example();
        let path = format!("/v2/models/{model}/infer");
        let asked = |headers: &str| request(headers, "POST", &path, &body);
        let answer = ask(&served, certificate.clone(), &asked("Authorization: Bearer secret\r\n")).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("\"logits\""),
            "{answer}"
        );
        let answer = ask(&served, certificate, &asked("")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        // A certificate that this server does not have.
        let error = ask(&served, other, &asked("")).unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
        // Without TLS there is no answer.
        let mut plain = TcpStream::connect(&served.address).unwrap();
        plain.write_all(request("", "GET", "/v2", "").as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The connection may be reset.
        let _ = plain.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(served.end(), Some(0));
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let scene = Scene::new();
        certify(&scene, "own");
        certify(&scene, "other");
        scene.write("text.pem", b"no certificate\n");
        scene.write("half.pem", &scene.read("own.pem")[..200]);
        for (cert, key, words) in [
            ("none.pem", "own-key.pem", ["cannot read none.pem", "check"]),
            ("own.pem", "none.pem", ["cannot read none.pem", "check"]),
            ("text.pem", "own-key.pem", ["the certificate in text.pem", "-----BEGIN"]),
            ("half.pem", "own-key.pem", ["the certificate in half.pem", "-----BEGIN"]),
            ("own.pem", "text.pem", ["the key in text.pem", "-----BEGIN"]),
            ("own.pem", "own.pem", ["the key in own.pem", "-----BEGIN"]),
            (
                "own.pem",
                "other-key.pem",
                ["own.pem and other-key.pem", "take the key"],
            ),
        ] {
            scene.fails(&format!("serve m.onnx --tls-cert {cert} --tls-key {key}"), &words);
        }
        assert_eq!(scene.run("serve m.onnx --tls-cert own.pem").code, Some(2));
    }
}
