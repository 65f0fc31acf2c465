//! The secret from which decoys are made, in a file beside the metadata log: after a restart
//! unknown users must have the same salts as before, like known ones.

use std::path::Path;

use ottla_log::checkpoint::{read_file, write_file};
use ottla_log::disk::Disk;
use tracing::warn;

use super::nonce::Nonces;

const FILE: &str = "ottla.decoys";
const SECRET_BYTES: usize = 32;

/// Reads the secret, or creates one. Without a file the broker goes on with a secret that ends with
/// the process.
pub fn read_or_create(disk: &dyn Disk, directory: &Path, nonces: &Nonces) -> Vec<u8> {
    let path = directory.join(FILE);
    let kept = read_file(disk, &path).and_then(|found| match found {
        Some(secret) if secret.len() == SECRET_BYTES => Ok(secret),
        _ => {
            let secret = nonces.bytes().to_vec();
            write_file(disk, &path, &secret).map(|()| secret)
        }
    });
    kept.unwrap_or_else(|error| {
        warn!(%error, "cannot keep the secret of SCRAM's decoys: unknown users get other salts after a restart");
        nonces.bytes().to_vec()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SecretSeed;
    use ottla_log::disk::memory::MemoryDisk;

    #[test]
    fn the_secret_is_created_once_and_a_broken_one_is_replaced() {
        let disk = MemoryDisk::new(1);
        let directory = Path::new("/data");
        disk.create_directories(directory).unwrap();
        let read = |seed| read_or_create(&disk, directory, &Nonces::new(SecretSeed([seed; 4]), "test"));
        let first = read(1);
        assert_eq!((first.len(), &read(2)), (SECRET_BYTES, &first));
        write_file(&disk, &directory.join(FILE), b"short").unwrap();
        let other = read(3);
        assert!(other.len() == SECRET_BYTES && other != first && other == read(4));
    }

    #[test]
    fn without_a_directory_there_is_a_secret_for_this_process() {
        let disk = MemoryDisk::new(1);
        let nonces = Nonces::new(SecretSeed([1; 4]), "test");
        let read = || read_or_create(&disk, Path::new("/missing"), &nonces);
        assert_ne!(read(), read());
    }
}
