//! The wheel: the binary as the script `ottla`, and the Python package of `packaging/python`.
//!
//! A wheel is a zip with three files of metadata, so no build backend is needed, whose version and
//! network would have to be right on the machine that builds.

use super::archive::{self, Content, Entry, FILE, PROGRAM};
use super::{Release, VERSION};
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// The binary is static: it needs a kernel and no C library, so glibc's tags and musl's both hold.
/// Installers know one of them, whatever the distribution.
const PLATFORMS: [&str; 3] = [
    "manylinux2014_x86_64",
    "manylinux_2_17_x86_64",
    "musllinux_1_1_x86_64",
];

pub fn name() -> String {
    format!("ottla-{VERSION}-py3-none-{}.whl", PLATFORMS.join("."))
}

pub fn build(release: &Release) -> Result<Vec<u8>> {
    let source = release.packaging("python");
    let metadata = format!("ottla-{VERSION}.dist-info");
    let readme = std::fs::read_to_string(source.join("README.md"))?;
    let mut entries = archive::folder(&source.join("ottla"), "ottla/")?;
    entries.push(Entry::file(
        format!("ottla-{VERSION}.data/scripts/ottla"),
        PROGRAM,
        release.binary.clone(),
    ));
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    let texts = [
        ("METADATA", self::metadata(&readme).into_bytes()),
        ("WHEEL", wheel().into_bytes()),
        ("entry_points.txt", ENTRY_POINTS.into()),
        ("licenses/LICENSE", release.license.clone()),
        ("licenses/THIRD-PARTY.txt", release.notices.clone()),
    ];
    for (file, bytes) in texts {
        entries.push(Entry::file(format!("{metadata}/{file}"), FILE, bytes));
    }
    let record = record(&entries, &metadata);
    entries.push(Entry::file(format!("{metadata}/RECORD"), FILE, record));
    archive::zip(entries)
}

const ENTRY_POINTS: &str = "[pytest11]\nottla = ottla.pytest_plugin\n";

fn metadata(readme: &str) -> String {
    format!(
        "Metadata-Version: 2.4
Name: ottla
Version: {VERSION}
Summary: A Kafka broker for one machine, and for tests: the binary, a context manager, a pytest fixture
License-Expression: Apache-2.0
License-File: LICENSE
License-File: THIRD-PARTY.txt
Keywords: kafka,broker,testing,pytest
Classifier: Framework :: Pytest
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Rust
Classifier: Topic :: Software Development :: Testing
Requires-Python: >=3.10
Description-Content-Type: text/markdown

{readme}"
    )
}

fn wheel() -> String {
    let tags = PLATFORMS.map(|platform| format!("Tag: py3-none-{platform}\n"));
    let tags = tags.concat();
    format!("Wheel-Version: 1.0\nGenerator: ottla\nRoot-Is-Purelib: false\n{tags}")
}

/// The checksums of all entries; RECORD itself has none.
fn record(entries: &[Entry], metadata: &str) -> String {
    let mut lines = String::new();
    for entry in entries {
        if let Content::File(bytes) = &entry.content {
            let sum = URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
            lines.push_str(&format!("{},sha256={sum},{}\n", entry.path, bytes.len()));
        }
    }
    lines + &format!("{metadata}/RECORD,,\n")
}
