//! A disk in memory that can lose, tear and reorder what was not synced. All choices come from a
//! seed.
//!
//! Where the model differs from today's file systems it is harsher:
//! - Writes go to a page cache. A power cut keeps any subset of the sectors written since the
//!   file's last sync, and any length between the old and the new one.
//! - Direct writes need no model of their own. A block of 4 KiB is torn at its sectors, the blocks
//!   of one group arrive in any order, and a tail block that is written again keeps its older bytes
//!   wherever the newer ones did not arrive.
//! - Names change in the cache too. A power cut keeps any prefix of a directory's changes since its
//!   last sync; syncing a file does not keep its name.
//! - A failed sync leaves its pages marked clean but not written, as Linux does: a second sync
//!   succeeds and lies.
//! - In a shortage of descriptors every open file counts as closed, so that whatever is done with
//!   it must open it again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::os::Descriptor;
use super::{DirectoryEntry, DirectoryLock, Disk, DiskFile, EntryKind, OpenMode, Space, shortage};

const SECTOR_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 4096;

/// A handle; clones share the disk.
#[derive(Clone)]
pub struct MemoryDisk {
    state: Arc<Mutex<MemoryState>>,
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDisk")
    }
}

#[derive(Clone)]
struct MemoryState {
    random: Random,
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
    /// Incremented at every restart; handles from before are dead.
    boot: u64,
    /// Modifying operations since the beginning.
    operations: u64,
    power_off_at: Option<u64>,
    powered: bool,
    capacity_bytes: Option<u64>,
    fail_next_write: bool,
    fail_next_sync: bool,
    short_reads: bool,
    ignores_reservations: bool,
    /// This many operations still find a descriptor, then this many (`refusals`) find none.
    grants: u64,
    refusals: u64,
    locked: BTreeSet<u64>,
}

#[derive(Clone)]
enum Node {
    File(File),
    Directory(Directory),
}

#[derive(Clone, Default)]
struct File {
    cached: Vec<u8>,
    medium: Vec<u8>,
    /// Sectors whose cached contents may differ from the medium.
    dirty: BTreeSet<u64>,
    reserved: u64,
    /// Pages that must be read from the device.
    cold: BTreeSet<u64>,
}

#[derive(Clone, Default)]
struct Directory {
    cached: BTreeMap<String, u64>,
    medium: BTreeMap<String, u64>,
    pending: Vec<NameChange>,
}

#[derive(Clone)]
enum NameChange {
    Insert(String, u64),
    Remove(String),
    Rename(String, String, u64),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Insert(name, node) => {
                names.insert(name.clone(), *node);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl Directory {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.cached);
        self.pending.push(change);
    }
}

/// What a seed decides. The rests of divisions, unlike `below` of the generator: the seeds of crash
/// tests have a story.
#[derive(Clone, Debug)]
pub struct Random(ottla_wire::random::Random);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(ottla_wire::random::Random::new(seed))
    }

    #[expect(
        clippy::should_implement_trait,
        reason = "a generator has no end, so it is no iterator"
    )]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniformly from `0..limit`; 0 for an empty range.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    /// True with probability 1 in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

const ROOT: u64 = 0;

