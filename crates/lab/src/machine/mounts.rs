//! Finds the file system of a directory, from `/proc/self/mountinfo`.

use std::path::{Path, PathBuf};

/// Describes it for people: `ext4 on /dev/vda at /, rw,relatime,discard`. Empty if the table has no
/// mount above the directory.
pub(super) fn filesystem_of(directory: &Path, mountinfo: &str) -> String {
    // A directory that does not exist yet will be created on its parent's file system.
    let directory = directory
        .ancestors()
        .find_map(|ancestor| ancestor.canonicalize().ok())
        .or_else(|| std::env::current_dir().ok())
        .unwrap_or_default();
    let mut best: Option<Mount> = None;
    for mount in mountinfo.lines().filter_map(parse) {
        let is_deeper = best
            .as_ref()
            .is_none_or(|best| mount.at.components().count() >= best.at.components().count());
        // Of two mounts at one place the later hides the earlier.
        if directory.starts_with(&mount.at) && is_deeper {
            best = Some(mount);
        }
    }
    best.map_or_else(String::new, |mount| {
        format!(
            "{} on {} at {}, {}",
            mount.kind,
            mount.device,
            mount.at.display(),
            mount.options
        )
    })
}

struct Mount {
    at: PathBuf,
    kind: String,
    device: String,
    options: String,
}

/// proc_pid_mountinfo(5):
/// `ID PARENT MAJOR:MINOR ROOT AT OPTIONS [TAGS...] - KIND DEVICE SUPER_OPTIONS`.
fn parse(line: &str) -> Option<Mount> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(4);
    let mut filesystem = filesystem.split(' ');
    let at = PathBuf::from(unescape(mount.next()?));
    let mut options: Vec<&str> = mount.next()?.split(',').collect();
    let (kind, device) = (unescape(filesystem.next()?), unescape(filesystem.next()?));
    for option in filesystem.next().unwrap_or_default().split(',') {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount {
        at,
        kind,
        device,
        options: options.join(","),
    })
}

/// Blanks and backslashes are written in octal: `\040`.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let code = after
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                out.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,resv_strict
28 27 0:25 / /tmp rw,relatime shared:5 - tmpfs a\\040name ro,size=4k
29 27 0:26 / /tmp ro - xfs /dev/vdb rw
";

    #[test]
    fn the_deepest_and_latest_mount_is_found() {
        assert_eq!(
            filesystem_of(Path::new("/usr"), TABLE),
            "ext4 on /dev/vda at /, rw,relatime,discard,resv_strict"
        );
        assert_eq!(
            filesystem_of(Path::new("/tmp/not-there"), TABLE),
            "xfs on /dev/vdb at /tmp, ro,rw"
        );
    }

    #[test]
    fn damaged_lines_are_skipped() {
        let table = format!("- - -\n1 2 3\n\\\n{TABLE}");
        assert!(filesystem_of(Path::new("/usr"), &table).starts_with("ext4"));
        assert_eq!(filesystem_of(Path::new("/usr"), ""), "");
    }

    #[test]
    fn octal_escapes_become_text() {
        assert_eq!(unescape("a\\040b\\134c"), "a b\\c");
        assert_eq!(unescape("\\04"), "\\04");
        assert_eq!(unescape("\\ö40\\"), "\\ö40\\");
    }
}
