//! JKS stores of any content, for tests.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

fn wide(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

/// Writes JKS stores as the description of the format says, entry by entry.
pub struct JksWriter {
    version: u32,
    count: u32,
    entries: Vec<u8>,
}

impl JksWriter {
    pub fn new(version: u32) -> JksWriter {
        JksWriter {
            version,
            count: 0,
            entries: Vec::new(),
        }
    }

    fn text(&mut self, text: &str) {
        self.entries.extend((text.len() as u16).to_be_bytes());
        self.entries.extend(text.as_bytes());
    }

    fn block(&mut self, bytes: &[u8]) {
        self.entries.extend((bytes.len() as u32).to_be_bytes());
        self.entries.extend(bytes);
    }

    fn begin(&mut self, tag: u32, alias: &str) {
        self.count += 1;
        self.entries.extend(tag.to_be_bytes());
        self.text(alias);
        self.entries.extend(1_700_000_000_000_i64.to_be_bytes());
    }

    fn certificate_only(&mut self, certificate: &[u8]) {
        if self.version == 2 {
            self.text("X.509");
        }
        self.block(certificate);
    }

    pub fn certificate(mut self, alias: &str, certificate: &[u8]) -> JksWriter {
        self.begin(2, alias);
        self.certificate_only(certificate);
        self
    }

    pub fn key(mut self, alias: &str, key: &[u8], password: &str, chain: &[&[u8]]) -> JksWriter {
        self.begin(1, alias);
        self.block(&encrypted(key, password));
        self.entries.extend((chain.len() as u32).to_be_bytes());
        for certificate in chain {
            self.certificate_only(certificate);
        }
        self
    }

    pub fn finish(self, password: &str) -> Vec<u8> {
        let mut store = vec![0xfe, 0xed, 0xfe, 0xed];
        store.extend(self.version.to_be_bytes());
        store.extend(self.count.to_be_bytes());
        store.extend(self.entries);
        let sealed = [&wide(password), &b"Mighty Aphrodite"[..], &store].concat();
        store.extend(sha1(&sealed));
        store
    }
}

fn encrypted(key: &[u8], password: &str) -> Vec<u8> {
    let password = wide(password);
    let salt = [5; 20];
    let (mut stream, mut last): (Vec<u8>, Vec<u8>) = (Vec::new(), salt.to_vec());
    while stream.len() < key.len() {
        last = sha1(&[&password[..], &last].concat());
        stream.extend(&last);
    }
    let cipher: Vec<u8> = key.iter().zip(stream).map(|(byte, mask)| byte ^ mask).collect();
    let check = sha1(&[&password[..], key].concat());
    let protected = element(0x04, &[&salt[..], &cipher, &check].concat());
    let protector = element(0x06, &[0x2b, 6, 1, 4, 1, 0x2a, 2, 0x11, 1, 1]);
    let algorithm = element(0x30, &[protector, vec![5, 0]].concat());
    element(0x30, &[algorithm, protected].concat())
}

/// An element of DER.
pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match content.len() {
        short @ 0..0x80 => bytes.push(short as u8),
        long => {
            let digits = (long as u16).to_be_bytes();
            let shortest = if long > 0xff { &digits[..] } else { &digits[1..] };
            bytes.push(0x80 | shortest.len() as u8);
            bytes.extend(shortest);
        }
    }
    bytes.extend(content);
    bytes
}