impl MemoryDisk {
    pub fn new(seed: u64) -> MemoryDisk {
        let state = MemoryState {
            random: Random::new(seed),
            nodes: BTreeMap::from([(ROOT, Node::Directory(Directory::default()))]),
            next_node: ROOT + 1,
            boot: 0,
            operations: 0,
            power_off_at: None,
            powered: true,
            capacity_bytes: None,
            fail_next_write: false,
            fail_next_sync: false,
            short_reads: false,
            ignores_reservations: false,
            grants: 0,
            refusals: 0,
            locked: BTreeSet::new(),
        };
        MemoryDisk {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns an independent disk with the same contents. Open files stay with the first.
    pub fn fork(&self, seed: u64) -> MemoryDisk {
        let mut state = self.state().clone();
        state.random = Random::new(seed);
        state.locked.clear();
        MemoryDisk {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        // A test that panicked while holding the lock has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Modifying operations so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Cuts the power in the middle of operation number `operation` (see `operations`); everything
    /// after it fails.
    pub fn cut_power_at(&self, operation: u64) {
        self.state().power_off_at = Some(operation);
    }

    pub fn has_power(&self) -> bool {
        self.state().powered
    }

    /// Cuts the power (unless it is off already) and restores it: of what was not synced, a part
    /// chosen by the seed survives. Open files are dead.
    pub fn power_cut(&self) {
        let mut state = self.state();
        state.lose_unsynced();
        state.boot();
    }

    /// Kills the process and restarts it: nothing written is lost. Open files are dead.
    pub fn kill(&self) {
        self.state().boot();
    }

    /// Limits the disk to this many bytes; existing contents stay.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity_bytes = bytes;
    }

    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// Makes the next write fail with an I/O error after a part of it was written.
    pub fn fail_next_write(&self) {
        self.state().fail_next_write = true;
    }

    /// Makes the next sync of a file fail with an I/O error; what it should have written is lost to
    /// later syncs.
    pub fn fail_next_sync(&self) {
        self.state().fail_next_sync = true;
    }

    /// Makes reads return a random part of what was requested.
    pub fn set_short_reads(&self, short: bool) {
        self.state().short_reads = short;
    }

    /// Emulates a file system without `fallocate`: a lack of space shows only in the middle of a
    /// write.
    pub fn set_ignores_reservations(&self, ignores: bool) {
        self.state().ignores_reservations = ignores;
    }

    /// After `grants` more operations that need a descriptor there are none: the next `refusals`
    /// operations fail, including those on open files, which count as closed.
    pub fn begin_shortage(&self, grants: u64, refusals: u64) {
        let mut state = self.state();
        (state.grants, state.refusals) = (grants, refusals);
    }

    /// Returns how many operations were still to be refused.
    pub fn end_shortage(&self) -> u64 {
        std::mem::take(&mut self.state().refusals)
    }

    /// Removes all clean pages from the page cache: reading them must wait for the device.
    pub fn evict(&self) {
        for node in self.state().nodes.values_mut() {
            if let Node::File(file) = node {
                let pages = (file.cached.len() as u64).div_ceil(PAGE_BYTES);
                file.cold = (0..pages).collect();
                for sector in &file.dirty {
                    file.cold.remove(&(sector * SECTOR_BYTES / PAGE_BYTES));
                }
            }
        }
    }

    /// Flips bits of one byte, on the medium and in the cache.
    pub fn corrupt(&self, path: &Path, position: u64, flip: u8) {
        let mut state = self.state();
        let node = state.find(path).expect("the file exists");
        let Some(Node::File(file)) = state.nodes.get_mut(&node) else {
            panic!("not a file")
        };
        for bytes in [&mut file.cached, &mut file.medium] {
            if let Some(byte) = bytes.get_mut(position as usize) {
                *byte ^= flip;
            }
        }
    }

    /// Returns the whole file as in the page cache.
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        match state.nodes.get(&state.find(path).ok()?) {
            Some(Node::File(file)) => Some(file.cached.clone()),
            _ => None,
        }
    }

    /// Replaces the whole file, durably; for tests that damage one.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        let node = match state.find(path) {
            Ok(node) => node,
            Err(_) => {
                let (parent, name) = state.find_parent(path).expect("the directory exists");
                let node = state.add(Node::File(File::default()));
                let directory = state.directory(parent).expect("a parent is a directory");
                directory.cached.insert(name.clone(), node);
                directory.medium.insert(name, node);
                node
            }
        };
        let file = File {
            cached: bytes.to_vec(),
            medium: bytes.to_vec(),
            ..File::default()
        };
        state.nodes.insert(node, Node::File(file));
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

impl MemoryState {
    fn boot(&mut self) {
        self.powered = true;
        self.power_off_at = None;
        self.boot += 1;
        let recoverable = self.recoverable();
        self.nodes.retain(|node, _| recoverable.contains(node));
        self.fail_next_write = false;
        self.fail_next_sync = false;
        self.refusals = 0;
        self.locked.clear();
    }

    fn take_descriptor(&mut self) -> io::Result<()> {
        if !self.powered || self.refusals == 0 {
            return Ok(());
        }
        if self.grants > 0 {
            self.grants -= 1;
            return Ok(());
        }
        self.refusals -= 1;
        Err(shortage("all descriptors are in use".to_owned()))
    }

    fn is_short(&self) -> bool {
        self.grants == 0 && self.refusals > 0
    }

    /// Counts an operation; `Ok(true)` if the power is cut during it.
    fn begin(&mut self) -> io::Result<bool> {
        if !self.powered {
            return Err(power_is_off());
        }
        self.operations += 1;
        if self.power_off_at.is_some_and(|at| self.operations >= at) {
            self.powered = false;
            return Ok(true);
        }
        Ok(false)
    }

    /// Counts an operation that is atomic when the power is cut during it.
    fn begin_atomic(&mut self) -> io::Result<()> {
        if self.begin()? {
            Err(power_is_off())
        } else {
            Ok(())
        }
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        let mut node = ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            let Some(Node::Directory(directory)) = self.nodes.get(&node) else {
                return Err(not_found());
            };
            let name = name.to_str().ok_or_else(not_found)?;
            node = *directory.cached.get(name).ok_or_else(not_found)?;
        }
        Ok(node)
    }

    fn find_parent(&self, path: &Path) -> io::Result<(u64, String)> {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(not_found)?
            .to_string();
        Ok((self.find(path.parent().ok_or_else(not_found)?)?, name))
    }

    fn directory(&mut self, node: u64) -> io::Result<&mut Directory> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(not_found()),
        }
    }

    /// As POSIX: a rename replaces a file by a file, and an empty directory by a directory.
    fn check_replaceable(&self, node: u64, to: &Path) -> io::Result<()> {
        let Ok(replaced) = self.find(to) else {
            return Ok(());
        };
        let is_directory = matches!(self.nodes.get(&node), Some(Node::Directory(_)));
        match self.nodes.get(&replaced) {
            _ if node == replaced => Ok(()),
            Some(Node::Directory(_)) if !is_directory => Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::Directory(replaced)) if !replaced.cached.is_empty() => {
                Err(io::ErrorKind::DirectoryNotEmpty.into())
            }
            Some(Node::File(_)) if is_directory => Err(io::ErrorKind::NotADirectory.into()),
            _ => Ok(()),
        }
    }

    fn add(&mut self, node: Node) -> u64 {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    /// Files without a name no longer take space, although an open handle can still read them.
    fn used_bytes(&self) -> u64 {
        self.named()
            .iter()
            .map(|node| match self.nodes.get(node) {
                Some(Node::File(file)) => allocated(file),
                _ => 0,
            })
            .sum()
    }

    fn free_bytes(&self) -> u64 {
        self.capacity_bytes
            .map_or(1 << 50, |capacity| capacity.saturating_sub(self.used_bytes()))
    }

    /// The length that `file` can reach before the disk is full.
    fn limit(&self, node: u64) -> u64 {
        let free = self.free_bytes() / PAGE_BYTES * PAGE_BYTES;
        match self.nodes.get(&node) {
            Some(Node::File(file)) => allocated(file).saturating_add(free),
            _ => 0,
        }
    }

    fn lose_unsynced(&mut self) {
        let MemoryState { random, nodes, .. } = self;
        for node in nodes.values_mut() {
            match node {
                Node::File(file) => lose_sectors(file, random),
                Node::Directory(directory) => {
                    let kept = random.below(directory.pending.len() as u64 + 1) as usize;
                    directory.pending[..kept]
                        .iter()
                        .for_each(|change| change.apply(&mut directory.medium));
                    directory.pending.clear();
                    directory.cached = directory.medium.clone();
                }
            }
        }
    }

    /// Nodes that have a name now.
    fn named(&self) -> BTreeSet<u64> {
        self.reachable(|directory| directory.cached.values().copied().collect())
    }

    /// Nodes that have a name now or may have one again after a power cut.
    fn recoverable(&self) -> BTreeSet<u64> {
        self.reachable(|directory| {
            let pending = directory.pending.iter().filter_map(|change| match change {
                NameChange::Insert(_, node) | NameChange::Rename(_, _, node) => Some(*node),
                NameChange::Remove(_) => None,
            });
            directory
                .cached
                .values()
                .chain(directory.medium.values())
                .copied()
                .chain(pending)
                .collect()
        })
    }

    fn reachable(&self, children: impl Fn(&Directory) -> Vec<u64>) -> BTreeSet<u64> {
        let mut reachable = BTreeSet::from([ROOT]);
        let mut unseen = vec![ROOT];
        while let Some(node) = unseen.pop() {
            if let Some(Node::Directory(directory)) = self.nodes.get(&node) {
                unseen.extend(
                    children(directory)
                        .into_iter()
                        .filter(|child| reachable.insert(*child)),
                );
            }
        }
        reachable
    }
}

