//! The Debian package: the binary, its systemd unit, its configuration and its user.
//!
//! A `.deb` is an `ar` archive of a version, a tar of control files and a tar of the files.

use super::archive::{self, Entry, FILE, PROGRAM};
use super::{Release, VERSION};
use anyhow::{Context, Result};
use md5::{Digest, Md5};

pub fn name() -> String {
    format!("ottla_{VERSION}_amd64.deb")
}

pub const UNIT: &str = "usr/lib/systemd/system/ottla.service";
pub const PROPERTIES: &str = "etc/ottla/server.properties";

pub fn build(release: &Release) -> Result<Vec<u8>> {
    let files = files(release)?;
    let control = control(release, &files)?;
    let time = release.commit_time_s;
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        (
            "control.tar.gz",
            archive::gzip(&archive::tar(control, "./", time)?)?,
        ),
        ("data.tar.gz", archive::gzip(&archive::tar(files, "./", time)?)?),
    ];
    Ok(ar(&members, time))
}

/// What is installed, directories included.
fn files(release: &Release) -> Result<Vec<Entry>> {
    let file =
        |path: &str, source: &str| -> Result<Entry> { Ok(Entry::file(path, FILE, read(release, source)?)) };
    let packed =
        |path: &str, bytes: &[u8]| -> Result<Entry> { Ok(Entry::file(path, FILE, archive::gzip(bytes)?)) };
    let mut files = vec![
        Entry::file("usr/bin/ottla", PROGRAM, release.binary.clone()),
        file(UNIT, "systemd/ottla.service")?,
        file("usr/lib/sysusers.d/ottla.conf", "systemd/sysusers.conf")?,
        file(PROPERTIES, "systemd/server.properties")?,
        file("usr/share/doc/ottla/copyright", "debian/copyright")?,
        packed("usr/share/doc/ottla/THIRD-PARTY.txt.gz", &release.notices)?,
        packed("usr/share/doc/ottla/changelog.gz", &changelog(release)?)?,
        packed("usr/share/man/man1/ottla.1.gz", &read(release, "debian/ottla.1")?)?,
        file("usr/share/lintian/overrides/ottla", "debian/lintian-overrides")?,
    ];
    files.extend(directories(&files));
    Ok(files)
}

/// Every directory above the files.
fn directories(files: &[Entry]) -> Vec<Entry> {
    let mut paths: Vec<&str> = files
        .iter()
        .flat_map(|file| file.path.match_indices('/').map(|(at, _)| &file.path[..at]))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
        .into_iter()
        .map(|path| Entry::directory(path, 0o755))
        .collect()
}

fn control(release: &Release, files: &[Entry]) -> Result<Vec<Entry>> {
    let mut sums = String::new();
    let mut bytes_total = 0;
    for file in files {
        if let archive::Content::File(bytes) = &file.content {
            bytes_total += bytes.len();
            // The configuration is the administrator's: dpkg compares it by its own record.
            if file.path != PROPERTIES {
                let sum = super::hexadecimal(&Md5::digest(bytes));
                sums.push_str(&format!("{sum}  {}\n", file.path));
            }
        }
    }
    let text = String::from_utf8(read(release, "debian/control")?)?
        .replace("@VERSION@", VERSION)
        .replace("@KIB@", &bytes_total.div_ceil(1024).to_string());
    let script = |name: &str| -> Result<Entry> {
        Ok(Entry::file(
            name,
            PROGRAM,
            read(release, &format!("debian/{name}"))?,
        ))
    };
    Ok(vec![
        Entry::file("control", FILE, text),
        Entry::file("conffiles", FILE, format!("/{PROPERTIES}\n")),
        Entry::file("md5sums", FILE, sums),
        script("postinst")?,
        script("prerm")?,
        script("postrm")?,
    ])
}

fn read(release: &Release, path: &str) -> Result<Vec<u8>> {
    let path = release.packaging(path);
    std::fs::read(&path).with_context(|| format!("reading {}", path.display()))
}

/// One entry: the project's CHANGELOG has the rest.
fn changelog(release: &Release) -> Result<Vec<u8>> {
    let seconds = i64::try_from(release.commit_time_s)?;
    let time = jiff::Timestamp::from_second(seconds)?;
    let time = time.strftime("%a, %d %b %Y %H:%M:%S +0000");
    let text = format!(
        "ottla ({VERSION}) unstable; urgency=medium\n\n  * Release {VERSION}; CHANGELOG.md of the sources has the changes.\n\n \
         -- The Ottla developers <ottla@users.noreply.github.com>  {time}\n"
    );
    Ok(text.into_bytes())
}

/// The common form of `ar`: 60 bytes of text before each member, members at even positions.
fn ar(members: &[(&str, Vec<u8>)], modified_s: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let header = format!(
            "{name:<16}{modified_s:<12}0     0     100644  {:<10}`\n",
            bytes.len()
        );
        archive.extend(header.as_bytes());
        archive.extend(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::ar;

    #[test]
    fn members_of_an_ar_archive_begin_at_even_positions() {
        let archive = ar(
            &[("odd", b"123".to_vec()), ("even", b"12".to_vec())],
            1_790_000_000,
        );
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 2);
        let first = &archive[8..68];
        assert_eq!(
            first,
            b"odd             1790000000  0     0     100644  3         `\n"
        );
        assert_eq!(&archive[68..72], b"123\n");
        assert!(archive[72..].starts_with(b"even "));
    }
}
