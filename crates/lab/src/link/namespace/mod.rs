//! Real packets over an emulated distance: a network namespace behind a pair of TUN devices, whose
//! packets this process carries.
//!
//! Here the kernel's own TCP waits for acknowledgements, so that `send.buffer.bytes`, window growth
//! and Nagle behave as they do between data centres; the relay only imitates them. It requires root
//! (CAP_NET_ADMIN and CAP_SYS_ADMIN), `ip` and /dev/net/tun. The kernel's `netem` would do the same
//! where it exists; `tbf` alone adds no delay.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::Setter;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::carrier::Carrier;
use super::relay::check;
use crate::scenario::model::LinkSpec;

const TUN_DEVICE: &str = "/dev/net/tun";

/// Where `ip netns` keeps its namespaces.
const NAMESPACES: &str = "/run/netns";

/// Which parts of a namespace work on this machine; each either works or gives the reason why not.
#[derive(Clone, Debug)]
pub struct NamespaceSupport {
    /// Namespace and TUN devices: everything that [`Namespace`] needs.
    pub tun: Result<(), String>,
    pub veth: Result<(), String>,
    pub tbf: Result<(), String>,
    pub netem: Result<(), String>,
}

/// Formats one line.
impl fmt::Display for NamespaceSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("TUN", &self.tun),
            ("veth", &self.veth),
            ("tbf", &self.tbf),
            ("netem", &self.netem),
        ];
        for (index, (name, works)) in parts.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            match works {
                Ok(()) => write!(f, "{separator}{name}: works")?,
                Err(problem) => write!(f, "{separator}{name}: no ({problem})")?,
            }
        }
        Ok(())
    }
}

/// Tries everything once, in a temporary namespace that is removed afterwards.
pub fn probe() -> NamespaceSupport {
    let tun = Namespace::create(&LinkSpec::default())
        .map(drop)
        .map_err(|error| error.to_string());
    let name = unique_name();
    let made = run("ip", &["netns", "add", &name]);
    let inside = |arguments: &[&str]| {
        let all: Vec<&str> = ["netns", "exec", &name]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        made.clone().and_then(|()| run("ip", &all))
    };
    let (one, two) = ("probe0", "probe1");
    let veth = inside(&["ip", "link", "add", one, "type", "veth", "peer", "name", two]);
    let queue = |discipline: &[&str]| {
        let command: Vec<&str> = ["tc", "qdisc", "replace", "dev", one, "root"]
            .iter()
            .chain(discipline)
            .copied()
            .collect();
        veth.clone().and_then(|()| inside(&command))
    };
    let support = NamespaceSupport {
        tun,
        tbf: queue(&["tbf", "rate", "100mbit", "burst", "64kb", "latency", "50ms"]),
        netem: queue(&["netem", "delay", "1ms"]),
        veth: veth.clone(),
    };
    if made.is_ok() {
        // The pair is removed with it.
        let _ = run("ip", &["netns", "del", &name]);
    }
    support
}

/// A network namespace at the other end of a link. Dropping it removes it and its devices; programs
/// in it lose their network.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    near: Ipv4Addr,
    far: Ipv4Addr,
    carrier: Option<Carrier>,
}