fn allocated(file: &File) -> u64 {
    (file.cached.len() as u64).max(file.reserved).div_ceil(PAGE_BYTES) * PAGE_BYTES
}

fn lose_sectors(file: &mut File, random: &mut Random) {
    let (old, new) = (file.medium.len() as u64, file.cached.len() as u64);
    let length = match random.below(4) {
        0 => old,
        1 => old.min(new) + random.below(old.abs_diff(new) + 1),
        _ => new,
    };
    // Some cuts lose everything, some nothing, some a suffix, some a random subset.
    let style = random.below(5);
    let dirty_count = file.dirty.len() as u64;
    let prefix = random.below(dirty_count + 1);
    let mut survivor = vec![0; length as usize];
    let copied = survivor.len().min(file.medium.len());
    survivor[..copied].copy_from_slice(&file.medium[..copied]);
    for (index, sector) in file.dirty.iter().enumerate() {
        let kept = match style {
            0 => false,
            1 => true,
            2 => (index as u64) < prefix,
            _ => random.one_in(2),
        };
        let start = (sector * SECTOR_BYTES) as usize;
        let end = (start + SECTOR_BYTES as usize)
            .min(survivor.len())
            .min(file.cached.len());
        if kept && start < end {
            survivor[start..end].copy_from_slice(&file.cached[start..end]);
        }
    }
    file.medium = survivor.clone();
    file.cached = survivor;
    file.dirty.clear();
    file.reserved = 0;
    file.cold.clear();
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        if !state.powered {
            return Err(power_is_off());
        }
        state.take_descriptor()?;
        let node = match state.find(path) {
            Ok(node) => node,
            Err(_) if mode == OpenMode::Create => {
                let (parent, name) = state.find_parent(path)?;
                state.begin_atomic()?;
                if state.free_bytes() < PAGE_BYTES {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let node = state.add(Node::File(File::default()));
                state.directory(parent)?.change(NameChange::Insert(name, node));
                node
            }
            Err(error) => return Err(error),
        };
        if !matches!(state.nodes.get(&node), Some(Node::File(_))) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Arc::new(MemoryFile {
            disk: self.clone(),
            node,
            boot: state.boot,
        }))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut state = self.state();
        if !state.powered {
            return Err(power_is_off());
        }
        state.take_descriptor()?;
        let node = state.find(directory)?;
        let names: Vec<(String, u64)> = state
            .directory(node)?
            .cached
            .iter()
            .map(|(name, node)| (name.clone(), *node))
            .collect();
        let entry = |(name, node): (String, u64)| DirectoryEntry {
            path: directory.join(name),
            kind: match state.nodes.get(&node) {
                Some(Node::Directory(_)) => EntryKind::Directory,
                _ => EntryKind::File,
            },
            bytes: match state.nodes.get(&node) {
                Some(Node::File(file)) => file.cached.len() as u64,
                _ => 0,
            },
        };
        Ok(names.into_iter().map(entry).collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.state().find(path).is_ok()
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        let mut node = ROOT;
        for component in directory.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            let name = name.to_str().ok_or_else(not_found)?.to_string();
            node = match state.directory(node)?.cached.get(&name) {
                Some(child) => *child,
                None => {
                    state.begin_atomic()?;
                    let child = state.add(Node::Directory(Directory::default()));
                    state.directory(node)?.change(NameChange::Insert(name, child));
                    child
                }
            };
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.take_descriptor()?;
        let node = state.find(from)?;
        let (from_parent, from_name) = state.find_parent(from)?;
        let (to_parent, to_name) = state.find_parent(to)?;
        if from_parent != to_parent {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        state.check_replaceable(node, to)?;
        state.begin_atomic()?;
        state
            .directory(from_parent)?
            .change(NameChange::Rename(from_name, to_name, node));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.take_descriptor()?;
        let (parent, name) = state.find_parent(path)?;
        state.find(path)?;
        state.begin_atomic()?;
        state.directory(parent)?.change(NameChange::Remove(name));
        Ok(())
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        let node = state.find(directory)?;
        if !state.directory(node)?.cached.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (parent, name) = state.find_parent(directory)?;
        state.begin_atomic()?;
        state.directory(parent)?.change(NameChange::Remove(name));
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.take_descriptor()?;
        let node = state.find(directory)?;
        state.begin_atomic()?;
        let directory = state.directory(node)?;
        directory.medium = directory.cached.clone();
        directory.pending.clear();
        Ok(())
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let state = self.state();
        let free_bytes = state.free_bytes();
        Ok(Space {
            total_bytes: state.capacity_bytes.unwrap_or(free_bytes),
            free_bytes,
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.open(path, OpenMode::Create)?;
        let mut state = self.state();
        let node = state.find(path)?;
        if !state.locked.insert(node) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        Ok(Box::new(MemoryLock {
            disk: self.clone(),
            node,
            boot: state.boot,
        }))
    }
}

#[derive(Debug)]
struct MemoryLock {
    disk: MemoryDisk,
    node: u64,
    boot: u64,
}

impl DirectoryLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.boot == self.boot {
            state.locked.remove(&self.node);
        }
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    node: u64,
    boot: u64,
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({})", self.node)
    }
}

impl MemoryFile {
    /// Returns the disk's state if this handle may still be used and there is a descriptor for it.
    fn in_use(&self) -> io::Result<MutexGuard<'_, MemoryState>> {
        let mut state = self.state()?;
        state.take_descriptor()?;
        Ok(state)
    }

    /// Returns the disk's state if this handle may still be used.
    fn state(&self) -> io::Result<MutexGuard<'_, MemoryState>> {
        let state = self.disk.state();
        if state.boot != self.boot {
            return Err(io::Error::other("the file was opened before the last restart"));
        }
        if !state.powered {
            return Err(power_is_off());
        }
        Ok(state)
    }
}

