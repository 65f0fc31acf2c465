//! The image: an OCI layout with one layer, from scratch, as a tar that `docker load`,
//! `podman load` and `skopeo copy oci-archive:` read.

use super::archive::{self, Entry, FILE, PROGRAM};
use super::{Release, VERSION, hexadecimal};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Where the volume of the data is.
pub const DATA: &str = "/var/lib/ottla";

/// The user that images without a user database run as by custom.
const USER: u64 = 65532;

pub fn name() -> String {
    format!("ottla-{VERSION}-oci.tar")
}

pub fn build(release: &Release) -> Result<Vec<u8>> {
    let tar = layer(release)?;
    let layer = archive::gzip(&tar)?;
    let config = serde_json::to_vec(&config(release, &digest(&tar))?)?;
    let manifest = serde_json::to_vec(&manifest(&config, &layer))?;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(&manifest),
            "size": manifest.len(),
            "platform": {"architecture": "amd64", "os": "linux"},
            "annotations": {"org.opencontainers.image.ref.name": VERSION},
        }],
    });
    // What Docker before 25 reads instead of the index.
    let docker = json!([{
        "Config": blob(&config),
        "RepoTags": [format!("ottla:{VERSION}")],
        "Layers": [blob(&layer)],
    }]);
    let entries = vec![
        Entry::file("oci-layout", FILE, r#"{"imageLayoutVersion":"1.0.0"}"#),
        Entry::file("index.json", FILE, serde_json::to_vec(&index)?),
        Entry::file("manifest.json", FILE, serde_json::to_vec(&docker)?),
        Entry::directory("blobs", 0o755),
        Entry::directory("blobs/sha256", 0o755),
        Entry::file(blob(&config), FILE, config),
        Entry::file(blob(&manifest), FILE, manifest),
        Entry::file(blob(&layer), FILE, layer),
    ];
    archive::tar(entries, "", release.commit_time_s)
}

/// The files of the image, as a tar.
fn layer(release: &Release) -> Result<Vec<u8>> {
    let path = release.packaging("oci/server.properties");
    let properties = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut entries: Vec<Entry> = [
        "etc",
        "etc/ottla",
        "usr",
        "usr/bin",
        "usr/share",
        "var",
        "var/lib",
    ]
    .into_iter()
    .map(|path| Entry::directory(path, 0o755))
    .collect();
    // A named volume takes the owner of the directory in the image.
    entries.push(Entry::directory(DATA.trim_start_matches('/'), 0o750).owned_by(USER));
    entries.push(Entry::directory("tmp", 0o1777));
    entries.push(Entry::file("usr/bin/ottla", PROGRAM, release.binary.clone()));
    entries.push(Entry::file("etc/ottla/server.properties", FILE, properties));
    entries.push(Entry::file("usr/share/LICENSE", FILE, release.license.clone()));
    entries.push(Entry::file(
        "usr/share/THIRD-PARTY.txt",
        FILE,
        release.notices.clone(),
    ));
    // `localhost` has to have an address without a name server.
    entries.push(Entry::file(
        "etc/hosts",
        FILE,
        "127.0.0.1 localhost\n::1 localhost\n",
    ));
    archive::tar(entries, "", release.commit_time_s)
}

fn config(release: &Release, layer: &str) -> Result<Value> {
    let created = jiff::Timestamp::from_second(i64::try_from(release.commit_time_s)?)?.to_string();
    Ok(json!({
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/ottla", "serve", "/etc/ottla/server.properties"],
            "ExposedPorts": {"9092/tcp": {}},
            "Volumes": {DATA: {}},
            "WorkingDir": DATA,
            "Env": ["PATH=/usr/bin"],
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "ottla",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    }))
}

fn manifest(config: &[u8], layer: &[u8]) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(config),
            "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": digest(layer),
            "size": layer.len(),
        }],
    })
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hexadecimal(&Sha256::digest(bytes)))
}

/// The path of a blob, whose name is its digest.
fn blob(bytes: &[u8]) -> String {
    format!("blobs/{}", digest(bytes).replace(':', "/"))
}
