//! Random bytes of the kernel.

pub fn fill(bytes: &mut [u8]) {
    // Up to 256 bytes come in one call, which never fails once the kernel has booted.
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel has random bytes");
}
