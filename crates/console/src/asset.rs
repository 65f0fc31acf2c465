//! Style sheet, script and icon: in the binary, compressed once, under names that change with their
//! bytes, so that browsers may keep them for ever.

use std::io::Write;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;

#[derive(Debug)]
pub struct Asset {
    name: &'static str,
    extension: &'static str,
    pub content_type: &'static str,
    pub bytes: &'static [u8],
    compressed: OnceLock<Vec<u8>>,
}

pub static STYLE: Asset = Asset::new(
    "style",
    "css",
    "text/css; charset=utf-8",
    include_bytes!("assets/style.css"),
);
pub static SCRIPT: Asset = Asset::new(
    "app",
    "js",
    "text/javascript; charset=utf-8",
    include_bytes!("assets/app.js"),
);
pub static ICON: Asset = Asset::new("icon", "svg", "image/svg+xml", include_bytes!("assets/icon.svg"));

impl Asset {
    const fn new(
        name: &'static str,
        extension: &'static str,
        content_type: &'static str,
        bytes: &'static [u8],
    ) -> Asset {
        Asset {
            name,
            extension,
            content_type,
            bytes,
            compressed: OnceLock::new(),
        }
    }

    /// `/assets/style.1f3a....css`
    pub fn path(&self) -> String {
        format!(
            "/assets/{}.{:016x}.{}",
            self.name,
            fnv1a(self.bytes),
            self.extension
        )
    }

    pub fn find(path: &str) -> Option<&'static Asset> {
        [&STYLE, &SCRIPT, &ICON]
            .into_iter()
            .find(|asset| asset.path() == path)
    }

    pub fn gzip(&self) -> &[u8] {
        self.compressed.get_or_init(|| gzip(self.bytes))
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// FNV-1a: names need to differ when bytes do, nothing more.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_and_script_are_small() {
        assert!(STYLE.bytes.len() <= 12 * 1024, "{}", STYLE.bytes.len());
        assert!(SCRIPT.bytes.len() <= 12 * 1024, "{}", SCRIPT.bytes.len());
        assert!(SCRIPT.gzip().len() <= 5 * 1024, "{}", SCRIPT.gzip().len());
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        for asset in [&STYLE, &SCRIPT, &ICON] {
            let text = std::str::from_utf8(asset.bytes)
                .unwrap()
                .replace("http://www.w3.org/2000/svg", "");
            for needle in ["http:", "https:", "@import", "eval(", "innerHTML"] {
                assert!(!text.contains(needle), "{}: {needle}", asset.path());
            }
            assert!(Asset::find(&asset.path()).is_some());
        }
        assert!(Asset::find("/assets/style.0.css").is_none());
    }
}