impl Namespace {
    /// - Errors: `InvalidInput` for a link that contradicts itself or has a window (the kernel's
    ///   own TCP has one: `send.buffer.bytes`); otherwise a sentence that says what is missing.
    pub fn create(spec: &LinkSpec) -> io::Result<Namespace> {
        let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
        check(spec).map_err(invalid)?;
        if spec.window_bytes > 0 {
            let problem = "link.window_bytes is not supported in a namespace: TCP has its own window there";
            return Err(invalid(problem.into()));
        }
        let name = unique_name();
        let (near_device, far_device) = (format!("{name}a"), format!("{name}b"));
        let near_tun = open_tun(&near_device)?;
        let far_tun = open_tun(&far_device)?;
        must("ip", &["netns", "add", &name])?;
        let (near, far) = addresses();
        // From here on dropping it cleans up.
        let mut namespace = Namespace {
            name,
            near,
            far,
            carrier: None,
        };
        let (near, far) = (near.to_string(), far.to_string());
        must("ip", &["link", "set", &far_device, "netns", &namespace.name])?;
        must("ip", &["addr", "add", &near, "peer", &far, "dev", &near_device])?;
        must("ip", &["link", "set", &near_device, "up"])?;
        let inside = ["-n", &namespace.name];
        let far_address = ["addr", "add", &far, "peer", &near, "dev", &far_device];
        must("ip", &[&inside[..], &far_address].concat())?;
        must("ip", &[&inside[..], &["link", "set", &far_device, "up"]].concat())?;
        must("ip", &[&inside[..], &["link", "set", "lo", "up"]].concat())?;
        namespace.carrier = Some(Carrier::start(near_tun, far_tun, spec)?);
        Ok(namespace)
    }

    /// The address of listeners in the namespace, which a broker in it must advertise.
    pub fn broker_address(&self) -> IpAddr {
        self.far.into()
    }

    /// The address that clients come from.
    pub fn client_address(&self) -> IpAddr {
        self.near.into()
    }

    /// Makes a command that runs in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Calls `work` on a thread inside the namespace. Threads and sockets that it creates stay in
    /// the namespace: a broker that is started this way listens there.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let namespace = File::open(format!("{NAMESPACES}/{}", self.name))?;
        let enter_and_work = || -> io::Result<T> {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        std::thread::scope(|scope| match scope.spawn(enter_and_work).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The devices disappear with their descriptors.
        self.carrier = None;
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

/// Short enough for a device name, 15 bytes, with one more letter.
fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % 100;
    format!("ot{:x}n{number}", std::process::id())
}

/// Two addresses of the block that is reserved for such measurements (RFC 2544), different for each
/// process and call.
fn addresses() -> (Ipv4Addr, Ipv4Addr) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pair = std::process::id()
        .wrapping_mul(67)
        .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))
        % 0x7fff;
    // 198.18.0.0/15 has 2^17 addresses; four for each pair, so that none is a network or broadcast
    // address.
    let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 4 * pair;
    (Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2))
}

fn open_tun(name: &str) -> io::Result<OwnedFd> {
    /// `struct ifreq`: 16 bytes of name, then 24 bytes, the first two of which are the flags.
    #[repr(C)]
    struct InterfaceRequest {
        name: [u8; 16],
        flags: i16,
        padding: [u8; 22],
    }
    const TUNSETIFF: rustix::ioctl::Opcode = 0x4004_54ca;
    const IFF_TUN: i16 = 0x0001;
    const IFF_NO_PI: i16 = 0x1000;

    let describe = |error: rustix::io::Errno| {
        let why = match error {
            rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => "not permitted: needs root".to_owned(),
            other => other.to_string(),
        };
        io::Error::new(
            io::Error::from(error).kind(),
            format!("no TUN device: {TUN_DEVICE}: {why}"),
        )
    };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let tun = rustix::fs::open(TUN_DEVICE, flags, Mode::empty()).map_err(describe)?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TUN | IFF_NO_PI,
        padding: [0; 22],
    };
    assert!(name.len() < request.name.len(), "names are made to fit");
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    #[expect(
        unsafe_code,
        reason = "ioctl: TUNSETIFF reads an ifreq, which InterfaceRequest is laid out as"
    )]
    unsafe { rustix::ioctl::ioctl(&tun, Setter::<TUNSETIFF, InterfaceRequest>::new(request)) }
        .map_err(describe)?;
    Ok(tun)
}

fn must(program: &str, arguments: &[&str]) -> io::Result<()> {
    run(program, arguments).map_err(io::Error::other)
}

/// - Errors: the first line that the program wrote about the failure.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let problem = text.lines().next().unwrap_or("failed without a message").trim();
    Err(format!("{program} {}: {problem}", arguments.join(" ")))
}

#[cfg(test)]
mod tests;
