//! By which names the doctor may refuse what a remedy changes.

/// What the doctor may call a setting or a key of the load besides its own name.
pub fn aliases(key: &str) -> &'static [&'static str] {
    match key {
        "max.partition.fetch.bytes" | "fetch.max.bytes" => &["fetch sizes"],
        // They end the same wait.
        "fetch.min.bytes" => &["fetch.max.wait.ms", "fetch.wait.max.ms"],
        "fetch.max.wait.ms" => &["fetch.min.bytes"],
        // A cheaper level is a change of compression too.
        "compression.type" => &["compression.zstd.level"],
        "send.buffer.bytes" => &["socket.send.buffer.bytes"],
        "receive.buffer.bytes" => &["socket.receive.buffer.bytes"],
        "buffer.memory" => &["queue.buffering.max.kbytes"],
        "max.request.size" => &["message.max.bytes"],
        "load.processing.micros" => &["a faster handler"],
        "load.threads" => &["threads"],
        _ => &[],
    }
}

/// Whether a refused `set`, a setting with or without a value or a list of them, is of this name.
pub fn is_of(set: &str, name: &str) -> bool {
    set.split(',').any(|part| {
        let part = part.split('=').next().unwrap_or(part).trim();
        part == name
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Remedy, all};
    use super::*;

    #[test]
    fn a_refusal_is_of_a_setting_with_or_without_its_value() {
        assert!(is_of("batch.size", "batch.size"));
        assert!(is_of("batch.size=32768", "batch.size"));
        assert!(is_of("linger.ms = 5, batch.size = 32768", "batch.size"));
        assert!(!is_of("max.batch.size", "batch.size"));
        assert!(!is_of("", "batch.size"));
    }

    #[test]
    fn fetch_sizes_are_either_limit_and_no_limit_is_the_other() {
        let remedy = |set| Remedy {
            set,
            names: &[],
            lifts: false,
        };
        let partition = remedy(&[("max.partition.fetch.bytes", "1048576")]);
        assert!(partition.is_refused_by("max.partition.fetch.bytes"));
        assert!(partition.is_refused_by("fetch sizes"));
        // A limit that no fetch reaches is refused rightly.
        assert!(!partition.is_refused_by("fetch.max.bytes=104857600"));
        assert!(remedy(&[("fetch.max.bytes", "52428800")]).is_refused_by("fetch sizes"));
        let wait = remedy(&[("fetch.min.bytes", "1")]);
        assert!(wait.is_refused_by("fetch.max.wait.ms"));
        assert!(!wait.is_refused_by("fetch sizes"));
    }

    #[test]
    fn a_remedy_of_the_load_is_refused_by_the_doctors_words_for_it() {
        let refuses = |name: &str, set: &str| {
            let regime = all().into_iter().find(|regime| regime.name == name);
            regime.unwrap().remedy.unwrap().is_refused_by(set)
        };
        assert!(refuses("processing-1ms", "a faster handler"));
        assert!(refuses("processing-4ms", "more consumers"));
        // It has one partition, and its doctor may say so.
        assert!(!refuses("processing-1ms", "more consumers"));
        assert!(!refuses("processing-4ms", "more than 6 consumers"));
        assert!(refuses("worker", "threads"));
        assert!(refuses("byte-quota", "producer_byte_rate"));
    }
}
