//! Certificates and key stores of any content, and mapping rules of any text: an error or a value,
//! never a panic, and no memory beyond what the bytes justify.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_broker::tls::certificate::Certificate;
use ottla_broker::tls::principal_rules::PrincipalRules;
use ottla_keystore::jks;

fuzz_target!(|bytes: &[u8]| {
    let _ = Certificate::read(bytes);
    if let Ok(entries) = jks::read(bytes, None) {
        for entry in entries {
            if let jks::Content::Key { encrypted, .. } = entry.content {
                let _ = jks::decrypt(&encrypted, "changeit");
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some((rules, subject)) = text.split_once('\0')
        && let Ok(rules) = PrincipalRules::parse(rules)
    {
        let _ = rules.name(subject);
    }
});
