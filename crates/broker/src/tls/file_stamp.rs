//! What shows that a file has changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `None`: the file is not there.
pub type FileStamp = Option<Stamp>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

#[cfg(test)]
impl Stamp {
    pub fn of_bytes(bytes: u64) -> Stamp {
        Stamp {
            inode: 1,
            bytes,
            modified: (0, 0),
        }
    }
}

pub fn stamp(path: &Path) -> FileStamp {
    let found = std::fs::metadata(path).ok()?;
    Some(Stamp {
        inode: found.ino(),
        bytes: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Files;
    use super::*;

    #[test]
    fn a_file_that_is_replaced_by_one_of_the_same_size_has_another_stamp() {
        let files = Files::new();
        let [old, new] = [("old", "a"), ("new", "b")].map(|(name, content)| files.write(name, content));
        let [old, new] = [Path::new(&old), Path::new(&new)];
        let before = stamp(old);
        assert_eq!(stamp(old), before);
        std::fs::rename(new, old).unwrap();
        assert_ne!(stamp(old), before);
        assert_eq!(stamp(new), None);
    }
}
