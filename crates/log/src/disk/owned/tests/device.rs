//! A disk below that notes what it is asked for, and insists on what direct writes need.

use std::fmt;
use std::io::IoSliceMut;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::*;
use crate::disk::os::Descriptor;

type Action = Box<dyn FnMut() + Send>;

#[derive(Clone)]
pub(super) struct Device {
    pub disk: MemoryDisk,
    calls: Arc<Mutex<Vec<String>>>,
    /// What others do while a write is under way.
    meanwhile: Arc<Mutex<Option<Action>>>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device")
    }
}

impl Device {
    pub fn new() -> Device {
        Device {
            disk: MemoryDisk::new(1),
            calls: Arc::default(),
            meanwhile: Arc::default(),
        }
    }

    pub fn below(&self, tail_max: u64, loaded_max: u64) -> (OwnedDisk, Arc<LogMemory>) {
        let memory = LogMemory::new(tail_max, loaded_max);
        (
            OwnedDisk::new(Arc::new(self.clone()), Arc::clone(&memory)),
            memory,
        )
    }

    /// What it was asked for since the last call.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn during_writes(&self, action: Option<Action>) {
        *self.meanwhile.lock().unwrap_or_else(PoisonError::into_inner) = action;
    }

    pub fn contents(&self, name: &str) -> Vec<u8> {
        self.disk.read_file(Path::new(name)).expect("it is there")
    }

    fn note(&self, call: String) {
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(call);
    }

    fn wrap(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(DeviceFile {
            path: path.to_owned(),
            file: self.disk.open(path, mode)?,
            device: self.clone(),
        }))
    }
}

impl Disk for Device {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.wrap(path, mode)
    }

    fn open_log(&self, _path: &Path, _mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        panic!("log files are those of the disk above")
    }

    fn is_direct(&self, file: &Path) -> bool {
        file == Path::new("direct")
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.disk.list(directory)
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        self.disk.create_directories(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        self.disk.remove_directory(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.disk.sync_directory(directory)
    }

    fn sync_all(&self, files: &[Arc<dyn DiskFile>], directories: &[&Path]) -> io::Result<()> {
        let names = files.iter().map(|file| {
            let file: &dyn Any = &**file;
            let file: &DeviceFile = file.downcast_ref().expect("a file of this disk");
            file.path.display().to_string()
        });
        let names: Vec<String> = names
            .chain(directories.iter().map(|path| format!("{}/", path.display())))
            .collect();
        self.note(format!("sync together {}", names.join(", ")));
        Ok(())
    }

    fn settle(&self, directory: &Path) {
        self.note(format!("settle {}/", directory.display()));
    }

    fn pause(&self) {
        self.note("pause".to_owned());
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.disk.lock(path)
    }
}

#[derive(Debug)]
struct DeviceFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    device: Device,
}

impl DiskFile for DeviceFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let end = position + buffer.len() as u64;
        self.device.note(format!("read {position}..{end}"));
        self.file.read_at(buffer, position)
    }

    fn read_parts_at(&self, parts: &mut [IoSliceMut<'_>], position: u64) -> io::Result<usize> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let end = position + bytes as u64;
        self.device
            .note(format!("read {position}..{end} into {}", parts.len()));
        self.file.read_parts_at(parts, position)
    }

    fn read_at_resident(&self, _buffer: &mut [u8], _position: u64) -> io::Result<usize> {
        panic!("nothing of a log file is in the page cache")
    }

    fn write_at(&self, _parts: &[IoSlice<'_>], _position: u64) -> io::Result<()> {
        panic!("a log file is written past the page cache")
    }

    fn write_durably(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        for part in parts {
            assert!(!part.is_empty() && part.len().is_multiple_of(4_096));
            assert!(part.as_ptr().addr().is_multiple_of(4_096));
        }
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.device
            .note(format!("write {position}..{}", position + bytes as u64));
        let mut meanwhile = self
            .device
            .meanwhile
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        meanwhile.iter_mut().for_each(|action| action());
        self.file.write_durably(parts, position)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.device.note("length".to_owned());
        self.file.bytes()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.device.note(format!("set length {bytes}"));
        self.file.set_bytes(bytes)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.device.note(format!("reserve {bytes}"));
        self.file.reserve(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.note("sync".to_owned());
        self.file.sync()
    }

    fn start_writeback(&self, _position: u64, _bytes: u64) -> io::Result<()> {
        panic!("a log file has nothing to write back")
    }

    fn is_resident(&self, _position: u64, _bytes: u64) -> bool {
        panic!("nothing of a log file is in the page cache")
    }

    fn forget(&self, _position: u64, _bytes: u64) {
        panic!("nothing of a log file is in the page cache")
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        panic!("a log file is not sent from the page cache")
    }
}