fn file(state: &mut MemoryState, node: u64) -> io::Result<&mut File> {
    match state.nodes.get_mut(&node) {
        Some(Node::File(file)) => Ok(file),
        _ => Err(not_found()),
    }
}

/// Changes the cache and marks the sectors dirty; the caller may have truncated `bytes`.
fn put(file: &mut File, position: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = position + bytes.len() as u64;
    let old_end = file.cached.len() as u64;
    if end > old_end {
        file.cached.resize(end as usize, 0);
    }
    file.cached[position as usize..end as usize].copy_from_slice(bytes);
    let first = position.min(old_end) / SECTOR_BYTES;
    file.dirty.extend(first..end.div_ceil(SECTOR_BYTES));
    for page in position / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
        file.cold.remove(&page);
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.in_use()?;
        let short = state.short_reads && buffer.len() > 1;
        let wanted = if short {
            1 + state.random.below(buffer.len() as u64) as usize
        } else {
            buffer.len()
        };
        let file = file(&mut state, self.node)?;
        let bytes = file.cached.get(position as usize..).unwrap_or_default();
        let read = wanted.min(bytes.len());
        buffer[..read].copy_from_slice(&bytes[..read]);
        for page in position / PAGE_BYTES..(position + read as u64).div_ceil(PAGE_BYTES) {
            file.cold.remove(&page);
        }
        Ok(read)
    }

    fn read_at_resident(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut resident = buffer.len() as u64;
        {
            let mut state = self.state()?;
            if state.is_short() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let file = file(&mut state, self.node)?;
            let end = (position + resident).min(file.cached.len() as u64);
            let first_cold = file
                .cold
                .range(position / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
                .next();
            if let Some(page) = first_cold {
                resident = (page * PAGE_BYTES).saturating_sub(position);
                if resident == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
        }
        self.read_at(&mut buffer[..resident as usize], position)
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut state = self.in_use()?;
        let power_fails = state.begin()?;
        let io_fails = std::mem::take(&mut state.fail_next_write);
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let room = state
            .limit(self.node)
            .saturating_sub(position)
            .min(bytes.len() as u64);
        let written = if power_fails || io_fails {
            state.random.below(room + 1)
        } else {
            room
        };
        put(file(&mut state, self.node)?, position, &bytes[..written as usize]);
        if power_fails {
            Err(power_is_off())
        } else if io_fails {
            Err(io::Error::other("injected write error"))
        } else if (written as usize) < bytes.len() {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        let mut state = self.in_use()?;
        Ok(file(&mut state, self.node)?.cached.len() as u64)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.in_use()?;
        state.begin_atomic()?;
        if bytes > state.limit(self.node) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = file(&mut state, self.node)?;
        let old = file.cached.len() as u64;
        file.cached.resize(bytes as usize, 0);
        file.dirty
            .extend(old.min(bytes) / SECTOR_BYTES..old.max(bytes).div_ceil(SECTOR_BYTES));
        file.reserved = 0;
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.in_use()?;
        state.begin_atomic()?;
        if state.ignores_reservations {
            return Ok(());
        }
        if bytes > state.limit(self.node) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = file(&mut state, self.node)?;
        file.reserved = file.reserved.max(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.in_use()?;
        let power_fails = state.begin()?;
        let io_fails = std::mem::take(&mut state.fail_next_sync);
        let file = file(&mut state, self.node)?;
        if power_fails {
            // Sectors being written stay dirty: the power cut decides about each.
            return Err(power_is_off());
        }
        if io_fails {
            file.dirty.clear();
            return Err(io::Error::other("injected sync error"));
        }
        let length = file.cached.len();
        file.medium.resize(length, 0);
        for sector in std::mem::take(&mut file.dirty) {
            let start = ((sector * SECTOR_BYTES) as usize).min(length);
            let end = (start + SECTOR_BYTES as usize).min(length);
            file.medium[start..end].copy_from_slice(&file.cached[start..end]);
        }
        Ok(())
    }

    fn start_writeback(&self, _position: u64, _bytes: u64) -> io::Result<()> {
        self.in_use().map(|_| ())
    }

    fn is_resident(&self, position: u64, bytes: u64) -> bool {
        let Ok(mut state) = self.state() else { return false };
        let pages = position / PAGE_BYTES..(position + bytes).div_ceil(PAGE_BYTES);
        !state.is_short()
            && file(&mut state, self.node).is_ok_and(|file| file.cold.range(pages).next().is_none())
    }

    fn forget(&self, position: u64, bytes: u64) {
        let Ok(mut state) = self.state() else { return };
        let Ok(file) = file(&mut state, self.node) else {
            return;
        };
        let end = (position + bytes).min(file.cached.len() as u64);
        for page in position.div_ceil(PAGE_BYTES)..end / PAGE_BYTES {
            let sectors = page * PAGE_BYTES / SECTOR_BYTES..(page + 1) * PAGE_BYTES / SECTOR_BYTES;
            if file.dirty.range(sectors).next().is_none() {
                file.cold.insert(page);
            }
        }
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Arc<dyn DiskFile>, position: u64, bytes: &[u8]) {
        file.write_at(&[io::IoSlice::new(bytes)], position)
            .expect("written");
    }

    fn open(disk: &MemoryDisk, path: &str) -> Arc<dyn DiskFile> {
        disk.open(Path::new(path), OpenMode::Create).expect("opened")
    }

    #[test]
    fn synced_data_survives_and_the_rest_may_not() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let disk = MemoryDisk::new(seed);
            let file = open(&disk, "a");
            write(&file, 0, &[1; 600]);
            file.sync().expect("synced");
            disk.sync_directory(Path::new("")).expect("synced");
            write(&file, 512, &[2; 1_000]);
            disk.power_cut();
            assert!(file.sync().is_err(), "the old handle is dead");
            let bytes = disk.read_file(Path::new("a")).expect("its name was synced");
            assert_eq!(bytes[..512], [1; 512]);
            outcomes.insert((bytes.len() > 600, bytes[512], bytes.last().copied()));
        }
        assert!(outcomes.len() >= 4, "{outcomes:?}");
    }

    #[test]
    fn a_name_may_be_lost_until_its_directory_is_synced() {
        let survivors = (0..100).filter(|seed| {
            let disk = MemoryDisk::new(*seed);
            let file = open(&disk, "a");
            write(&file, 0, b"x");
            file.sync().expect("synced");
            disk.power_cut();
            disk.exists(Path::new("a"))
        });
        let count = survivors.count();
        assert!((20..80).contains(&count), "{count}");
    }

    #[test]
    fn a_rename_does_not_replace_a_directory_that_holds_something() {
        let disk = MemoryDisk::new(1);
        for directory in ["full", "empty", "other"] {
            disk.create_directories(Path::new(directory)).expect("created");
        }
        open(&disk, "full/a");
        open(&disk, "file");
        let rename = |from: &str, to: &str| disk.rename(Path::new(from), Path::new(to));
        let refused = |from, to| rename(from, to).expect_err("refused").kind();
        assert_eq!(refused("other", "full"), io::ErrorKind::DirectoryNotEmpty);
        assert_eq!(refused("other", "file"), io::ErrorKind::NotADirectory);
        assert_eq!(refused("file", "other"), io::ErrorKind::IsADirectory);
        rename("full", "empty").expect("an empty one is replaced");
        assert!(disk.exists(Path::new("empty/a")));
    }

    #[test]
    fn a_failed_sync_is_followed_by_one_that_lies() {
        let disk = MemoryDisk::new(1);
        let file = open(&disk, "a");
        disk.sync_directory(Path::new("")).expect("synced");
        write(&file, 0, b"x");
        disk.fail_next_sync();
        assert!(file.sync().is_err());
        file.sync().expect("lies");
        disk.power_cut();
        assert_ne!(disk.read_file(Path::new("a")).expect("named"), b"x");
    }

    #[test]
    fn a_full_disk_writes_a_part_and_reports_it() {
        let disk = MemoryDisk::new(1);
        let file = open(&disk, "a");
        disk.set_capacity(Some(8192));
        let error = file
            .write_at(&[io::IoSlice::new(&[1; 10_000])], 0)
            .expect_err("too much");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.bytes().expect("there"), 8192);
        file.set_bytes(0).expect("smaller");
        file.reserve(8192).expect("fits");
        assert!(file.reserve(8193).is_err());
    }

    #[test]
    fn evicted_pages_would_block_until_they_are_read() {
        let disk = MemoryDisk::new(1);
        let file = open(&disk, "a");
        write(&file, 0, &[7; 10_000]);
        file.sync().expect("synced");
        disk.evict();
        let mut buffer = [0; 100];
        let error = file.read_at_resident(&mut buffer, 5_000).expect_err("cold");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        file.read_at(&mut buffer, 5_000).expect("waits");
        assert_eq!(file.read_at_resident(&mut buffer, 5_000).expect("warm"), 100);
        assert!(!file.is_resident(0, 10_000) && file.is_resident(4_096, 4_096));
    }
}
